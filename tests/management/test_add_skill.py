"""The command `add_skill`: adding and updating a skill from a directory."""

from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tools_app.catalog import versioned
from tools_app.catalog.validation import resources
from tools_app.models import Resource, Tenant

HEAD = "---\nname: refunds\ndescription: Pay back.\n---\n\n# Refunds\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "refunds"
    (place / "img").mkdir(parents=True)
    (place / "SKILL.md").write_text(HEAD)
    (place / "img" / "logo one.png").write_bytes(b"\x89PNG\x00")
    return place


def add(directory: Path, capsys: pytest.CaptureFixture[str], prefix: str = "") -> str:
    call_command("add_skill", str(directory), "--tenant", "acme", "--prefix", prefix)
    return capsys.readouterr().out


def test_every_file_becomes_a_resource(tenant: Tenant, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = add(directory, capsys, "pay/back")
    assert output == "skill://pay/back/refunds/SKILL.md: 2 files, 2 new or changed, 0 removed.\n"
    manifest, logo = Resource.objects.order_by("uri")
    assert (manifest.uri, manifest.kind, manifest.text) == ("skill://pay/back/refunds/SKILL.md", "text", HEAD)
    assert (manifest.name, manifest.description, manifest.mime_type) == ("refunds", "Pay back.", "text/markdown")
    assert (logo.uri, logo.kind, bytes(logo.blob), logo.mime_type) == (
        "skill://pay/back/refunds/img/logo%20one.png",
        "file",
        b"\x89PNG\x00",
        "image/png",
    )


def test_the_second_run_changes_nothing_and_a_later_one_what_changed(
    tenant: Tenant, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(directory, capsys)
    tenant.refresh_from_db()
    version = tenant.catalog_version
    assert add(directory, capsys).endswith("2 files, 0 new or changed, 0 removed.\n")
    tenant.refresh_from_db()
    assert tenant.catalog_version == version

    (directory / "img" / "logo one.png").unlink()
    (directory / "more.txt").write_text("More.")
    assert add(directory, capsys).endswith("2 files, 1 new or changed, 1 removed.\n")
    assert set(Resource.objects.values_list("uri", flat=True)) == {
        "skill://refunds/SKILL.md",
        "skill://refunds/more.txt",
    }


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("# Refunds", "start with frontmatter"),
        ("---\nname: other\ndescription: x\n---\n", "They must be the same"),
        ("---\nname: refunds\n---\n", "must have a name and a description"),
        ("---\nname: [\n---\n", "not valid YAML"),
    ],
)
def test_a_directory_that_is_no_skill_is_refused_and_leaves_nothing(
    tenant: Tenant, directory: Path, capsys: pytest.CaptureFixture[str], head: str, problem: str
) -> None:
    (directory / "SKILL.md").write_text(head)
    with pytest.raises(CommandError, match=problem):
        add(directory, capsys)
    assert not Resource.objects.exists()


def test_without_a_manifest_or_a_tenant_it_says_what_is_missing(
    tenant: Tenant, tmp_path: Path, directory: Path
) -> None:
    with pytest.raises(CommandError, match=r"has no SKILL\.md"):
        call_command("add_skill", str(tmp_path), "--tenant", "acme")
    with pytest.raises(CommandError, match="Unknown tenant: 'nobody'"):
        call_command("add_skill", str(directory), "--tenant", "nobody")


def test_a_file_that_no_resource_can_hold_and_more_files_than_a_tenant_has_room_for_are_refused(
    tenant: Tenant, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versioned, "MAX_ROWS", 2)
    (directory / "more.txt").write_text("More.")
    with pytest.raises(CommandError, match="A tenant has at most 2 resources"):
        add(directory, capsys)
    (directory / "more.txt").unlink()
    add(directory, capsys)
    # A new file fits within the limit if it replaces a deleted one.
    (directory / "img" / "logo one.png").rename(directory / "logo.png")
    assert add(directory, capsys).endswith("2 files, 1 new or changed, 1 removed.\n")

    monkeypatch.setattr(resources, "MAX_BYTES", 3)
    with pytest.raises(CommandError, match=r"logo\.png: file: The file is larger than"):
        add(directory, capsys)
