"""The commands `verify_audit` and `export_checkpoints`."""

import json
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.conf import settings as configured
from django.core.management import CommandError, call_command

from tests.audit.chained import change, record, rehash
from tools_app.audit.checkpoints import pruned, signer, statements, witness
from tools_app.audit.recorder.chain import start_of
from tools_app.audit.verification.records import chain_entries
from tools_app.models import Call, Checkpoint, Process, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("new_chains")]

WRONG = "Verification of the audit log failed."


@pytest.fixture
def calls(tenant: Tenant, other_tenant: Tenant) -> list[UUID]:
    recorded = record(4, tenant.pk)
    record(2, other_tenant.pk)
    signer.sign()
    return recorded


@pytest.fixture
def export(calls: list[UUID], tmp_path: Path) -> str:
    """The checkpoints, exported to a file out of the database owner's reach."""
    path = tmp_path / "kept elsewhere.jsonl"
    call_command("export_checkpoints", "--out", str(path), stdout=StringIO())
    return str(path)


def run(*arguments: str) -> list[str]:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue().splitlines()


def refused(*arguments: str) -> list[str]:
    """The output before the CommandError."""
    out = StringIO()
    with pytest.raises(CommandError, match=WRONG):
        call_command("verify_audit", *arguments, stdout=out)
    return out.getvalue().splitlines()


def rewrite_everything() -> None:
    """Recompute all hashes and delete the checkpoints, like a database owner who knows the algorithm."""
    heads: dict[tuple[UUID, UUID | None], bytes] = {}
    for place in list(chain_entries(Call.objects.all())):
        of = (place.writer, place.tenant_id)
        heads[of] = rehash(place, heads.get(of, start_of(*of).chain_hash))
    Checkpoint.objects.all().delete()


def test_a_clean_log_is_said_to_be_clean(calls: list[UUID]) -> None:
    assert run("verify_audit") == [
        "6 records in 2 chains, 1 checkpoints.",
        "0 records are not signed yet.",
        "1 checkpoints witnessed outside the database.",
        "No problems found.",
    ]
    assert run("verify_audit", "--tenant", "acme")[0] == "4 records in 1 chains, 1 checkpoints."
    assert "6 older records were skipped." in run("verify_audit", "--since", "2999-01-01")


def test_the_first_bad_record_is_named_and_the_exit_code_tells(calls: list[UUID]) -> None:
    change(calls[1], cause="another")
    (line, *_) = refused()
    assert line.startswith(f"CHANGED, call {calls[1]}, position 2, tenant acme, process ")
    assert run("verify_audit", "--tenant", "rival")[-1] == "No problems found."


def test_what_a_killed_process_left_is_said_and_is_no_alarm(tenant: Tenant) -> None:
    dead = Process.objects.create(kind="worker", host="h", pid=1)
    record(3, tenant.pk, of=dead.pk)
    lines = run("verify_audit")
    assert lines[-1] == "No problems found."
    assert any(line.startswith("1 processes were killed before they signed their newest records") for line in lines)


def test_an_export_verifies_without_the_database(export: str) -> None:
    (line,) = Path(export).read_text().splitlines()
    signed = json.loads(line)
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed["public_key"]))
    key.verify(bytes.fromhex(signed["signature"]), signed["statement"].encode())
    assert {len(head[2]) for head in json.loads(signed["statement"])["heads"]} == {64}
    assert run("export_checkpoints", "--public-key") == [signed["public_key"]]


def test_an_export_that_agrees_is_clean(export: str, tenant: Tenant) -> None:
    record(3, tenant.pk)
    signer.sign()
    output = run("verify_audit", "--checkpoints", export)
    assert "1 exported checkpoints." in output
    assert output[-1] == "No problems found."


def test_who_rewrites_records_chains_and_checkpoints_contradicts_the_export(export: str, calls: list[UUID]) -> None:
    change(calls[1], cause="another")
    rewrite_everything()
    lines = refused("--checkpoints", export)
    assert any(line.startswith("REWRITTEN") and "tenant acme" in line for line in lines)
    assert any("line 1 of the export, is gone" in line for line in lines)


def test_who_rewrites_with_the_key_contradicts_the_export_too(export: str, calls: list[UUID]) -> None:
    change(calls[1], cause="another")
    rewrite_everything()
    writer = Call.objects.get(pk=calls[0]).writer
    Process.objects.get_or_create(id=writer, defaults={"kind": "web", "host": "h", "pid": 1})
    signer.sign_for([writer])
    witness.path().unlink()
    assert run("verify_audit")[-1] == "No problems found."
    assert any("says otherwise now" in line for line in refused("--checkpoints", export))


def test_who_takes_everything_away_contradicts_the_export(export: str) -> None:
    Call.objects.all().delete()
    Checkpoint.objects.all().delete()
    witness.path().unlink()
    assert run("verify_audit")[-1] == "No problems found."
    assert sum(line.startswith("MISSING") for line in refused("--checkpoints", export)) == 2


def test_what_was_pruned_since_does_not_contradict_the_export(export: str, calls: list[UUID], tenant: Tenant) -> None:
    doomed = Call.objects.filter(pk__in=calls)
    pruned.note(pruned.links_of(doomed), "old")
    doomed.delete()
    record(1, tenant.pk)
    signer.sign()
    assert run("verify_audit", "--checkpoints", export)[-1] == "No problems found."


def test_an_export_can_be_of_one_tenant(calls: list[UUID], tenant: Tenant) -> None:
    record(1, tenant.pk)
    signer.sign()
    assert len(run("export_checkpoints")) == 2
    assert len(run("export_checkpoints", "--tenant", "rival")) == 1


def test_an_export_never_overwrites_another_one(export: str) -> None:
    with pytest.raises(CommandError, match="File exists"):
        run("export_checkpoints", "--out", export)


def test_keys_can_be_named_by_whoever_does_not_have_them(
    calls: list[UUID], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = statements.own_key()
    monkeypatch.setattr(configured, "MCPHUB_AUDIT_KEY", "the key of an auditor's own machine")
    assert any("unknown key" in line for line in refused())
    (tmp_path / "keys").write_text(f"{'0' * 64}\n{key}\n")
    for public_key in (key, str(tmp_path / "keys")):
        assert run("verify_audit", "--public-key", public_key)[-1] == "No problems found."
    assert any("unknown key" in line for line in refused("--public-key", "0" * 64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify_audit", "--tenant", "nobody"], "Unknown tenant: 'nobody'"),
        (["export_checkpoints", "--tenant", "nobody"], "Unknown tenant: 'nobody'"),
        (["verify_audit", "--since", "lately"], "--since 'lately'"),
        (["verify_audit", "--public-key", "abc"], "--public-key 'abc'"),
        (["verify_audit", "--checkpoints", "/nowhere/at all"], "No such file"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(*arguments)


def test_what_is_no_export_is_refused(calls: list[UUID], tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("not one\n{}\n")
    assert sum("proves nothing" in line for line in refused("--checkpoints", str(path))) == 2
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="is not an export"):
        run("verify_audit", "--checkpoints", str(path))
