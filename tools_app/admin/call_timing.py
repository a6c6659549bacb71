"""Where the time of a call went: before it ran, while it ran, and until it was recorded."""

from dataclasses import dataclass

from tools_app.admin.call_facts import duration_text
from tools_app.models import Call


@dataclass(frozen=True)
class Span:
    """A part of a call's time. `kind` is what the page colours it by."""

    kind: str
    label: str
    microseconds: int

    @property
    def text(self) -> str:
        """How long it took, in words."""
        return duration_text(self.microseconds)


def spans_of(call: Call) -> list[Span]:
    """The parts of a call's time, in their order. What was not measured is left out."""
    waited = call.waited_us
    if waited is None:
        # It never ran, or its record is older than the measure.
        spans = [Span("whole", "From its arrival to its end", call.duration_us)]
    else:
        run = max(0, call.duration_us - waited)
        spans = [Span("queue", "Queue: until it ran", waited), Span("run", "Run", run)]
    if call.recorded_us is not None:
        spans.append(Span("record", "Record: until its record was written", call.recorded_us))
    return spans
