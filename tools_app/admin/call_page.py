"""The page of one settled call: all that is known of it."""

from django.utils.safestring import SafeString

from tools_app.admin.call_facts import CallFactsAdmin, duration_text, indented, moment_text
from tools_app.admin.decorators import column
from tools_app.admin.scoped import badge, related, text_block
from tools_app.models import Call, CallPayload, Outcome
from tools_app.models.packing import NotPacked

OUTCOME_COLOURS = {
    Outcome.OK: "success",
    Outcome.TOOL_ERROR: "danger",
    Outcome.REJECTED: "warning",
    Outcome.DENIED: "danger",
    Outcome.CANCELLED: "info",
    Outcome.TIMEOUT: "warning",
    Outcome.LOST: "danger",
    Outcome.INTERRUPTED: "warning",
    Outcome.INPUT_REQUIRED: "primary",
}


class CallPage(CallFactsAdmin):
    """What the page of a call says."""

    fieldsets = (
        (None, {"fields": ("called", "outcome_label", "cause_text")}),
        ("Exchange", {"fields": ("arguments", "events", "result")}),
        (
            "Who",
            {"fields": ("tenant_link", "key_link", "session_link", "client", "remote_address", "protocol_version")},
        ),
        (
            "What",
            {
                "fields": (
                    "id",
                    "method",
                    "offer_link",
                    "revision",
                    "request_id",
                    "trace_id",
                    "background",
                    "repeated",
                    "writer",
                )
            },
        ),
        ("Answer", {"fields": ("http_status", "rpc_error", "is_error")}),
        ("Timing", {"fields": ("started", "finished", "took")}),
    )

    @column("outcome", ordering="outcome")
    def outcome_label(self, call: Call) -> SafeString:
        return badge(call.get_outcome_display(), OUTCOME_COLOURS[Outcome(call.outcome)])

    @column("duration", ordering="duration_us")
    def took(self, call: Call) -> str:
        return duration_text(call.duration_us)

    @column("finished")
    def finished(self, call: Call) -> str:
        return moment_text(call.finished_at)

    @column("cause")
    def cause_text(self, call: Call) -> SafeString | str:
        return text_block(call.cause) if call.cause else "-"

    @column("arguments")
    def arguments(self, call: Call) -> SafeString | str:
        return _payload(call, "arguments", call.arguments_size)

    @column("result")
    def result(self, call: Call) -> SafeString | str:
        return _payload(call, "result", call.result_size)


def _payload(call: Call, part: str, size: int) -> SafeString | str:
    payload: CallPayload | None = related(call, "payload")
    try:
        text = getattr(payload.texts(), part) if payload else ""
    except NotPacked as problem:
        return f"Not readable: {problem}."
    if text:
        return text_block(indented(text))
    return f"Not kept ({size} bytes)." if size else "-"
