"""What `manage.py up` says once it listens: where the hub is, what was just made, and how to connect a client."""

from tools_app.auth import snippets
from tools_app.management.first_run import ADMIN, DEMO, Credential, FirstRun

KEY_PLACEHOLDER = "YOUR_API_KEY"
SERVER = "mcphub"


def banner(url: str, made: FirstRun, *, demo: bool) -> str:
    """Lines for a person's terminal. A secret stands in them only if it was just made."""
    parts = [_addresses(url, demo=demo), _admin(made.admin_password)]
    if demo:
        parts += [_key(made.demo_key), _connect(url, made.demo_key)]
    else:
        parts.append("API key  create a tenant and its key in the admin.")
    return "\n\n".join([*parts, "Press Ctrl-C to stop."])


def _addresses(url: str, *, demo: bool) -> str:
    tenant = f"\nTenant   {url}/t/{DEMO}/mcp" if demo else ""
    return f"mcphub is running.\n\nMCP      {url}/mcp{tenant}\nAdmin    {url}/admin/"


def _admin(password: Credential | None) -> str:
    if password is None:
        return f"Sign in  with your password. A forgotten one: python manage.py changepassword {ADMIN}"
    if not password.value:
        return f"Sign in  as {ADMIN} with the password from MCPHUB_ADMIN_PASSWORD."
    return f"Sign in  as {ADMIN} with the password {password.value}\n         It is shown this once."


def _key(key: Credential | None) -> str:
    if key is None:
        return f"API key  the one you have. A new one: python manage.py issue_key --tenant {DEMO} --name NAME"
    if not key.value:
        return "API key  the one from MCPHUB_DEMO_API_KEY."
    return f"API key  {key.value}\n         It is shown this once."


def _connect(url: str, key: Credential | None) -> str:
    shown = key.value if key and key.value else KEY_PLACEHOLDER
    line = snippets.claude_command(SERVER, f"{url}/mcp", shown)
    snippet = snippets.client_json(SERVER, f"{url}/mcp", shown)
    return f"Connect Claude Code:\n\n{line}\n\nAny other client:\n\n{snippet}"
