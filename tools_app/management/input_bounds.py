"""The table of bounds on untrusted input, for the section "Bounds" in `docs/security.md`.

A new bound needs a row here, an updated page (`python manage.py input_bounds`), and a probe in
`tests/wire/test_bounds.py`, which sends input just within and just beyond each bound.
"""

from collections.abc import Sequence
from typing import Final

from django.conf import settings

from tools_app.access import sessions
from tools_app.admin.catalog import tool_forms
from tools_app.admin.people import tenant_config
from tools_app.alerts import delivery, destinations, evaluation
from tools_app.api.v1.base import paging
from tools_app.catalog import skills, trials, uri_templates
from tools_app.catalog.kinds import curl, http_request, operation_styles
from tools_app.catalog.openapi import arguments, bundle, operations, schemas, selection
from tools_app.catalog.openapi import reader as openapi_reader
from tools_app.catalog.sources import documents
from tools_app.catalog.sources import settings as source_settings
from tools_app.catalog.validation import resources, sizes
from tools_app.core import request_memory
from tools_app.documentation import search
from tools_app.management.bound import Bound, of_setting
from tools_app.management.sign_in_bounds import sign_in_bounds
from tools_app.management.upstream_bounds import upstream_bounds
from tools_app.models import validators, versioned
from tools_app.protocol import jsonrpc, schema, schema_bounds
from tools_app.protocol.close_codes import TOO_MANY
from tools_app.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, NOT_PERMITTED, OVER_LIMIT, PARSE_ERROR
from tools_app.runtime import api_sources
from tools_app.server.boundary import IDLE_SECONDS
from tools_app.tenant_config import reader
from tools_app.transport import legacy_sse, page_guard, request_head, sse_mailbox, state
from tools_app.transport.stranger_queue import PAGES, STRANGERS

WAITING: Final = f"429, `{OVER_LIMIT}`, `Retry-After`"
HEADER: Final = ("Input", "Bound", "Beyond it")


def table() -> Sequence[Bound]:
    """Return all bounds, with the settings of this hub."""
    return (*_http(), *_messages(), *_catalog(), *upstream_bounds(), *sign_in_bounds())


def _http() -> Sequence[Bound]:
    closes = "the connection closes if more than 64 KiB are unread"
    seconds = (
        f"{request_memory.BODY_SECONDS:g} s and 1 s for each {request_memory.BYTES_PER_SECOND // 1024} KiB allowed"
    )
    return (
        Bound("headers of a request", f"{request_head.MAX_HEADERS}, {request_head.MAX_HEADER_BYTES} bytes", 431),
        Bound("path of a request", f"{request_head.MAX_PATH_BYTES} bytes, no U+0000", 414, note="400 for U+0000"),
        Bound("query of a request", f"{request_head.MAX_QUERY_BYTES} bytes, no U+0000", 414, note="400 for U+0000"),
        Bound("`Host` of a request", "one", 400),
        Bound("body without a valid API key, to `/mcp`", "not read", 401, NOT_PERMITTED, note=closes),
        Bound("body of a request to `/mcp`", of_setting("MCPHUB_MAX_BODY_BYTES", "bytes"), 413, INVALID_REQUEST),
        Bound("body without a login, to any other path", f"{page_guard.MAX_FORM_BYTES} bytes", 413, note=closes),
        Bound("body of a user's upload to `/admin/`", f"{page_guard.MAX_UPLOAD_BYTES} bytes", 413),
        Bound("body of a user's request to `/api/`", of_setting("MCPHUB_MAX_BODY_BYTES", "bytes"), 413),
        Bound("time to receive a body", seconds, 408),
        Bound("pause within a body", f"{IDLE_SECONDS:g} s", 408, note="Daphne: the connection closes after 60 s"),
        Bound("time in which a client reads nothing of what it is sent", f"{IDLE_SECONDS:g} s", note="it is cut off"),
        Bound(
            "bodies above 64 KiB that a tenant sends at once",
            _together(request_memory.BODIES, request_memory.BODIES_IN_ALL, "MCPHUB_MAX_BODY_BYTES"),
            429,
            OVER_LIMIT,
            note=f"`Retry-After`, after {request_memory.WAIT_SECONDS:g} s; a WebSocket closes with {TOO_MANY}",
        ),
        Bound(
            "answers above 64 KiB to a tenant, until they are read",
            _together(request_memory.RESULTS, request_memory.RESULTS_IN_ALL, "MCPHUB_MAX_RESULT_BYTES"),
            note=f"the call fails with the reason, other requests with 429, after {request_memory.WAIT_SECONDS:g} s",
        ),
        Bound("queued requests of a tenant", f"{state.MAX_WAITING}", note=WAITING),
        Bound("queued requests without a known API key", f"{STRANGERS.max_waiting}", note=WAITING),
        Bound("queued requests for pages", f"{PAGES.max_waiting}", note="503, `Retry-After`"),
        Bound(
            "message over a WebSocket", of_setting("MCPHUB_MAX_BODY_BYTES", "bytes"), note="closes with 4413 or 1009"
        ),
    )


