"""What log lines are about while a call runs: set once by whoever runs it, in the context of its own task."""

from collections.abc import Mapping
from typing import Any

from tools_app.execution.invocation import Invocation
from tools_app.models import RunningCall
from tools_app.telemetry.about import about


def speak_of(invocation: Invocation) -> None:
    """From here on, what this task logs is about this call."""
    session = invocation.session
    about.set(
        (
            invocation.method,
            invocation.request_id,
            invocation.principal.tenant_slug,
            session.id if session is not None else None,
            invocation.call_id,
            invocation.trace_id,
            invocation.arguments,
        )
    )


def speak_of_row(row: RunningCall, tenant_slug: str, arguments: Mapping[str, Any]) -> None:
    """The same of a call that stands as a row."""
    about.set((row.method, row.request_id, tenant_slug, row.session_id, row.pk, row.trace_id, arguments))
