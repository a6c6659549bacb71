"""Files that the settings create at the first start."""

import stat

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcphub import settings


def test_a_secret_is_made_once_and_for_its_owner_only(tmp_path):
    path = tmp_path / "secret.key"

    first = settings.generated_secret(path)

    assert len(first) >= 64
    assert settings.generated_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("content", "message"), [(b"\xff\xfe", "not a text"), (b" \n", "is empty. Restore it")])
def test_a_secret_that_is_damaged_is_never_replaced(tmp_path, content, message):
    path = tmp_path / "secret.key"
    path.write_bytes(content)

    with pytest.raises(ImproperlyConfigured, match=message):
        settings.generated_secret(path)
    assert path.read_bytes() == content


def test_a_secret_that_cannot_be_made_says_where(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ImproperlyConfigured, match=r"secret\.key cannot be read or made \(Not a directory\)"):
        settings.generated_secret(tmp_path / "file" / "secret.key")
