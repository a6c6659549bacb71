"""Client policies and scopes in a tenant's file: preview, import, pruning, and validation as in the forms."""

from typing import Any

import pytest

from tools_app.identity.oauth import policies
from tools_app.models import ClientDecision, ClientPolicy, Tenant, TenantScope
from tools_app.tenant_config.document import InvalidConfiguration, read
from tools_app.tenant_config.export import described
from tools_app.tenant_config.plan import StepAction, plan

pytestmark = pytest.mark.django_db

FILE = """
mcphub: 1
client_policies:
  claude.ai: {decision: allow}
  "*": {decision: deny}
scopes:
  reports: {description: Reads reports, tool_patterns: ["report_*"], methods: [tools/call]}
"""


def test_a_file_decides_about_clients_and_names_scopes(applied: Any, planned: Any, tenant: Tenant) -> None:
    found = applied(FILE)
    assert found.problems == []
    assert sorted((step.doing, step.kind, step.name) for step in found.steps) == [
        (StepAction.CREATE, "client policy", "*"),
        (StepAction.CREATE, "client policy", "claude.ai"),
        (StepAction.CREATE, "scope", "reports"),
    ]
    assert dict(ClientPolicy.objects.values_list("host", "decision")) == {"*": "deny", "claude.ai": "allow"}
    scope = TenantScope.objects.get()
    assert (scope.tool_patterns, scope.methods, scope.description) == (["report_*"], ["tools/call"], "Reads reports")
    assert planned(FILE).is_empty
    exported = described(tenant)
    assert exported["client_policies"] == {"*": {"decision": "deny"}, "claude.ai": {"decision": "allow"}}
    assert exported["scopes"]["reports"]["tool_patterns"] == ["report_*"]


def test_a_change_is_previewed_with_both_sides_and_the_rest_is_kept_or_pruned(
    applied: Any, planned: Any, tenant: Tenant
) -> None:
    applied(FILE)
    text = "mcphub: 1\nclient_policies:\n  claude.ai: {decision: ask}\n"
    (step,) = planned(text).steps
    assert step.sides == ({"decision": "allow"}, {"decision": "ask"})
    assert planned(text).kept == ["client policy *"]
    found = applied(text, prune=True)
    assert {(step.doing, step.name) for step in found.steps} == {
        (StepAction.CHANGE, "claude.ai"),
        (StepAction.DELETE, "*"),
    }
    assert ClientPolicy.objects.get().decision == ClientDecision.ASK
    # The file has no section of scopes, so they stay.
    assert TenantScope.objects.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client_policies: {Claude.AI: {decision: deny}}", "client_policies.Claude.AI: Write this host as claude.ai."),
        ("client_policies: {'two words': {decision: deny}}", "Write a host such as claude.ai"),
        (
            "client_policies: {claude.ai: {decision: maybe}}",
            'client_policies.claude.ai.decision: "maybe" is not a valid choice',
        ),
        ("client_policies: {claude.ai: {}}", "client_policies.claude.ai.decision: This field is required"),
        ("scopes: {'mcp:all': {}}", "scopes.mcp:all: mcp:all is reserved"),
        ("scopes: {Reports: {}}", "scopes.Reports: Write 1 to 40 characters"),
        ("scopes: {reports: {methods: ['a b']}}", "scopes.reports.methods: Entry 1"),
    ],
)
def test_what_the_forms_refuse_is_refused_here_too(planned: Any, text: str, message: str) -> None:
    (problem,) = planned(f"mcphub: 1\n{text}\n").problems
    assert message in str(problem)


def test_a_tenant_has_so_many_of_each(tenant: Tenant, applied: Any) -> None:
    rows = "\n".join(f"  h{number}.example: {{decision: deny}}" for number in range(policies.MAX_POLICIES))
    assert not plan(tenant, read(f"mcphub: 1\nclient_policies:\n{rows}\n"), None).problems
    ClientPolicy.objects.create(tenant=tenant, host="another", decision="deny")
    (problem,) = plan(tenant, read(f"mcphub: 1\nclient_policies:\n{rows}\n"), None).problems
    assert "at most 200 client policies" in str(problem)
    for text in (f"{rows}\n  more: {{decision: deny}}", "  claude.ai: deny"):
        with pytest.raises(InvalidConfiguration, match="must be an object"):
            read(f"mcphub: 1\nclient_policies:\n{text}\n")
