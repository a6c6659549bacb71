"""What anybody gets of a tenant that is open to everybody, by name."""

from tools_app.auth.principal import matches
from tools_app.models import Prompt, Resource, Tenant, Tool

MOST_NAMES = 50


def public_names(tenant: Tenant) -> list[str]:
    """The tools, resources and prompts, switched on now, that the tenant's patterns name."""
    names = [
        name
        for model, field in ((Tool, "name"), (Resource, "uri"), (Prompt, "name"))
        for name in model._default_manager.filter(tenant=tenant, enabled=True)
        .order_by(field)
        .values_list(field, flat=True)
    ]
    return [name for name in names if matches(name, tenant.public_tools)]


def described(tenant: Tenant) -> str:
    """Those names in one line."""
    names = public_names(tenant)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more if names else "nothing"
