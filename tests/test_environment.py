"""Reading the environment: a value that makes no sense stops the start and names its variable."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcphub import environment as env


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda name: env.whole(name, 1), "many"),
        (lambda name: env.whole(name, 1), "0"),
        (lambda name: env.whole(name, 1), "1.5"),
        (lambda name: env.seconds(name, 1.0), "soon"),
        (lambda name: env.seconds(name, 1.0), "0"),
        (lambda name: env.seconds(name, 1.0), "-1"),
        (lambda name: env.seconds(name, 1.0), "nan"),
        (lambda name: env.seconds(name, 1.0), "inf"),
        (env.flag, "perhaps"),
        (lambda name: env.choice(name, ["INFO"], "INFO"), "loud"),
    ],
)
def test_a_bad_value_is_named_with_its_variable(monkeypatch, read, value):
    monkeypatch.setenv("MCPHUB_X", value)

    with pytest.raises(ImproperlyConfigured, match=f"^MCPHUB_X='{value}'"):
        read("MCPHUB_X")


@pytest.mark.parametrize("url", ["banana", "mysql://hub:hush@db/hub", "postgres://hub:hush@db:port/hub"])
def test_a_bad_database_is_named_without_its_password(monkeypatch, tmp_path, url):
    monkeypatch.setenv("DATABASE_URL", url)

    with pytest.raises(ImproperlyConfigured, match=r"^DATABASE_URL: ") as refused:
        env.database("DATABASE_URL", tmp_path / "hub.sqlite3")
    assert "hush" not in str(refused.value)


def test_a_database_url_is_understood(monkeypatch, tmp_path):
    monkeypatch.setenv("DATABASE_URL", "postgres://hub:h%40sh@db:5433/calls")

    assert env.database("DATABASE_URL", tmp_path) == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "calls",
        "USER": "hub",
        "PASSWORD": "h@sh",
        "HOST": "db",
        "PORT": 5433,
    }


def test_without_a_database_url_any_path_will_do(monkeypatch, tmp_path):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    path = tmp_path / "100 % mine? #1.sqlite3"

    assert env.database("DATABASE_URL", path) == {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}


def test_an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("MCPHUB_X", "")

    assert env.text("MCPHUB_X", "default") == "default"
    assert env.items("MCPHUB_X", ["default"]) == ["default"]
    assert env.whole("MCPHUB_X", 7) == 7
    assert env.seconds("MCPHUB_X", 0.5) == 0.5
    assert env.flag("MCPHUB_X") is False


def test_values_are_read_as_what_they_are(monkeypatch):
    for variable, value in {
        "LIST": " a, b ,,c ",
        "COUNT": "12",
        "TIME": "2.5",
        "SWITCH": "Yes",
        "LEVEL": "info",
    }.items():
        monkeypatch.setenv(f"MCPHUB_{variable}", value)

    assert env.items("MCPHUB_LIST") == ["a", "b", "c"]
    assert env.whole("MCPHUB_COUNT", 1) == 12
    assert env.seconds("MCPHUB_TIME", 1.0) == 2.5
    assert env.flag("MCPHUB_SWITCH") is True
    assert env.choice("MCPHUB_LEVEL", ["INFO"], "INFO") == "INFO"


def test_a_short_audit_key_is_named_but_not_shown(monkeypatch):
    monkeypatch.setenv("MCPHUB_X", "hush")

    with pytest.raises(ImproperlyConfigured, match=r"^MCPHUB_X: write at least 32 characters") as refused:
        env.key_text("MCPHUB_X")
    assert "hush" not in str(refused.value)


def test_a_list_of_public_keys_holds_nothing_else(monkeypatch):
    monkeypatch.setenv("MCPHUB_X", f"{'a' * 64}, {'B' * 64}")
    assert env.public_keys("MCPHUB_X") == ["a" * 64, "b" * 64]
    monkeypatch.setenv("MCPHUB_X", f"{'a' * 64},hush")

    with pytest.raises(ImproperlyConfigured, match=r"^MCPHUB_X: ") as refused:
        env.public_keys("MCPHUB_X")
    assert "hush" not in str(refused.value)


def test_a_mail_server_is_understood(monkeypatch):
    monkeypatch.setenv("MCPHUB_X", "smtp+tls://hub:h%40sh@mail.example:587")

    read = env.email("MCPHUB_X")
    assert (read["EMAIL_HOST"], read["EMAIL_PORT"], read["EMAIL_USE_TLS"]) == ("mail.example", 587, True)
    assert (read["EMAIL_HOST_USER"], read["EMAIL_HOST_PASSWORD"]) == ("hub", "h@sh")


@pytest.mark.parametrize("url", ["gopher://hub:hush@mail", "hush", "smtp://hub:hush@mail:port"])
def test_a_bad_mail_server_is_named_without_its_password(monkeypatch, url):
    monkeypatch.setenv("MCPHUB_X", url)

    with pytest.raises(ImproperlyConfigured, match=r"^MCPHUB_X: ") as refused:
        env.email("MCPHUB_X")
    assert "hush" not in str(refused.value)


def test_without_a_mail_server_there_is_none(monkeypatch):
    monkeypatch.delenv("MCPHUB_X", raising=False)

    assert env.email("MCPHUB_X") == {}
