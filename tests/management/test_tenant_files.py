"""`export_tenant` and `import_tenant`: a tenant as a file, and back."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tools_app.models import Change, Tenant, Tool

pytestmark = pytest.mark.django_db

TEXT = """
mcphub: 1
tenant: {name: Filed}
tools:
  look:
    input_schema: {type: object}
    request: {method: GET, base_url: "https://a.example", headers: {Authorization: "{secret:TOKEN}"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "acme.yaml"
    path.write_text(TEXT)
    return str(path)


def run(*arguments: Any, **options: Any) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=out, **options)
    return out.getvalue()


def test_what_one_command_writes_the_other_takes(tenant: Tenant, offer: Any, tmp_path: Path) -> None:
    offer("echo")
    path = tmp_path / "out.yaml"
    run("export_tenant", "acme", output=path)
    assert path.read_text() == run("export_tenant", "acme")
    assert "0 to create, 0 to change, 0 to delete, 1 unchanged." in run("import_tenant", "acme", str(path))
    run("import_tenant", "copy", str(path), create=True, yes=True)
    assert Tool.objects.filter(tenant__slug="copy", name="echo").exists()


def test_a_dry_run_tells_everything_and_changes_nothing(tenant: Tenant, offer: Any, file: str) -> None:
    offer("echo")
    output = run("import_tenant", "acme", file, dry_run=True)
    for line in ("~ settings acme", '+   "name": "Filed"', "+ tool look", "The secret TOKEN is missing", "1 to create"):
        assert line in output
    assert "1 rows are not in the file and are kept" in output
    assert not Tool.objects.filter(name="look").exists()


def test_it_is_done_with_yes_and_recorded_as_done_at_the_command_line(tenant: Tenant, file: str) -> None:
    assert run("import_tenant", "acme", file, yes=True).endswith("Done.\n")
    tenant.refresh_from_db()
    assert tenant.name == "Filed"
    assert set(Change.objects.values_list("kind", "action", "via")) == {
        ("tool", "created", "command"),
        ("tenant", "changed", "command"),
    }


def test_pruning_deletes_what_the_file_does_not_name(tenant: Tenant, offer: Any, file: str) -> None:
    offer("echo")
    assert "- tool echo" in run("import_tenant", "acme", file, prune=True, yes=True)
    assert list(Tool.objects.values_list("name", flat=True)) == ["look"]


def test_without_anybody_to_ask_nothing_is_done(tenant: Tenant, file: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("y\n"))
    with pytest.raises(CommandError, match="Use --yes"):
        run("import_tenant", "acme", file)
    assert not Tool.objects.exists()


def test_a_tenant_that_is_not_there_is_made_only_when_asked_for(file: str) -> None:
    with pytest.raises(CommandError, match="Use --create to create it"):
        run("import_tenant", "new", file, yes=True)
    run("import_tenant", "new", file, create=True, dry_run=True)
    assert not Tenant.objects.exists()
    with pytest.raises(CommandError, match="lower-case letters"):
        run("import_tenant", "Not a slug", file, create=True, yes=True)
    run("import_tenant", "new", file, create=True, yes=True)
    assert Tenant.objects.get().name == "Filed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mcphub: 2", "must start with"),
        ("mcphub: 1\ntools: {a: 1}", "tools.a: must be an object"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_file_that_is_wrong_is_told(tenant: Tenant, tmp_path: Path, text: Any, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CommandError, match=message):
        run("import_tenant", "acme", str(path), yes=True)


def test_what_is_missing_is_told(tenant: Tenant, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        run("import_tenant", "acme", str(tmp_path / "nowhere.yaml"))
    with pytest.raises(CommandError, match="Unknown tenant: 'nobody'"):
        run("export_tenant", "nobody")
    with pytest.raises(CommandError, match="nowhere"):
        run("export_tenant", "acme", output=tmp_path / "nowhere" / "a.yaml")
