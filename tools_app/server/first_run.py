"""The first run of a hub: creates an admin and a demo tenant with tools and an API key, and shows them in a banner."""

from dataclasses import dataclass, field

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q
from django.utils.crypto import get_random_string

from tools_app.audit.changes import changes
from tools_app.catalog import authoring
from tools_app.catalog.kinds.python import runner as python
from tools_app.models import ApiKey, Tenant
from tools_app.tenants import keys
from tools_app.tenants.snippets import clients

ADMIN_USERNAME = "admin"
DEMO_SLUG = "demo"
DEMO_MODULE = "tools_app.mcp_tools."
PASSWORD_LENGTH = 20
KEY_PLACEHOLDER = "YOUR_API_KEY"
SERVER_NAME = "mcphub"
STOP = "Press Ctrl-C to stop."


@dataclass(frozen=True)
class Credential:
    """A secret that was just stored. `value` is empty if the operator chose it."""

    value: str = field(default="", repr=False)


@dataclass(frozen=True)
class FirstRun:
    """The created objects; None for what existed before or was not requested."""

    admin_password: Credential | None
    demo_key: Credential | None


def prepare(*, demo: bool) -> FirstRun:
    """Create what is missing. Raises keys.WeakKey if MCPHUB_DEMO_API_KEY is too short."""
    with changes.recording_as(changes.at_command_line()), changes.change_log_transaction():
        return FirstRun(admin_password=_admin(), demo_key=_demo() if demo else None)


def _admin() -> Credential | None:
    people = get_user_model().objects
    if people.filter(Q(is_superuser=True) | Q(username=ADMIN_USERNAME)).exists():
        return None
    chosen = settings.MCPHUB_ADMIN_PASSWORD
    password = chosen or get_random_string(PASSWORD_LENGTH)
    people.create_superuser(username=ADMIN_USERNAME, email="", password=password)
    return Credential("" if chosen else password)


def demo_tools() -> list[str]:
    """Return the names of the hub's demo tools."""
    return [name for name, function in python.all_registered().items() if function.place.startswith(DEMO_MODULE)]


def _demo() -> Credential | None:
    """Create the demo tenant and its key."""
    tenant, is_new = Tenant.objects.get_or_create(slug=DEMO_SLUG, defaults={"name": "Demo", "allow_query_key": True})
    if is_new:
        authoring.add_code_tools(tenant, demo_tools())
    chosen = settings.MCPHUB_DEMO_API_KEY
    existing = (
        ApiKey.objects.filter(digest=keys.digest_of(chosen)) if chosen else tenant.api_keys.filter(name=DEMO_SLUG)
    )
    if existing.exists():
        return None
    _, key = keys.issue(tenant, DEMO_SLUG, key=chosen or None)
    return Credential("" if chosen else key)


def banner(url: str, first_run: FirstRun, *, demo: bool) -> str:
    """Return the banner for a terminal. It contains secrets only if they were just created."""
    tenant = f"\nTenant   {url}/t/{DEMO_SLUG}/mcp" if demo else ""
    parts = [f"mcphub is running.\n\nMCP      {url}/mcp{tenant}\nAdmin    {url}/admin/"]
    password, key = first_run.admin_password, first_run.demo_key
    if password is None:
        parts.append(
            f"Sign in  as {ADMIN_USERNAME} with your password. "
            f"To reset it: python manage.py changepassword {ADMIN_USERNAME}"
        )
    elif not password.value:
        parts.append(f"Sign in  as {ADMIN_USERNAME} with the password from MCPHUB_ADMIN_PASSWORD.")
    else:
        parts.append(
            f"Sign in  as {ADMIN_USERNAME} with the password {password.value}\n         It is shown only once."
        )
    if not demo:
        return "\n\n".join([*parts, "API key  create a tenant and an API key in the admin.", STOP])
    if key is None:
        parts.append(
            "API key  your existing key. To issue another one: "
            f"python manage.py issue_key --tenant {DEMO_SLUG} --name NAME"
        )
    elif not key.value:
        parts.append("API key  the one from MCPHUB_DEMO_API_KEY.")
    else:
        parts.append(f"API key  {key.value}\n         It is shown only once.")
    key_text = key.value if key and key.value else KEY_PLACEHOLDER
    alone = f"Connect a client with the URL alone: {url}/mcp"
    return "\n\n".join(
        [
            *parts,
            f"{alone}\nIt opens your browser, where you sign in as {ADMIN_USERNAME}.",
            "Connect Claude Code with the key:",
            clients.claude_command(SERVER_NAME, f"{url}/mcp", key_text),
            "Any other client:",
            clients.client_json(SERVER_NAME, f"{url}/mcp", key_text),
            STOP,
        ]
    )
