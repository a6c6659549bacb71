"""Making a tenant what a file says: all of a plan, or nothing."""

from django.contrib.auth.models import User

from tools_app.blueprints.planning import Doing, Plan, Step, fingerprint
from tools_app.execution import authoring
from tools_app.models import Prompt, Resource, Tenant, Tool


class NotApplied(Exception):
    """Nothing was changed: why, in words for whoever wanted it."""


def apply(plan: Plan, by: User | None = None) -> None:
    """Do what the plan says, in one transaction. Raises NotApplied."""
    if plan.problems:
        raise NotApplied("There are problems in the file. Mend them first.")
    with authoring.one_touch():
        # It is our turn, so nobody else changes anything. The tenant's own row is not locked, and is written last: new
        # sessions of the tenant refer to it.
        tenant = Tenant.objects.filter(pk=plan.tenant.pk).first()
        if tenant is None or fingerprint(tenant) != plan.fingerprint:
            raise NotApplied("The tenant was changed since this was looked at. Look at it again, and then apply it.")
        for step in sorted(plan.steps, key=lambda step: step.row is None):
            _take(step, tenant, by)


def _take(step: Step, tenant: Tenant, by: User | None) -> None:
    row = step.row
    if row is None:
        _write_settings(step, tenant)
    elif step.doing == Doing.DELETE:
        authoring.delete(row)
    elif isinstance(row, Tool):
        authoring.save_tool(row, by)
    elif isinstance(row, Resource):
        authoring.save_resource(row)
    elif isinstance(row, Prompt):
        authoring.save_prompt(row)


def _write_settings(step: Step, tenant: Tenant) -> None:
    after = dict(step.after or {})
    for name, value in after.items():
        setattr(tenant, name, value)
    tenant.save(update_fields=list(after))
