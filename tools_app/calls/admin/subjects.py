"""Facts and links shown for finished and running calls alike: caller, tool and related objects."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.safestring import SafeString

from tools_app.calls.admin.columns import CallFactsAdmin


@dataclass(frozen=True)
class Fact:
    """A labelled fact of a call. `copy`: shown with a copy button."""

    label: str
    value: SafeString | str
    copy: bool = False


@dataclass(frozen=True)
class Link:
    """A link to related calls or to the evidence page."""

    label: str
    url: str


def facts_about(admin: CallFactsAdmin, call: Any) -> list[Fact]:
    """Return the facts of a call that are known from its start."""
    return [
        Fact("Tenant", admin.tenant_link(call)),
        Fact("Key", admin.key_link(call)),
        *([Fact("Acted for", call.person_name)] if call.person_name else []),
        Fact("Session", admin.session_link(call)),
        Fact("Client", admin.client(call)),
        Fact("Remote address", call.remote_address or "-"),
        Fact("Method", call.method or "-"),
        Fact("Definition", admin.offer_link(call)),
        Fact("Protocol version", call.protocol_version or "-"),
        Fact("Ran", "in a worker" if call.background else "in the web process"),
        Fact("Call ID", str(call.pk), copy=True),
        Fact("Request ID", call.request_id or "-", copy=bool(call.request_id)),
        Fact("Trace ID", call.trace_id or "-", copy=bool(call.trace_id)),
    ]


def links_of(call: Any) -> list[Link]:
    """Return the links from a call to related objects."""
    links = []
    if call.session_id:
        links.append(_calls("Calls of the same session", session=call.session_id))
    if call.trace_id:
        links.append(_calls("Calls of the same trace", trace=call.trace_id))
    if call.tool_name:
        links.append(_calls(f"Calls of {call.tool_name}", tool=call.tool_name))
    if call.tenant_id:
        links.append(Link("Evidence for this tenant", _address("evidence", tenant=call.tenant_id)))
    return links


def _calls(label: str, **query: Any) -> Link:
    return Link(label, _address("tools_app_call_changelist", **query))


def _address(page: str, **query: Any) -> str:
    return f"{reverse(f'admin:{page}')}?{urlencode(query)}"
