"""The person for whom a tool of a Django app runs."""

from django.contrib.auth.models import User

from tools_app.catalog.tool_api.context import Caller
from tools_app.catalog.tool_api.results import ToolError
from tools_app.models import Membership

GONE = "The person for whom this tool runs has no active account, or is no member of the tenant any more."


def person_of(caller: Caller) -> User:
    """Return the person behind the caller's key or connection, as the database has them now.

    Raises ToolError if there is none, the account is inactive, or the person has left the tenant.
    """
    person = User.objects.filter(pk=caller.person_id, is_active=True).first() if caller.person_id else None
    if person is None:
        raise ToolError(GONE)
    if not person.is_superuser and not Membership.objects.filter(user=person, tenant=caller.tenant_id).exists():
        raise ToolError(GONE)
    return person