def _messages() -> Sequence[Bound]:
    return (
        Bound("nesting of JSON", f"{jsonrpc.MAX_DEPTH} levels", 400, PARSE_ERROR),
        Bound("objects and lists in a message", f"{jsonrpc.MAX_CONTAINERS}", 400, PARSE_ERROR),
        Bound("batch (2025-03-26)", f"{jsonrpc.MAX_BATCH} messages", 400, INVALID_REQUEST),
        Bound("`id` of a request", f"{jsonrpc.MAX_ID_BYTES} bytes of JSON, 64 bits", 400, INVALID_REQUEST),
        Bound("`method`", f"{jsonrpc.MAX_METHOD_LENGTH} characters", 400, INVALID_REQUEST),
        Bound("`_meta` of a request", f"{jsonrpc.MAX_META_BYTES} bytes of JSON", 400, INVALID_PARAMS),
        Bound("`progressToken`", f"{jsonrpc.MAX_PROGRESS_TOKEN_BYTES} bytes of JSON", 400, INVALID_PARAMS),
        Bound("`protocolVersion`", f"{jsonrpc.MAX_VERSION_LENGTH} characters", 400, INVALID_PARAMS),
        Bound(
            "capabilities of a client",
            f"{jsonrpc.MAX_CAPABILITIES_BYTES} bytes of JSON, {jsonrpc.MAX_CAPABILITIES_DEPTH} levels,"
            f" {jsonrpc.MAX_CAPABILITIES_KEYS} keys",
            400,
            INVALID_PARAMS,
        ),
        Bound(
            "name and version of a client",
            f"{jsonrpc.MAX_CLIENT_NAME_LENGTH} and {jsonrpc.MAX_CLIENT_VERSION_LENGTH} characters",
            note="truncated",
        ),
        Bound(
            "arguments of a tool call, prompt or resource read",
            of_setting("MCPHUB_MAX_ARGUMENT_BYTES", "bytes"),
            200,
            INVALID_PARAMS,
        ),
        Bound("URI of a subscription", f"{jsonrpc.MAX_URI_LENGTH} characters, no U+0000", 400, INVALID_PARAMS),
        Bound("subscriptions of a session", f"{sessions.MAX_SUBSCRIPTIONS}", 200, OVER_LIMIT),
        Bound(
            "URIs of all subscriptions of a session",
            f"{sessions.MAX_SUBSCRIBED_LENGTH} characters together",
            200,
            OVER_LIMIT,
        ),
        Bound(
            "answer to a request for input (elicitation, sampling, roots)",
            f"{jsonrpc.MAX_ANSWER_BYTES} bytes of JSON",
            400,
            INVALID_PARAMS,
            note="the call receives an error",
        ),
        Bound(
            "answers of one request (2026-07-28)",
            f"{jsonrpc.MAX_ANSWERS}, with names of {jsonrpc.MAX_ANSWER_NAME_LENGTH} characters",
            400,
            INVALID_PARAMS,
        ),
        Bound(
            "name, value and reference of a completion",
            f"{jsonrpc.MAX_COMPLETED_LENGTH} characters each, no U+0000",
            400,
            INVALID_PARAMS,
        ),
        Bound(
            "queued messages of an HTTP+SSE stream",
            f"{legacy_sse.MAX_WAITING_BYTES} bytes in its process, {sse_mailbox.MAX_BYTES} from other processes",
            429,
            OVER_LIMIT,
            note="`Retry-After`",
        ),
        Bound(
            "arguments repeated by a prompt",
            of_setting("MCPHUB_MAX_RESULT_BYTES", "characters"),
            note="the call fails with the reason",
        ),
        Bound(
            "arguments repeated by the request of an HTTP tool",
            f"{http_request.MAX_REPEATED} characters",
            note="the call fails with the reason",
        ),
        Bound(
            "query or form of an operation of an API source",
            f"{operation_styles.MAX_PAIRS} parameters, {operation_styles.MAX_CHARACTERS} characters,"
            f" {operation_styles.MAX_DEPTH} levels",
            note="the call fails with the reason",
        ),
        Bound("URIs of one `subscriptions/listen`", f"{sessions.MAX_SUBSCRIPTIONS}", 400, INVALID_PARAMS),
    )


