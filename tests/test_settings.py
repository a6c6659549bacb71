"""What the settings make on the disk at the first start."""

import stat

from mcphub import settings


def test_a_secret_is_made_once_and_for_its_owner_only(tmp_path):
    path = tmp_path / "secret.key"

    first = settings.generated_secret(path)

    assert len(first) >= 64
    assert settings.generated_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
