"""What a hub needs before its first client can connect: an admin, and a demo tenant with tools and a key."""

from dataclasses import dataclass, field

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q
from django.utils.crypto import get_random_string

from tools_app.audit import changes
from tools_app.auth import keys
from tools_app.execution import authoring
from tools_app.execution.kinds import python
from tools_app.models import ApiKey, Tenant

ADMIN = "admin"
DEMO = "demo"
DEMO_MODULE = "tools_app.mcp_tools."
PASSWORD_LENGTH = 20


@dataclass(frozen=True)
class Credential:
    """A secret that was just stored. `value` is empty when the operator chose it, who then knows it already."""

    value: str = field(default="", repr=False)


@dataclass(frozen=True)
class FirstRun:
    """What was made; None for what was there before or was not asked for."""

    admin_password: Credential | None
    demo_key: Credential | None


def prepare(*, demo: bool) -> FirstRun:
    """Make what is missing. Raises keys.WeakKey if MCPHUB_DEMO_API_KEY is too short."""
    with changes.acting(changes.at_command_line()), changes.in_turn():
        return FirstRun(admin_password=_admin(), demo_key=_demo() if demo else None)


def _admin() -> Credential | None:
    people = get_user_model().objects
    if people.filter(Q(is_superuser=True) | Q(username=ADMIN)).exists():
        return None
    chosen = settings.MCPHUB_ADMIN_PASSWORD
    password = chosen or get_random_string(PASSWORD_LENGTH)
    people.create_superuser(username=ADMIN, email="", password=password)
    return Credential("" if chosen else password)


def _demo() -> Credential | None:
    tenant, is_new = Tenant.objects.get_or_create(slug=DEMO, defaults={"name": "Demo", "allow_query_key": True})
    if is_new:
        authoring.add_code_tools(tenant, demo_tools())
    return _demo_key(tenant)


def demo_tools() -> list[str]:
    """The names of the tools that the hub brings along."""
    return [name for name, function in python.all_registered().items() if function.place.startswith(DEMO_MODULE)]


def _demo_key(tenant: Tenant) -> Credential | None:
    chosen = settings.MCPHUB_DEMO_API_KEY
    known = ApiKey.objects.filter(digest=keys.digest_of(chosen)) if chosen else tenant.api_keys.filter(name=DEMO)
    if known.exists():
        return None
    _, key = keys.issue(tenant, DEMO, key=chosen or None)
    return Credential("" if chosen else key)
