"""`manage.py add_upstream`: connect to an MCP server, show what it offers, and offer it to a tenant's clients."""

import asyncio
from argparse import REMAINDER, ArgumentParser
from ipaddress import ip_address, ip_network
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from tools_app.core.http.addresses import block_reason
from tools_app.core.http.errors import NameNotResolved
from tools_app.core.http.network import system_addresses
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.core.sanitize import sanitized
from tools_app.management.base import RecordedCommand, tenant_with
from tools_app.models import (
    CredentialKind,
    CredentialOwner,
    ItemKind,
    ItemState,
    Tenant,
    Upstream,
    UpstreamEra,
    UpstreamItem,
    UpstreamTransport,
)
from tools_app.upstreams import connections, service
from tools_app.upstreams.credentials import sign_in, store
from tools_app.upstreams.errors import LoopRefused, UpstreamFailed
from tools_app.upstreams.service import Discovery
from tools_app.upstreams.validation import upstream_faults

MAX_SHOWN = 70
HEADINGS = {
    ItemKind.TOOL: "Tools",
    ItemKind.RESOURCE: "Resources",
    ItemKind.TEMPLATE: "Resource templates",
    ItemKind.PROMPT: "Prompts",
}


class Command(RecordedCommand):
    help = "Add an upstream MCP server to a tenant, or check one that it has, and print what it offers."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--name", required=True, help="Name of the upstream in this tenant.")
        parser.add_argument("--prefix", metavar="P", help="Tools are offered as P_NAME. Default: by their own names.")
        parser.add_argument("--url", help="URL of a server that speaks Streamable HTTP.")
        parser.add_argument("--sse", action="store_true", help="The server at --url speaks HTTP+SSE (2024-11-05).")
        parser.add_argument(
            "--header",
            action="append",
            metavar="NAME: VALUE",
            help='Header of each request, such as "Authorization: Bearer {secret:NAME}".',
        )
        parser.add_argument(
            "--credentials",
            choices=CredentialOwner.values,
            help="Whose sign-in calls use, for a server that asks for one. Default: tenant.",
        )
        parser.add_argument("--era", choices=UpstreamEra.values, help="Revisions to speak. Default: detect.")
        parser.add_argument(
            "--accept", action="store_true", help="Accept all definitions, new and changed, and offer them to clients."
        )
        parser.add_argument(
            "command", nargs=REMAINDER, metavar="-- COMMAND ARG...", help="Program to run for a server on stdio."
        )

    def handle(self, *, tenant: str, name: str, accept: bool, **options: Any) -> None:
        owner = tenant_with(tenant)
        upstream, is_new = _drafted(owner, name, options)
        upstream.save()
        try:
            found = service.discover(upstream)
        except UpstreamFailed as problem:
            if not isinstance(problem, LoopRefused) and self._wants_sign_in(upstream):
                return
            if is_new:
                upstream.delete()
            saved = "" if is_new else " Its settings are saved."
            cause = f" ({sanitized(problem.cause)})" if problem.cause else ""
            raise CommandError(f"{name}: {sanitized(problem.message)}{cause}{saved}") from problem
        finally:
            connections.current.stop()
        self._print(upstream, found)
        if accept:
            self._accept(upstream, found)
        else:
            waiting = sum(map(service.is_pending, found.items))
            if waiting:
                self.stdout.write(f"{waiting} not offered to clients yet. Add --accept to accept them.")

    def _wants_sign_in(self, upstream: Upstream) -> bool:
        """Keep an upstream that asks for a sign-in, and print where an admin signs in."""
        is_oauth = upstream.credential == CredentialKind.OAUTH
        asks = is_oauth or (not upstream.credential and upstream.url and sign_in.asks_for_sign_in(upstream))
        if not asks:
            return False
        if not is_oauth:
            upstream.credential = CredentialKind.OAUTH
            upstream.save()
        place = store.credential_url(upstream.pk, store.TENANT)
        where = place if "://" in place else f"{place} on this hub"
        self.stdout.write(f"{upstream.name} asks for a sign-in. It is saved. An admin signs in at {where}")
        self.stdout.write("Then run this command again.")
        return True

    def _print(self, upstream: Upstream, found: Discovery) -> None:
        server = found.server
        title = " ".join(filter(None, (server.title or server.name, server.server_version)))
        self.stdout.write(f"{upstream.name}: {sanitized(title) or 'connected'}, revision {server.version}")
        former = service.former_names(found.items)
        for kind, heading in HEADINGS.items():
            items = found.of_kind(kind)
            if not items:
                continue
            self.stdout.write(f"{heading} ({len(items)}):")
            for item in items:
                self.stdout.write(f"  {_line(upstream, item)}")
                if item in former:
                    self.stdout.write(f"      Perhaps {sanitized(former[item])}, which is no longer listed.")
                for warning in item.warnings:
                    self.stdout.write(self.style.WARNING(f"      Warning: {sanitized(warning)}"))
        if not found.items:
            self.stdout.write("It offers nothing.")

    def _accept(self, upstream: Upstream, found: Discovery) -> None:
        good, bad = service.partition_acceptable(found.items)
        try:
            service.accept(good)
        except service.NotAcceptable as refused:
            raise CommandError(str(refused)) from refused
        for item, problem in bad.items():
            self.stderr.write(self.style.WARNING(f"Not accepted: {sanitized(item.name)}: {sanitized(problem)}"))
        total = sum(item.state == ItemState.ACCEPTED for item in upstream.items.all())
        self.stdout.write(f"Accepted {len(good)}. {total} offered to clients of {upstream.tenant.slug}.")