def _catalog() -> Sequence[Bound]:
    """Return the bounds of what admins write, in the web admin, by REST or in a file."""
    return (
        Bound(
            "tenant configuration file (YAML)",
            f"{reader.MAX_BYTES} bytes, no aliases",
            note="rejected, with the line",
        ),
        Bound("tenant configuration file (YAML), in the admin", f"{tenant_config.MAX_BYTES} bytes", note="rejected"),
        Bound(
            "tools, resources, prompts or secrets of a tenant",
            f"{versioned.MAX_ROWS} of each",
            note="rejected, as is a file with more",
        ),
        Bound(
            "fields of a form in the admin",
            f"{settings.DATA_UPLOAD_MAX_NUMBER_FIELDS}, {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes without files",
            400,
        ),
        Bound(
            "page of a list (REST)",
            f"{paging.MOST} rows, {paging.MAX_PAGE_BYTES} bytes, at least one row",
            note="`next` continues the list",
        ),
        Bound(
            "text of a REST field or a form",
            "a length for each field, `maxLength` in the OpenAPI document",
            note="rejected, with the field",
        ),
        Bound(
            "JSON of a REST field or a form",
            f"{sizes.MAX_JSON_BYTES} bytes of JSON",
            note="rejected, with the field",
        ),
        Bound(
            "description of a tool, a resource or a prompt",
            f"{sizes.MAX_DESCRIPTION_LENGTH} characters",
            note="rejected on save",
        ),
        Bound(
            "list of networks, patterns or names of keys",
            f"{validators.MAX_ENTRIES} entries of {validators.MAX_ENTRY_LENGTH} characters",
            note="rejected on save",
        ),
        Bound(
            "list of permitted names",
            f"{validators.MAX_ENTRIES} entries, and up to {validators.MAX_EXACT} with those for exactly one item,"
            f" of {validators.MAX_ENTRY_LENGTH} characters",
            note="rejected on save",
        ),
        Bound("value of a secret", f"{sizes.MAX_SECRET_LENGTH} characters", note="rejected on save"),
        Bound("files of a skill", f"{skills.MAX_FILES}, {skills.MAX_BYTES} bytes", note="not served as a skill"),
        Bound("file of a resource", f"{resources.MAX_BYTES} bytes", note="rejected on save"),
        Bound("text of a resource", f"{resources.MAX_CHARACTERS} characters", note="rejected on save"),
        Bound(
            "frontmatter of a SKILL.md",
            f"{skills.MAX_FRONTMATTER} characters, no aliases",
            note="rejected on save",
        ),
        Bound(
            "URI template of a resource",
            f"{uri_templates.MAX_TEMPLATE_LENGTH} characters, {uri_templates.MAX_VARIABLES} variables",
            note="rejected on save",
        ),
        Bound(
            "regular expressions in a schema",
            f"{schema_bounds.MAX_PATTERN_LENGTH} characters and {schema_bounds.MAX_PATTERN_BYTES} bytes compiled;"
            f" {schema_bounds.MAX_PATTERNS} and {schema_bounds.MAX_PATTERNS_BYTES} bytes in one schema",
            note="rejected on save",
        ),
        Bound(
            "time to validate a value against a schema",
            f"about {schema.MAX_NS // 1_000_000} milliseconds",
            note="rejected as invalid",
        ),
        Bound(
            "pasted cURL command or URL",
            f"{curl.MAX_PASTE_LENGTH} characters, {curl.MAX_WORDS} words",
            note="rejected",
        ),
        Bound(
            "arguments of a trial of an HTTP tool",
            f"{tool_forms.MAX_TRIAL_ARGUMENT_BYTES} bytes of JSON",
            note="rejected, with the field",
        ),
        Bound(
            "trials of HTTP tools of a tenant",
            f"{trials.MAX_TRIALS_PER_MINUTE} per minute, {trials.MAX_TRIALS_AT_ONCE} at once,"
            f" {trials.MAX_TRIAL_SECONDS:g} s each",
            note="rejected, with the time to retry",
        ),
        Bound(
            "patterns of the selected operations of an API source",
            f"{selection.MAX_PATTERNS} of {selection.MAX_PATTERN} characters",
            note="rejected",
        ),
        Bound(
            "OpenAPI document",
            f"{openapi_reader.MAX_BYTES} bytes, {openapi_reader.MAX_DEPTH} levels, {openapi_reader.MAX_VALUES} values,"
            f" {openapi_reader.MAX_ALIASES} aliases, {operations.MAX_OPERATIONS} selected operations,"
            f" {documents.FETCH_TIMEOUT_SECONDS:g} s to fetch with what it refers to,"
            f" {documents.IDLE_SECONDS:g} s of silence",
            note="not read, with the reason",
        ),
        Bound(
            "documents that an OpenAPI document refers to",
            f"{bundle.MAX_DOCUMENTS}, {openapi_reader.MAX_BYTES} bytes and {openapi_reader.MAX_VALUES} values together",
            note="the operations that need a further one are skipped, with the reason",
        ),
        Bound(
            "operation of an OpenAPI document",
            f"{operations.MAX_DEFINITION_BYTES} bytes of JSON, {arguments.MAX_PARTS} parameters,"
            f" {arguments.MAX_PARTS} properties of its body as arguments,"
            f" {schemas.MAX_SCHEMA_DEPTH} levels of a schema",
            note="skipped, with the reason",
        ),
        Bound(
            "documents that are read at once",
            f"1 of a tenant, {api_sources.MAX_CONCURRENT} in a worker process",
            note="further ones wait",
        ),
        Bound("API sources of a tenant", f"{source_settings.MAX_SOURCES}", note="rejected on save"),
        Bound(
            "alert rules and destinations of a tenant",
            f"{destinations.MAX_RULES} and {destinations.MAX_DESTINATIONS}",
            note="rejected on save",
        ),
        Bound(
            "test messages of alerts of a tenant",
            f"{evaluation.MAX_TESTS_PER_MINUTE} per minute",
            note="not sent, REST: 429",
        ),
        Bound(
            "emails about alerts of a tenant",
            f"{delivery.MAX_EMAILS_PER_HOUR} per hour",
            note="not sent; the log of deliveries says so",
        ),
        Bound(
            "response of a webhook",
            f"{delivery.MAX_RESPONSE_BYTES} bytes, {delivery.TIMEOUT_SECONDS:g} s",
            note="the delivery fails, and is tried again",
        ),
        Bound("search in the documentation", f"{search.MAX_QUERY_LENGTH} characters", note="truncated"),
        Bound("response that a trial shows", f"{trials.MAX_SHOWN_CHARACTERS} characters", note="truncated"),
    )


def markdown() -> str:
    """Return the table in the format of `docs/security.md`."""
    rows = [HEADER, ("---",) * len(HEADER), *((row.input, row.limit, row.answer) for row in table())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _together(of_tenant: int, in_all: int, name: str) -> str:
    """Return bounds that are multiples of a setting."""
    one: int = getattr(settings, name)
    return f"{of_tenant * one} bytes ({of_tenant} times `{name}`), {in_all * one} of all tenants in a process"
