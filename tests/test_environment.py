"""Reading environment variables: an invalid value stops the start and names its variable."""

from importlib.util import find_spec

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcphub import environment as env


@pytest.fixture(autouse=True)
def extras_are_installed(monkeypatch):
    """Pretend that all extras are installed."""
    of_extras = {"psycopg", "redis", "channels_redis"}
    monkeypatch.setattr(env, "find_spec", lambda name: name in of_extras or find_spec(name))


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
        (lambda name: env.whole(name, 1, most=9), "10"),
        (lambda name: env.whole(name, 1), "9" * 30),
        (lambda name: env.seconds(name, 1.0), "1e30"),
        (lambda name: env.sender(name, ""), "hub"),
    ],
)
def test_a_bad_value_is_named_with_its_variable(monkeypatch, read, value):
    monkeypatch.setenv("MCPHUB_X", value)

    with pytest.raises(ImproperlyConfigured, match=f"^MCPHUB_X='{value}'"):
        read("MCPHUB_X")


@pytest.mark.parametrize(
    "url",
    [
        *("banana", "mysql://hub:hush@db/hub", "postgres://hub:hush@db:port/hub", "postgres://hub:hush@db/"),
        *("sqlite://", "sqlite://:memory:", "postgres://hub:hush@[::1/hub", "postgres://hub:hush/5432@db/hub"),
    ],
)
def test_a_bad_database_is_named_without_its_password(monkeypatch, tmp_path, url):
    monkeypatch.setenv("DATABASE_URL", url)

    with pytest.raises(ImproperlyConfigured, match=r"^DATABASE_URL\b") as refused:
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


@pytest.mark.parametrize(
    "url",
    [
        *("gopher://hub:hush@mail", "hush", "smtp://hub:hush@mail:port", "smtp://hub:hush@[::1", "smtp://hub:hush/1@m"),
    ],
)
def test_a_bad_mail_server_is_named_without_its_password(monkeypatch, url):
    monkeypatch.setenv("MCPHUB_X", url)

    with pytest.raises(ImproperlyConfigured, match=r"^MCPHUB_X: ") as refused:
        env.email("MCPHUB_X")
    assert "hush" not in str(refused.value)


def test_without_a_mail_server_there_is_none(monkeypatch):
    monkeypatch.delenv("MCPHUB_X", raising=False)

    assert env.email("MCPHUB_X") == {}


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (env.redis, "http://hub:hush@redis"),
        (env.redis, "redis://hub:hush@redis:port"),
        (lambda name: env.broker(name, ""), "hush://hub:hush@broker"),
        (lambda name: env.hosts(name, []), "hub.example,http://hub.example"),
        (lambda name: env.hosts(name, []), "hub.example:8000"),
        (env.origins, "app.example"),
        (env.origins, "https://app.example/"),
        (env.apps, "there_is_no_such_app"),
        (env.apps, "../app"),
    ],
)
def test_an_address_or_name_that_cannot_be_right_is_refused_without_a_password(monkeypatch, read, value):
    monkeypatch.setenv("MCPHUB_X", value)

    with pytest.raises(ImproperlyConfigured, match=r"^MCPHUB_X: ") as refused:
        read("MCPHUB_X")
    assert "hub:hush" not in str(refused.value)


def test_addresses_and_names_are_read_as_they_are(monkeypatch):
    for read, value in (
        (env.redis, "rediss://:hush@redis:6380/1"),
        (lambda name: env.broker(name, ""), "amqp://guest:hush@rabbit:5672//"),
        (lambda name: env.sender(name, ""), "The hub <hub@mail.example>"),
    ):
        monkeypatch.setenv("MCPHUB_X", value)
        assert read("MCPHUB_X") == value
    monkeypatch.setenv("MCPHUB_X", "hub.example, .example, *, 127.0.0.1, [::1]")
    assert env.hosts("MCPHUB_X", []) == ["hub.example", ".example", "*", "127.0.0.1", "[::1]"]
    monkeypatch.setenv("MCPHUB_X", "https://app.example, http://localhost:3000, https://[::1]:8443")
    assert len(env.origins("MCPHUB_X")) == 3


def test_a_redis_socket_is_a_broker_too(monkeypatch):
    monkeypatch.setenv("REDIS_URL", "unix:///run/redis.sock")

    assert env.broker("MCPHUB_UNSET", env.redis("REDIS_URL")) == "redis+socket:///run/redis.sock"


def test_the_database_of_a_redis_socket_is_celerys_too(monkeypatch):
    monkeypatch.setenv("REDIS_URL", "unix:///run/redis.sock?db=7")

    broker = env.broker("MCPHUB_UNSET", env.redis("REDIS_URL"))
    assert broker == "redis+socket:///run/redis.sock?virtual_host=7"


def test_what_an_address_asks_for_has_to_be_installed(monkeypatch):
    monkeypatch.setattr(env, "find_spec", lambda _name: None)
    monkeypatch.setenv("MCPHUB_X", "redis://redis/0")

    with pytest.raises(
        ImproperlyConfigured, match=r"^MCPHUB_X needs redis and channels_redis.+pip install -e '\.\[redis\]'"
    ):
        env.redis("MCPHUB_X")
    with pytest.raises(ImproperlyConfigured, match=r"^MCPHUB_X needs redis, .+pip install -e '\.\[redis\]'"):
        env.broker("MCPHUB_X", "")


def test_a_variable_that_nothing_reads_is_told_with_its_nearest_name(monkeypatch):
    for name in (
        "MCPHUB_X_SECONDS",
        "MCPHUB_X_SECOND",
        "MCPHUB_ZEBRA",
        "MCPHUB_REDIS_URL",
        "MCPHUB_SERVICE_HOST",
        "MCPHUB_PORT_80_TCP_ADDR",
    ):
        monkeypatch.setenv(name, "1")
    env.text("MCPHUB_X_SECONDS")

    unknown = env.unknown()
    assert unknown["MCPHUB_X_SECOND"] == "Did you mean MCPHUB_X_SECONDS?"
    assert unknown["MCPHUB_ZEBRA"] == ""
    assert unknown["MCPHUB_REDIS_URL"] == "Did you mean REDIS_URL?"
    assert not {"MCPHUB_X_SECONDS", "MCPHUB_SERVICE_HOST", "MCPHUB_PORT_80_TCP_ADDR"} & set(unknown)


def test_a_data_directory_that_cannot_be_made_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MCPHUB_X", str(tmp_path / "file" / "data"))

    with pytest.raises(ImproperlyConfigured, match=r"^MCPHUB_X='.+': the directory cannot be made \(Not a directory\)"):
        env.directory("MCPHUB_X", tmp_path)


@pytest.mark.parametrize(
    "url", ["banana", "ftp://host/x", "https://", "syslog:///dev/log", "https://hub:hush@host/", "http://h:x"]
)
def test_a_bad_receiver_of_checkpoints_is_named_without_its_password(monkeypatch, url):
    monkeypatch.setenv("MCPHUB_AUDIT_CHECKPOINTS_URL", url)

    with pytest.raises(ImproperlyConfigured, match=r"^MCPHUB_AUDIT_CHECKPOINTS_URL\b") as refused:
        env.witness("MCPHUB_AUDIT_CHECKPOINTS_URL")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["", "https://host/path", "http://10.0.0.1:8080/", "syslog://log.example", "syslog://[::1]:601"]
)
def test_a_receiver_of_checkpoints_is_understood(monkeypatch, url):
    monkeypatch.setenv("MCPHUB_AUDIT_CHECKPOINTS_URL", url)

    assert env.witness("MCPHUB_AUDIT_CHECKPOINTS_URL") == url
