"""The bounds of what strangers, people, companies and clients send to sign in."""

from collections.abc import Sequence

from tools_app.access import single_use
from tools_app.access.issuers import directory as scim_directory
from tools_app.access.issuers import people, provisioning
from tools_app.access.oauth import (
    attempts,
    clients,
    devices,
    hosts,
    key_sets,
    redirects,
    tenant_scopes,
    tokens,
    workloads,
)
from tools_app.api.scim import bounds as scim_bounds
from tools_app.catalog import search as tool_search
from tools_app.catalog import shaping
from tools_app.catalog.toolsets import MAX_WILDCARDS
from tools_app.core import field_mask
from tools_app.core.http import documents as http_documents
from tools_app.issuers import configuration as issued_configuration
from tools_app.issuers import direct, saml, saml_metadata, setup
from tools_app.issuers import tokens as issued
from tools_app.management.bound import Bound
from tools_app.models import directory, issuers, toolsets, validators
from tools_app.oauth import authorize, client_documents, device_page, endpoints, server
from tools_app.sign_in import company, saml_requests


def sign_in_bounds() -> Sequence[Bound]:
    """Return the bounds of signing in, with the settings of this hub."""
    return (
        Bound("parameter of an OAuth request", f"{server.MAX_PARAMETER} characters, once", 400),
        Bound("registration of a client", f"{endpoints.MAX_REGISTRATION_BYTES} bytes, {redirects.MAX_URIS} URIs", 400),
        Bound("registrations of an address", f"{endpoints.MAX_REGISTRATIONS} per minute", 429),
        Bound(
            "registered clients without a connection",
            f"{clients.MAX_UNUSED}, {clients.MAX_UNUSED_OF_NETWORK} of a network (IPv4 /24, IPv6 /48),"
            f" for {clients.UNUSED.days * 24} h",
            503,
            note=f"if all are of the last {clients.FRESH.seconds // 60} min; otherwise the network that has most"
            " loses its oldest",
        ),
        Bound(
            "clients with a metadata document and without a connection",
            f"{clients.MAX_UNUSED_DOCUMENTS}",
            note="the one that was read first is forgotten, and read again when it is needed",
        ),
        Bound("authorization requests of an address", f"{authorize.MAX_REQUESTS} per minute", 429),
        Bound("token requests of an address", f"{endpoints.MAX_TOKEN_REQUESTS} per minute", 429),
        Bound("device requests of an address", f"{endpoints.MAX_DEVICE_REQUESTS} per minute", 429),
        Bound(
            "devices that wait to sign in",
            f"{devices.MAX_OPEN}, {devices.MAX_OPEN_OF_NETWORK} of a network, for {devices.LIFETIME.seconds // 60} min",
            503,
            note="for the network; of all, the network that has most loses its oldest",
        ),
        Bound("codes of devices that a person enters", f"{device_page.MAX_ATTEMPTS} per minute", 429),
        Bound(
            "metadata document of a client",
            f"{client_documents.MAX_BYTES} bytes, {http_documents.TIMEOUT_SECONDS:g} s, one request per minute",
            note="a page that says so",
        ),
        Bound("live access tokens of a service client", f"{tokens.MAX_LIVE}", note="the oldest ends"),
        Bound(
            "public keys of a client that signs",
            f"{key_sets.MAX_KEYS}, {key_sets.MAX_KEYS_BYTES} bytes together",
            note="rejected",
        ),
        Bound("steps of sign-ins by strangers", f"{attempts.MAX_OF_STRANGERS} per minute", note="not recorded"),
        Bound("scopes that a tenant names", f"{tenant_scopes.MAX_SCOPES}", note="rejected on save"),
        Bound("toolsets of a tenant", f"{toolsets.MAX_TOOLSETS}", note="rejected on save"),
        Bound("`*` in a pattern of a toolset", f"{MAX_WILDCARDS}", note="rejected on save"),
        Bound(
            "words of a tool that a search finds it by",
            f"{tool_search.MAX_TOOL_TERMS}, and {tool_search.MAX_POSTINGS} of all tools of a tenant",
            note="further ones are not searched",
        ),
        Bound(
            "aliases of a tool",
            f"{validators.MAX_ALIASES}, each of {validators.MAX_ALIAS_LENGTH} characters",
            note="rejected on save",
        ),
        Bound(
            "field mask of a tool",
            f"{field_mask.MAX_MASK_LENGTH} characters",
            note=f"rejected on save; one of more than {field_mask.MAX_STEPS} steps is not applied",
        ),
        Bound(
            "results that wait to be shaped",
            f"{shaping.MAX_WAITING_OF_TENANT} of a tenant, {shaping.MAX_WAITING} in a process",
            note="a sentence in place of the result",
        ),
        Bound("part of a whole result", f"{shaping.MAX_PART_BYTES} bytes", note="a shorter part is sent"),
        Bound("query of a search for tools", f"{tool_search.MAX_QUERY_LENGTH} characters", note="a tool error"),
        Bound("client policies of a tenant", f"{hosts.MAX_POLICIES}", note="rejected on save"),
        Bound("issuers of a tenant", f"{setup.MAX_ISSUERS}", note="rejected on save"),
        Bound("rules of an issuer", f"{issuers.MAX_RULES}", note="rejected on save"),
        Bound("token of an issuer", f"{issued.MAX_TOKEN} characters", note="refused"),
        Bound("SAML response", f"{saml.MAX_RESPONSE} characters", note="a page that says so"),
        Bound("page that a sign-in leads to", f"{company.MAX_NEXT_BYTES} bytes", note="the first page of the admin"),
        Bound(
            "sign-ins by SAML that a browser has begun",
            f"{saml_requests.MAX_PENDING}, {saml_requests.MAX_BYTES} bytes together",
            note="the oldest ends",
        ),
        Bound(
            "used assertions of an issuer or client that are remembered", f"{single_use.MAX_REMEMBERED}", note="refused"
        ),
        Bound("SAML metadata that is read", f"{issued_configuration.MAX_BYTES} bytes", note="rejected on save"),
        Bound("SAML metadata that is pasted", f"{issuers.MAX_METADATA} characters", note="rejected on save"),
        Bound("certificates of a SAML issuer", f"{saml_metadata.MAX_CERTIFICATES}", note="rejected on save"),
        Bound("strangers' requests to `/scim/`, of an address", f"{scim_directory.MAX_FAILURES} per minute", 429),
        Bound("requests of a directory", f"{scim_bounds.MAX_REQUESTS} per second, one change at a time", 429),
        Bound("body of a directory's request to `/scim/`", f"{scim_directory.MAX_REQUEST_BYTES} bytes", 413),
        Bound("nesting of a directory's JSON", f"{scim_bounds.MAX_DEPTH} levels", 400),
        Bound("filter of a directory", f"{scim_bounds.MAX_FILTER} characters", 400),
        Bound("page of a directory's list", f"{scim_bounds.MAX_PAGE} resources", note="shortened"),
        Bound("operations of a directory's request", f"{scim_bounds.MAX_OPERATIONS}", 400),
        Bound("operations of a directory's request on a user", f"{scim_bounds.MAX_USER_OPERATIONS}", 400),
        Bound("members in a directory's page", f"{scim_bounds.MAX_PAGE_MEMBERS}", note="shortened"),
        Bound("path of a directory's operation", f"{scim_bounds.MAX_PATH} characters", 400),
        Bound("name, external ID or e-mail in a directory", f"{directory.MAX_VALUE} characters", 400),
        Bound("e-mails of a directory's user", f"{directory.MAX_EMAILS}", 400),
        Bound("attributes of a directory's user", f"{scim_bounds.MAX_RESOURCE_BYTES} bytes", 400),
        Bound("people of an issuer", f"{people.MAX_PEOPLE}", note="400 for a directory, or a page that says so"),
        Bound("groups of a directory", f"{provisioning.MAX_GROUPS}", 400),
        Bound("members of a directory's group", f"{provisioning.MAX_MEMBERS}", 400),
        Bound("workloads of an issuer", f"{workloads.MAX_WORKLOADS}", note="refused"),
        Bound("token of an issuer that is used as it is", f"{direct.MAX_TOKEN} characters", note="refused"),
        Bound("valid tokens of one subject of an issuer, used as they are", f"{tokens.MAX_SIGNED}", note="refused"),
        Bound("such tokens of a tenant that are verified at a time", f"{direct.MAX_WAITING_OF_TENANT}", note="503"),
    )
