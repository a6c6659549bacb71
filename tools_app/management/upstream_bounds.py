"""The bounds on what tenants configure about upstreams, and on what upstreams send, for `input_bounds`."""

from collections.abc import Sequence

from tools_app.calls.background import start_task
from tools_app.core.http.client import POOL_SECONDS
from tools_app.management.bound import Bound
from tools_app.protocol.errors import OVER_LIMIT
from tools_app.upstreams import (
    client,
    connections,
    drafts,
    forwarding,
    http,
    parked_rows,
    questions,
    runs,
    service,
    sessions,
)
from tools_app.upstreams.credentials import store
from tools_app.upstreams.exchanges import tasks
from tools_app.upstreams.opening import MAX_ENVELOPE_BYTES
from tools_app.upstreams.updates import connection_updates

FAILS = "the call fails with the reason"


def upstream_bounds() -> Sequence[Bound]:
    """Return the bounds."""
    return (
        Bound("upstreams of a tenant", str(drafts.MAX_UPSTREAMS), note="rejected"),
        Bound("credential for an upstream", f"{store.MAX_VALUE_LENGTH} characters", note="rejected"),
        Bound(
            "connections of a tenant to upstreams, in a process",
            f"{connections.MAX_CONNECTIONS} upstreams with their credentials, {connections.MAX_PROCESSES} commands",
            note=FAILS,
        ),
        Bound(
            "calls of one upstream at the same time, in a process",
            f"{http.MAX_CONNECTIONS} requests; {sessions.MAX_SESSIONS} sessions,"
            f" {sessions.MAX_DUPLEX_SESSIONS} of them where each is one stream",
            note=f"they wait for {POOL_SECONDS:g} s, or {sessions.WAIT_SECONDS:g} s for a session",
        ),
        Bound(
            "list of an upstream",
            f"{client.MAX_ITEMS} items, {client.MAX_PAGES} pages, {client.MAX_LIST_BYTES} bytes",
            note="refused as a whole",
        ),
        Bound(
            "message of an upstream",
            f"`MCPHUB_MAX_RESULT_BYTES` and {MAX_ENVELOPE_BYTES} bytes; {http.MAX_STREAM_BYTES} bytes for one request",
            note=FAILS,
        ),
        Bound("notifications of an upstream's call", f"{forwarding.MAX_EVENTS}", note="further ones are dropped"),
        Bound(
            "questions of an upstream's call",
            f"{runs.MAX_OPEN_QUESTIONS} at once, {questions.MAX_QUESTION_BYTES} bytes each, "
            f"{runs.MAX_OPEN_BYTES} bytes or a quarter of `MCPHUB_MAX_BODY_BYTES` together",
            note="the upstream gets an error",
        ),
        Bound(
            "calls of upstreams that wait for answers of their clients",
            f"{parked_rows.MAX_PARKED_OF_KEY} of a key, {parked_rows.MAX_PARKED_OF_UPSTREAM} of an upstream, "
            f"{parked_rows.MAX_PARKED_OF_TENANT} of a tenant, {parked_rows.MAX_PARKED} in a process",
            note="the upstream gets an error",
        ),
        Bound(
            "upstreams of a tenant that people have listed at once",
            f"{service.MAX_DISCOVERIES}, {service.DISCOVERY_SECONDS:g} s each",
            note="a sentence that says so",
        ),
        Bound("id of a task of an upstream", f"{tasks.MAX_ID_LENGTH} characters", note=FAILS),
        Bound(
            "tasks of a caller, with those that upstreams run", f"{start_task.MAX_TASKS}", note=f"429, `{OVER_LIMIT}`"
        ),
        Bound(
            "resources of an upstream that are subscribed to",
            f"{connection_updates.MAX_URIS}",
            note="further ones are not",
        ),
    )
