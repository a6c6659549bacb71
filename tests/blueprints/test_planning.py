"""What an import would do, and that it does that and nothing else."""

from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tools_app.audit import changes
from tools_app.blueprints.applying import NotApplied, apply
from tools_app.blueprints.blueprint import read
from tools_app.blueprints.describing import export
from tools_app.blueprints.planning import Doing, plan
from tools_app.execution import authoring
from tools_app.models import Change, Membership, Prompt, Resource, Role, Secret, Tenant, Tool, ToolRevision

pytestmark = pytest.mark.django_db

TOOL = """
mcphub: 1
tools:
  look:
    description: Looks.
    input_schema: {type: object, properties: {id: {type: string}}}
    request: {method: GET, base_url: https://api.example.com, path: "things/{id}"}
"""


def rows(text: str) -> str:
    """An export without the lines that name the tenant."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def told(found: Any) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_what_a_tenant_exports_changes_nothing_in_it(full: Any, planned: Any) -> None:
    found = planned(export(full), prune=True)
    assert (found.steps, found.problems, found.kept, found.missing_secrets) == ([], [], [], [])
    assert found.unchanged == 6


def test_another_tenant_becomes_the_same(full: Tenant, other_tenant: Tenant) -> None:
    found = plan(other_tenant, read(export(full)), None)
    assert not found.problems
    assert found.missing_secrets == ["TOKEN"]
    assert found.count(Doing.CREATE) == 6
    apply(found)
    authoring.set_secret(other_tenant, "TOKEN", "another")
    other_tenant.refresh_from_db()
    assert rows(export(other_tenant)) == rows(export(full))
    assert bytes(Resource.objects.get(tenant=other_tenant, kind="file").blob) == b"\x89PNG\x00\xff"
    assert plan(other_tenant, read(export(full)), None).is_empty


def test_no_value_of_a_secret_is_in_the_file_nor_any_key_or_member(full: Any, key: str) -> None:
    User.objects.create_user("alice").memberships.create(tenant=full, role=Role.ADMIN)
    text = export(full)
    assert "TOKEN" in text
    for hidden in ("hush", key, "alice", "digest", "mcphub_"):
        assert hidden not in text


def test_the_file_is_the_same_every_time(full: Any) -> None:
    assert export(full) == export(Tenant.objects.get(pk=full.pk))
    assert yaml.safe_load(export(full))["mcphub"] == 1


def test_a_new_row_is_made_with_its_defaults(applied: Any) -> None:
    assert [(step.doing, step.kind, step.name) for step in applied(TOOL).steps] == [("create", "tool", "look")]
    tool = Tool.objects.get(name="look")
    assert (tool.enabled, tool.timeout_seconds, tool.config["body_mode"], tool.revision) == (True, 60.0, "none", 1)


def test_applying_twice_changes_nothing_the_second_time(applied: Any) -> None:
    applied(TOOL)
    assert applied(TOOL).is_empty
    assert ToolRevision.objects.count() == 1


def test_what_is_left_out_of_a_row_has_its_default_again(full: Any, applied: Any) -> None:
    found = applied(TOOL.replace("look", "find"))
    (step,) = found.steps
    assert (step.doing, step.before["timeout_seconds"], "timeout_seconds" in step.after) == ("change", 5.0, False)
    tool = Tool.objects.get(name="find")
    assert (tool.timeout_seconds, tool.calls_per_minute, tool.title, tool.revision) == (60.0, None, "", 2)


def test_what_the_file_does_not_name_is_kept_unless_it_is_to_be_pruned(full: Any, applied: Any) -> None:
    found = applied(TOOL)
    assert found.kept == ["tool echo", "tool find"]
    assert Tool.objects.count() == 3
    found = applied(TOOL, prune=True)
    assert [(step.doing, step.name) for step in found.steps] == [("delete", "echo"), ("delete", "find")]
    assert list(Tool.objects.values_list("name", flat=True)) == ["look"]
    assert Prompt.objects.count() == 1, "a section that the file has not is left alone"
    assert Secret.objects.count() == 1, "secrets are never deleted"


def test_a_row_may_become_of_another_kind(full: Any, applied: Any) -> None:
    applied("mcphub: 1\ntools: {find: {function: echo}}\nresources: {'docs://guide': {name: g, file: !!binary AAAA}}")
    assert Tool.objects.get(name="find").kind == "python"
    row = Resource.objects.get(uri="docs://guide")
    assert (row.kind, row.text, bytes(row.blob), row.mime_type) == ("file", "", b"\0\0\0", "application/octet-stream")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("tools: {look: {function: nowhere}}", "tools.look.function: No installed app registers 'nowhere'"),
        ("tools: {'a b': {function: echo}}", "tools.a b: Use letters, digits"),
        ("tools: {a: {request: {base_url: nope}}}", "tools.a.request.base_url: This is no URL"),
        ("tools: {a: {request: {verb: GET}}}", "tools.a.request.verb: There is no such field"),
        ("tools: {a: {task: soon, request: {base_url: 'https://a.example'}}}", "tools.a.task: Value 'soon'"),
        ("tools: {a: {timeout_seconds: 0, request: {base_url: 'https://a.example'}}}", "tools.a.timeout_seconds:"),
        (
            "tools: {a: {input_schema: {type: thing}, request: {base_url: 'https://a.example'}}}",
            "tools.a.input_schema: arguments are an object",
        ),
        ("tools: {a: {annotations: {nice: true}, request: {base_url: 'https://a.example'}}}", "is no annotation"),
        ("tools: {a: {icons: [{src: a}], request: {base_url: 'https://a.example'}}}", "tools.a.icons: 0.src"),
        ("resources: {'a b': {name: a, text: b}}", "resources.a b: Write a URI"),
        ("resources: {'a://{b}': {name: a, text: b}}", "resources.a://{b}.uri: Only a request or a function"),
        ("resources: {'a://b': {text: b}}", "resources.a://b.name: This field cannot be blank"),
        ("resources: {'a://b': {name: a, mime_type: nope, text: b}}", "resources.a://b.mime_type: Write a MIME type"),
        ("prompts: {a: {messages: []}}", "prompts.a.messages: Write at least one message"),
        ("prompts: {a: {messages: [{role: user, text: '{b}'}]}}", "prompts.a.messages: 0.text: {b} is no argument"),
        ("tenant: {name: ''}", "tenant.name: This field cannot be blank"),
        ("tenant: {allowed_networks: [nowhere]}", "tenant.allowed_networks: Entry 1"),
        ("tenant: {calls_per_day: -1}", "tenant.calls_per_day:"),
    ],
)
def test_what_the_admins_forms_refuse_is_refused_here_too(planned: Any, body: str, says: str) -> None:
    found = planned(f"mcphub: 1\n{body}")
    assert any(says in problem for problem in told(found)), told(found)
    with pytest.raises(NotApplied, match="problems in the file"):
        apply(found)
    assert not Tool.objects.exists()


def test_what_only_superusers_decide_stands_in_the_way_of_others(planned: Any, tenant: Tenant) -> None:
    admin = User.objects.create_user("alice")
    Membership.objects.create(user=admin, tenant=tenant, role=Role.ADMIN)
    text = "mcphub: 1\ntenant: {name: New, is_public: true, keep_days: 1}"
    problems = told(planned(text, admin))
    assert [problem.split(":")[0] for problem in problems] == ["tenant.is_public", "tenant.keep_days"]
    assert not planned(text, User.objects.create_superuser("root")).problems
    assert not planned(text).problems
    assert not planned("mcphub: 1\ntenant: {name: New, is_public: false}", admin).problems


def test_settings_that_the_file_does_not_name_stay(applied: Any, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(keep_days=5)
    (step,) = applied("mcphub: 1\ntenant: {name: New, calls_per_day: 9}").steps
    assert (step.before, step.after) == ({"name": "Acme", "calls_per_day": None}, {"name": "New", "calls_per_day": 9})
    tenant.refresh_from_db()
    assert (tenant.name, tenant.calls_per_day, tenant.keep_days) == ("New", 9, 5)


def test_a_tenant_that_was_changed_since_the_plan_is_left_alone(planned: Any, tenant: Tenant) -> None:
    found = planned(TOOL)
    authoring.set_secret(tenant, "NEW", "value")
    with pytest.raises(NotApplied, match="changed since"):
        apply(found)
    assert not Tool.objects.exists()


def test_all_is_done_or_nothing(planned: Any, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(f"{TOOL}\nprompts: {{a: {{messages: [{{role: user, text: hi}}]}}}}")

    def broken(_prompt: Prompt) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(authoring, "save_prompt", broken)
    with pytest.raises(OSError, match="disk full"):
        apply(found)
    assert not Tool.objects.exists()


def test_clients_hear_of_many_changes_once_and_each_is_recorded(full: Any, other_tenant: Tenant) -> None:
    version = other_tenant.catalog_version
    with changes.acting(changes.at_command_line()):
        apply(plan(other_tenant, read(export(full)), None))
    other_tenant.refresh_from_db()
    assert other_tenant.catalog_version == version + 1
    assert Change.objects.filter(tenant_id=other_tenant.pk, action="created").count() == 6


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6, allow_subnormal=False)
values = st.recursive(
    leaves | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


@example(description="\x85", title="\u2028", default="\u2029", text="\x85")
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # what is found is short as it is, and each try takes a while
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(description=texts, title=texts, default=values, text=texts)
def test_whatever_people_write_comes_back_as_it_was(
    tenant: Tenant, other_tenant: Tenant, description: str, title: str, default: Any, text: str
) -> None:
    other_tenant.refresh_from_db()
    for row in (tenant, other_tenant):
        row.tools.all().delete()
        row.resources.all().delete()
    schema = {"type": "object", "properties": {"a": {"default": default, "description": text}}}
    config = {"method": "GET", "base_url": "https://a.example"}
    authoring.save_tool(
        Tool(
            tenant=tenant,
            name="on",
            kind="http",
            title=title,
            description=description,
            input_schema=schema,
            config=config,
        )
    )
    authoring.save_resource(Resource(tenant=tenant, uri="a://b", name="no", kind="text", text=text))
    found = plan(other_tenant, read(export(tenant)), None)
    assert not found.problems
    apply(found)
    assert rows(export(Tenant.objects.get(pk=other_tenant.pk))) == rows(export(tenant))
    assert Tool.objects.get(tenant=other_tenant).input_schema == schema
    assert Resource.objects.get(tenant=other_tenant).text == text