def _drafted(tenant: Tenant, name: str, options: dict[str, Any]) -> tuple[Upstream, bool]:
    """Return the upstream of this name with the given settings, and whether it is new. Raises CommandError."""
    upstream = tenant.upstreams.filter(name=name).first()
    is_new = upstream is None
    upstream = upstream or Upstream(tenant=tenant, name=name)
    words = list(options["command"])
    if words[:1] == ["--"]:
        words = words[1:]
    if options["url"] and words:
        raise CommandError("Give either --url or a command, not both.")
    if is_new and not options["url"] and not words:
        raise CommandError("Give --url URL, or a command after --.")
    if options["url"]:
        upstream.url, upstream.command = options["url"], []
        upstream.transport = UpstreamTransport.SSE if options["sse"] else UpstreamTransport.HTTP
        upstream.approved = {"url": upstream.url_digest, "networks": _private_networks(upstream.url)}
    elif words:
        upstream.url, upstream.command, upstream.transport = "", words, UpstreamTransport.STDIO
        # Who can run this can run any command, and reach any address.
        upstream.approved = {"command": words}
    for option, field in (("prefix", "prefix"), ("era", "era"), ("credentials", "credential_owner")):
        if options[option] is not None:
            setattr(upstream, field, options[option])
    if options["header"] is not None:
        upstream.headers = dict(map(_header, options["header"]))
    _check(upstream)
    return upstream, is_new


def _private_networks(url: str) -> list[str]:
    """Return the private addresses that a URL leads to now, as networks. An invalid URL is reported later."""
    try:
        parsed = parse_url(url)
        found = asyncio.run(system_addresses(parsed.host, parsed.port))
    except (InvalidUrl, NameNotResolved):
        return []
    return sorted({str(ip_network(address)) for address in found if block_reason(ip_address(address), ())})


def _check(upstream: Upstream) -> None:
    try:
        upstream.full_clean(exclude=["tenant"])
    except ValidationError as problem:
        raise CommandError("; ".join(problem.messages)) from problem
    if faults := upstream_faults(upstream):
        raise CommandError("; ".join(f"{field}: {' '.join(messages)}" for field, messages in faults.items()))


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CommandError(f"--header: write NAME: VALUE, not {name!r}.")
    return name.strip(), value.strip()


def _line(upstream: Upstream, item: UpstreamItem) -> str:
    """Return an item as one line: the name that clients use, its state, and the start of its description."""
    definition = item.proposed or item.accepted or {}
    named = item.kind in {ItemKind.TOOL, ItemKind.PROMPT}
    name = service.offered_name(upstream, item.name) if named else item.name
    text = " ".join(sanitized(str(definition.get("description") or "")).split())
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    state = ItemState(item.state).label.lower()
    return f"{sanitized(name)} [{state}]{f': {shown}' if shown else ''}"
