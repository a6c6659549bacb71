"""Links from each page of the admin to the documentation about it: a page and a heading of it.

A new page of the admin needs its line here. The pages of a model share the line of the model, unless they have one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest
from django.urls import reverse

from tools_app.web.documentation import pages

# The name of a page's address, and "page#heading".
LINKS: Final[Mapping[str, str]] = {
    "index": "dashboard",
    "app_list": "dashboard",
    "password_change": "people#password",
    "password_change_done": "people#password",
    "health": "dashboard",
    # --- Keys and clients -----------------------------------------------------------------------------------------
    "tools_app_apikey": "keys",
    "tools_app_apikey_add": "keys#issue-an-api-key",
    "tools_app_apikey_issued": "keys#send-an-api-key",
    "tools_app_apikey_change": "keys#restrict-an-api-key",
    "tools_app_apikey_rotate_key": "keys#rotate-an-api-key",
    "tools_app_apikey_overlap_key": "keys#rotate-an-api-key",
    "tools_app_apikey_revoke_key": "keys#revoke-an-api-key",
    "tools_app_connection": "sign-in#connections-and-policies",
    "tools_app_serviceclient": "sign-in#programs-without-a-person",
    "tools_app_clientpolicy": "sign-in#connections-and-policies",
    "tools_app_tenantscope": "sign-in#scopes-of-a-tenant",
    "tools_app_oauthclient": "sign-in#connections-and-policies",
    "tools_app_signinevent": "sign-in#records",
    "tools_app_issuer": "single-sign-on",
    "tools_app_issuer_try_token": "single-sign-on#rules",
    "tools_app_issuer_directory_token": "directory#connect",
    "tools_app_issuer_withdraw_directory": "directory#connect",
    "tools_app_issuer_directory_issued": "directory#connect",
    "connect": "connecting",
    "playground": "playground",
    # --- People ---------------------------------------------------------------------------------------------------
    "tools_app_invitation": "people#lifetime-of-a-link",
    "tools_app_invitation_add": "people#invite-a-user",
    "tools_app_invitation_link": "people#invite-a-user",
    "tools_app_membership": "people#roles",
    "tools_app_membership_invite": "people#invite-a-user",
    "tools_app_tenant": "people#tenants",
    "tools_app_tenant_import_configuration": "configuration-files",
    "tools_app_tenant_export_configuration": "configuration-files",
    "auth_user": "people#accounts",
    "auth_user_password_change": "people#password",
    "auth_user_remove_factors": "single-sign-on#second-factors",
    "tools_app_personaltoken": "api#authentication",
    # --- The catalogue --------------------------------------------------------------------------------------------
    "tools_app_tool": "writing-tools#tools-in-the-admin",
    "tools_app_tool_add": "http-tools",
    "tools_app_tool_add_http_tool": "http-tools#from-a-pasted-request",
    "tools_app_tool_add_python_tools": "writing-tools",
    "tools_app_tool_try_tool": "playground",
    "tools_app_apisource": "openapi",
    "tools_app_apisource_show_operations": "openapi#choose-operations",
    "tools_app_resource": "resources-and-prompts#resources",
    "tools_app_resource_add_python_resources": "resources-and-prompts#python-functions",
    "tools_app_prompt": "resources-and-prompts#prompts",
    "tools_app_prompt_add_python_prompts": "resources-and-prompts#python-functions",
    "tools_app_toolset": "toolsets",
    "tools_app_upstream": "upstreams",
    "tools_app_upstream_add": "upstreams#adding-one",
    "tools_app_upstream_review": "upstreams#pinned-definitions",
    "tools_app_upstream_show_health": "upstreams#health",
    "tools_app_secret": "http-tools#secrets",
    # --- Alerts ---------------------------------------------------------------------------------------------------
    "tools_app_alertrule": "alerts#kinds",
    "tools_app_alertdestination": "alerts#webhooks",
    "tools_app_alert": "alerts",
    "tools_app_alertdelivery": "alerts#retries",
    # --- Records --------------------------------------------------------------------------------------------------
    "tools_app_call": "audit#search",
    "tools_app_call_change": "audit#call-details",
    "tools_app_call_panel": "audit#call-details",
    "tools_app_call_count": "audit#search",
    "tools_app_runningcall": "audit#live-view",
    "tools_app_session": "protocol#sessions",
    "tools_app_change": "audit#change-log",
    "live_tail": "audit#live-view",
    "failures": "audit#failures",
    "searches": "toolsets#searches-without-a-call",
    "exports": "audit#export",
    "export": "audit#export",
    "evidence": "audit#tamper-evidence",
    "retention": "retention",
}
HISTORY: Final = "audit#change-log"


@dataclass(frozen=True)
class Link:
    """A link to a section of the documentation."""

    title: str
    url: str


def link_for(request: HttpRequest) -> Link | None:
    """Return the link for the page of a request. None outside of the admin."""
    match = request.resolver_match
    if match is None or match.namespace != "admin":
        return None
    address = address_of(match.url_name or "")
    return link_to(address) if address else None


def address_of(name: str) -> str | None:
    """Return "page#heading" for the name of an address in the admin."""
    if name in LINKS:
        return LINKS[name]
    if name.endswith("_history"):
        return HISTORY
    # "tools_app_tool_clone_tool" is a page of "tools_app_tool".
    models = (known for known in LINKS if name.startswith(f"{known}_"))
    longest = max(models, key=len, default=None)
    return LINKS[longest] if longest else None


def link_to(address: str) -> Link | None:
    """Return the link to "page#heading". None if no documentation is installed."""
    slug, _, anchor = address.partition("#")
    page = pages.page(slug)
    if page is None:
        return None
    heading = page.heading(anchor)
    url = reverse("docs-page", args=[slug])
    return Link(f"{page.title}: {heading.text}", f"{url}#{anchor}") if heading else Link(page.title, url)
