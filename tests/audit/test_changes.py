"""Changes: who changed what, before and after, in one chain."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from tools_app.audit.changes import changes
from tools_app.audit.changes.changes import Actor, record, recording_as
from tools_app.catalog import authoring
from tools_app.models import Action, ApiKey, Change, Membership, Resource, Role, Secret, Tenant, Tool, Via


@pytest.fixture
def alice(db):
    return User.objects.create_user("alice", password="first password")


@pytest.fixture
def acme(db):
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def by_alice(alice):
    with recording_as(Actor(alice, Via.ADMIN, "203.0.113.9")):
        yield alice


def newest():
    return Change.objects.order_by("-position").first()


def values_of(change):
    return json.loads(change.before), json.loads(change.after)


def test_nothing_is_recorded_where_nobody_acts(acme):
    acme.name = "Acme Ltd"
    acme.save()
    assert record(Action.REVOKED, acme) is None
    assert not Change.objects.exists()


def test_a_change_says_who_did_what_to_what_from_where(acme, by_alice):
    acme.name = "Acme Ltd"
    acme.save()
    change = newest()
    assert (change.person, change.person_name, change.via) == (by_alice, "alice", Via.ADMIN)
    assert (change.action, change.kind, change.object_id) == (Action.CHANGED, "tenant", str(acme.pk))
    assert (change.object_name, change.tenant_id, change.remote_address) == ("Acme Ltd", acme.pk, "203.0.113.9")
    assert values_of(change) == ({"name": "Acme"}, {"name": "Acme Ltd"})


def test_a_new_row_is_told_without_what_is_empty_and_a_deleted_one_with_what_it_was(acme, by_alice):
    tool = authoring.save_tool(Tool(tenant=acme, name="look", kind="http", config={"method": "GET"}))
    created = newest()
    assert (created.action, created.tenant_id) == (Action.CREATED, acme.pk)
    assert values_of(created)[0] == {}
    assert values_of(created)[1]["config"] == {"method": "GET"}
    assert "title" not in values_of(created)[1]
    authoring.delete(tool)
    gone = newest()
    assert (gone.action, gone.object_name) == (Action.DELETED, "look")
    assert values_of(gone)[0]["config"] == {"method": "GET"}
    assert values_of(gone)[1] == {}


def test_only_fields_that_were_written_count(acme, by_alice):
    acme.name, acme.keep_days = "Acme Ltd", 7
    acme.save(update_fields=["keep_days"])
    assert values_of(newest()) == ({"keep_days": None}, {"keep_days": 7})


def test_a_save_that_changes_nothing_is_no_change(acme, by_alice):
    acme.save()
    acme.catalog_version += 1
    acme.save()
    assert not Change.objects.exists()


def test_a_password_is_never_told_only_that_it_changed(alice, by_alice):
    before = alice.password
    alice.set_password("second password")
    alice.save()
    change = newest()
    assert values_of(change) == ({}, {"password": "changed"})
    everything = f"{change.before}{change.after}{change.object_name}"
    assert before not in everything
    assert alice.password not in everything


def test_a_secret_is_told_by_name_and_never_its_value_or_ciphertext(acme, by_alice):
    authoring.set_secret(acme, "TOKEN", "hush-hush-1")
    assert values_of(newest()) == ({}, {"name": "TOKEN"})
    authoring.set_secret(acme, "TOKEN", "hush-hush-2")
    assert values_of(newest()) == ({}, {"value": "changed"})
    authoring.delete_secret(Secret.objects.get(name="TOKEN"))
    assert newest().action == Action.DELETED
    assert not Change.objects.filter(after__contains="hush").exists()


def test_a_key_is_told_without_its_digest(acme, by_alice):
    key = ApiKey.objects.create(tenant=acme, name="laptop", prefix="mcphub_abcde", digest="d" * 64)
    assert values_of(newest())[1] == {"name": "laptop", "prefix": "mcphub_abcde", "acts_for_creator": False}
    ApiKey.objects.filter(pk=key.pk).update(last_used_at="2026-01-01T00:00:00Z")
    key.refresh_from_db()
    key.save(update_fields=["last_used_at"])
    assert Change.objects.count() == 1


def test_of_a_file_its_size_and_hash_are_told(acme, by_alice):
    authoring.save_resource(Resource(tenant=acme, uri="file://a", name="a", kind="file", blob=b"\x00" * 10))
    blob = values_of(newest())[1]["blob"]
    assert blob["bytes"] == 10
    assert len(blob["sha256"]) == 64


def test_a_member_is_told_by_user_name(acme, by_alice):
    Membership.objects.create(user=by_alice, tenant=acme, role=Role.AUDITOR)
    assert values_of(newest())[1] == {"user": "alice", "role": "auditor"}
    assert newest().object_name == "alice in Acme"


def test_a_deleted_tenant_takes_its_rows_along_and_each_is_told(acme, by_alice):
    Membership.objects.create(user=by_alice, tenant=acme, role=Role.ADMIN)
    Change.objects.all().delete()
    pk = acme.pk
    acme.delete()
    assert [(one.kind, one.tenant_id) for one in Change.objects.order_by("position")] == [
        ("membership", pk),
        ("tenant", pk),
    ]


def test_the_command_line_has_a_name_but_is_no_person(acme):
    with recording_as(changes.at_command_line()):
        acme.name = "Acme Ltd"
        acme.save()
    change = newest()
    assert (change.person, change.via) == (None, Via.COMMAND)
    assert change.person_name


def test_changes_follow_one_another(acme, by_alice):
    for name in ("One", "Two", "Three"):
        acme.name = name
        acme.save()
    previous = changes.START
    for position, change in enumerate(Change.objects.order_by("position"), 1):
        assert change.position == position
        assert bytes(change.digest) == changes.digest(previous, changes.hashed_fields(change))
        previous = bytes(change.digest)


def test_a_change_that_cannot_be_recorded_is_not_made(acme, by_alice, monkeypatch):
    def broken(*_arguments, **_options):
        raise OSError("disk full")

    monkeypatch.setattr(changes, "record", broken)
    acme.name = "Acme Ltd"
    with pytest.raises(OSError, match="disk full"), transaction.atomic():
        acme.save()
    acme.refresh_from_db()
    assert acme.name == "Acme"


@pytest.mark.django_db(transaction=True)
def test_a_save_outside_of_a_transaction_is_undone_too(acme, monkeypatch):
    def broken(*_arguments, **_options):
        raise OSError("disk full")

    monkeypatch.setattr(changes, "record", broken)
    acme.name = "Acme Ltd"
    with recording_as(changes.at_command_line()), pytest.raises(OSError, match="disk full"):
        acme.save()
    acme.refresh_from_db()
    assert acme.name == "Acme"


@pytest.mark.django_db(transaction=True)
def test_a_record_outside_of_a_transaction_is_refused(acme):
    with recording_as(changes.at_command_line()), pytest.raises(transaction.TransactionManagementError, match="atomic"):
        record(Action.REVOKED, acme)


@pytest.mark.django_db(transaction=True)
def test_many_who_change_at_once_never_share_a_position():
    tenants = [Tenant.objects.create(slug=f"t{number}", name="Before") for number in range(8)]

    def rename(tenant):
        try:
            with recording_as(changes.at_command_line()), changes.change_log_transaction():
                tenant.name = "After"
                tenant.save()
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(rename, tenants))
    assert list(Change.objects.order_by("position").values_list("position", flat=True)) == list(range(1, 9))


def test_a_row_of_which_only_some_was_loaded_is_told_as_far_as_it_was_written(acme, by_alice):
    authoring.save_resource(Resource(tenant=acme, uri="file://a", name="a", kind="file", blob=b"\x00" * 10))
    row = Resource.objects.defer("blob").get(uri="file://a")
    row.name = "b"
    row.save()
    assert values_of(newest()) == ({"name": "a"}, {"name": "b"})
    row = Resource.objects.defer("blob").get(uri="file://a")
    row.delete()
    assert values_of(newest())[0]["blob"]["bytes"] == 10
