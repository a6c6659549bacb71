"""The plan of an import, and that applying it does exactly that."""

from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tools_app.audit.changes import changes
from tools_app.catalog import authoring, prompt_functions, resource_functions
from tools_app.models import Change, Membership, Prompt, Resource, Role, Secret, Tenant, Tool, ToolRevision
from tools_app.tenant_config.document import read
from tools_app.tenant_config.export import export
from tools_app.tenant_config.plan import ApplyError, apply, plan
from tools_app.tenant_config.steps import StepAction

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
    """An export without the tenant's name."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def plan_problems(found: Any) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_what_a_tenant_exports_changes_nothing_in_it(full: Any, planned: Any) -> None:
    found = planned(export(full), prune=True)
    assert (found.steps, found.problems, found.kept, found.missing_secrets) == ([], [], [], {})
    assert found.unchanged == 6


def test_the_preview_names_the_secrets_that_a_resource_needs(planned: Any) -> None:
    request = "{base_url: 'https://a.example', headers: {X-Token: '{secret:NOPE}'}}"
    found = planned(f"mcphub: 1\nresources: {{docs://a: {{name: a, request: {request}}}}}")
    assert (found.problems, found.missing_secrets) == ([], {"NOPE": ["resource docs://a"]})


def test_another_tenant_becomes_the_same(full: Tenant, other_tenant: Tenant) -> None:
    found = plan(other_tenant, read(export(full)), None)
    assert not found.problems
    assert found.missing_secrets == {"TOKEN": ["tool find"]}
    assert found.count(StepAction.CREATE) == 6
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


def test_resources_and_prompts_of_code_are_named_by_their_function_alone(
    registries: None, tenant: Tenant, planned: Any, applied: Any
) -> None:
    resource_functions.register(lambda: "text", "docs://code", name="guide")
    prompt_functions.register(lambda: "text", name="hello")
    applied("mcphub: 1\nresources: {'docs://code': {function: 'docs://code'}}\nprompts: {hello: {function: hello}}")
    assert (tenant.resources.get().name, tenant.prompts.get().kind) == ("guide", "python")

    exported = rows(export(tenant))
    assert planned(exported).is_empty
    assert not planned(exported).problems
    applied("mcphub: 1\nresources: {'docs://code': {function: 'docs://code', enabled: false}}")
    assert not tenant.resources.get().enabled
    [problem] = plan_problems(planned("mcphub: 1\nresources: {'docs://code': {text: a}}"))
    assert problem == "resources.docs://code.name: This field is required."


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("tools: {find: {}}", "tools.find: must have exactly one of function, request"),
        ("tools: {find: {function: a, request: {}}}", "tools.find: must have exactly one of"),
        ("tools: {find: {function: 1}}", "tools.find.function: must be the name"),
        ("tools: {find: {function: echo, title: A}}", "tools.find.title: unknown field"),
        ("tools: {find: {timeout: 5, request: {base_url: 'https://a.example'}}}", "tools.find.timeout: unknown field"),
        (
            "tools: {find: {title: 2026, request: {base_url: 'https://a.example'}}}",
            "title: Not a valid string. Use quotes",
        ),
        ("resources: {'a://b': {file: text}}", "resources.a://b.file: must be base64"),
        ("prompts: {greet: {messages: hello}}", "prompts.greet.messages: must be a list"),
        ("tools: {look: {function: nowhere}}", "tools.look.function: No installed app registers 'nowhere'"),
        ("tools: {'a b': {function: echo}}", "tools.a b: Use letters, digits"),
        ("tools: {a: {request: {base_url: nope}}}", "tools.a.request.base_url: Invalid URL"),
        ("tools: {a: {request: {verb: GET}}}", "tools.a.request.verb: Unknown field"),
        ("tools: {a: {task: soon, request: {base_url: 'https://a.example'}}}", 'tools.a.task: "soon" is not'),
        ("tools: {a: {timeout_seconds: 0, request: {base_url: 'https://a.example'}}}", "tools.a.timeout_seconds:"),
        (
            "tools: {a: {input_schema: {type: thing}, request: {base_url: 'https://a.example'}}}",
            "tools.a.input_schema: arguments are an object",
        ),
        (
            "tools: {a: {input_schema: {$defs: {b: {pattern: '(?=.*x)z'}}, type: object}, request: {}}}",
            "tools.a.input_schema: $defs.b.pattern: '(?=.*x)z' uses look-around",
        ),
        ("tools: {a: {annotations: {nice: true}, request: {base_url: 'https://a.example'}}}", "is not an annotation"),
        ("tools: {a: {icons: [{src: a}], request: {base_url: 'https://a.example'}}}", "tools.a.icons: 0.src"),
        ("resources: {'a b': {name: a, text: b}}", "resources.a b: Write a URI"),
        ("resources: {'a://{b}': {name: a, text: b}}", "resources.a://{b}: URI templates are only possible"),
        ("resources: {'a://b': {text: b}}", "resources.a://b.name: This field is required"),
        ("resources: {'a://b': {name: a, mime_type: nope, text: b}}", "resources.a://b.mime_type: Enter a MIME type"),
        ("prompts: {a: {messages: []}}", "prompts.a.messages: Enter at least one message"),
        ("prompts: {a: {messages: [{role: user, text: '{b}'}]}}", "prompts.a.messages: 0.text: {b} is not an argument"),
        ("tenant: {name: ''}", "tenant.name: This field cannot be blank"),
        ("tenant: {allowed_networks: [nowhere]}", "tenant.allowed_networks: Entry 1"),
        ("tenant: {calls_per_day: -1}", "tenant.calls_per_day:"),
    ],
)
def test_what_the_admins_forms_refuse_is_refused_here_too(planned: Any, body: str, message: str) -> None:
    found = planned(f"mcphub: 1\n{body}")
    assert any(message in problem for problem in plan_problems(found)), plan_problems(found)
    with pytest.raises(ApplyError, match="The file is invalid"):
        apply(found)
    assert not Tool.objects.exists()


def test_what_only_superusers_decide_stands_in_the_way_of_others(planned: Any, tenant: Tenant) -> None:
    admin = User.objects.create_user("alice")
    Membership.objects.create(user=admin, tenant=tenant, role=Role.ADMIN)
    text = "mcphub: 1\ntenant: {name: New, is_public: true, keep_days: 1}"
    problems = plan_problems(planned(text, admin))
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
    with pytest.raises(ApplyError, match="changed since"):
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
    with changes.recording_as(changes.at_command_line()):
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
    phases=[Phase.explicit, Phase.generate],  # shrinking is slow, and the examples are short already
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


words = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=9)
resource_rows = st.fixed_dictionaries(
    {
        "name": words,
        "title": texts,
        "description": texts,
        "mime_type": st.sampled_from(["", "text/plain", "image/png"]),
        "enabled": st.booleans(),
        "annotations": st.sampled_from([{}, {"priority": 1}, {"priority": 0.5, "audience": ["user"]}]),
        "icons": st.sampled_from([[], [{"src": "https://a.example/i.png"}]]),
    }
)
contents = st.one_of(
    st.fixed_dictionaries({"kind": st.just("text"), "text": texts}),
    st.fixed_dictionaries({"kind": st.just("file"), "blob": st.binary(max_size=9)}),
    st.fixed_dictionaries(
        {
            "kind": st.just("http"),
            "timeout_seconds": st.sampled_from([1, 0.5, 30.0]),
            "config": st.sampled_from(
                [{"base_url": "https://a.example"}, {"base_url": "https://a.example", "path": "x", "query": {"a": "b"}}]
            ),
        }
    ),
)
tool_rows = st.fixed_dictionaries(
    {
        "description": texts,
        "enabled": st.booleans(),
        "output_schema": st.sampled_from([None, {}, {"type": "object"}]),
        "background": st.booleans(),
        "task": st.sampled_from(["never", "optional"]),
        "timeout_seconds": st.sampled_from([1, 60.0, 0.25]),
        "calls_per_minute": st.sampled_from([None, 0, 5]),
        "calls_in_flight": st.sampled_from([None, 0, 1]),
        "config": st.sampled_from(
            [{"base_url": "https://a.example"}, {"base_url": "https://a.example", "method": "PUT"}]
        ),
    }
)
prompt_rows = st.fixed_dictionaries(
    {
        "title": texts,
        "enabled": st.booleans(),
        "arguments": st.sampled_from([[], [{"name": "who"}], [{"name": "who", "values": ["yes", "1"]}]]),
        "messages": words.map(lambda text: [{"role": "user", "text": text.replace("{", "(")}]),
    }
)


@example(
    file={"name": "a", "kind": "file", "blob": b"x"}, tool={"config": {"base_url": "https://a.example"}}, prompt={}
)
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(file=st.builds(dict.__or__, resource_rows, contents), tool=tool_rows, prompt=prompt_rows)
@pytest.mark.slow
def test_an_export_that_is_read_in_again_is_exported_as_it_was(
    tenant: Tenant, other_tenant: Tenant, file: Any, tool: Any, prompt: Any
) -> None:
    Tenant.objects.filter(pk__in=[tenant.pk, other_tenant.pk]).update(catalog_version=1)
    for model in (Tool, Resource, Prompt):
        model.objects.all().delete()
    created = [
        Resource(tenant=tenant, uri="files://a.bin", **file),
        Tool(tenant=tenant, name="on", kind="http", input_schema={"type": "object"}, **tool),
        Prompt(tenant=tenant, name="p", kind="template", **{"messages": [{"role": "user", "text": "x"}], **prompt}),
    ]
    saved = (authoring.save_resource, authoring.save_tool, authoring.save_prompt)
    for row, save in zip(created, saved, strict=True):
        save(row)
    first = export(Tenant.objects.get(pk=tenant.pk))
    for target in (tenant, other_tenant):
        found = plan(Tenant.objects.get(pk=target.pk), read(first), None)
        assert not found.problems
        apply(found)
        assert rows(export(Tenant.objects.get(pk=target.pk))) == rows(first)
        assert plan(Tenant.objects.get(pk=target.pk), read(first), None).is_empty
