"""How a running function gets answers from its client: one way for each era, behind one interface.

In the handshake era a question goes out on the call's own stream and the function waits. In the modern era a question
without an answer ends the run; the client answers by asking again, and the function runs anew with what it was told.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from tools_app.execution.context import Emit
from tools_app.execution.inputs import Silence, result_of
from tools_app.execution.questions import BadAnswer, Question, as_request
from tools_app.execution.results import InputRequired

Wait = Callable[[str], Awaitable[Mapping[str, Any]]]


class Unanswered(BaseException):
    """Ends a run whose questions have no answers yet. Functions that catch every Exception must not catch it."""

    def __init__(self, requests: dict[str, Any]) -> None:
        super().__init__(", ".join(requests))
        self.requests = requests


class Conversation(Protocol):
    """What a context asks through. `state` is what the function finds again in a later round."""

    state: dict[str, Any]

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """The answers by the names of their questions."""

    def unfinished(self, unanswered: Unanswered) -> InputRequired:
        """How a run ended that has to be run again."""


class Rounds:
    """The modern era (2026-07-28, multi round-trip requests): `answers` are what the client brought so far."""

    def __init__(self, answers: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self.state = dict(state)
        self._answers = dict(answers)

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Answers that fit their questions. Raises Unanswered for the others, which are then asked."""
        read: dict[str, Any] = {}
        for name, question in questions.items():
            try:
                read[name] = question.read(self._answers[name])
            except (KeyError, BadAnswer):
                self._answers.pop(name, None)
        missing = {name: as_request(question) for name, question in questions.items() if name not in read}
        if missing:
            raise Unanswered(missing)
        return read

    def unfinished(self, unanswered: Unanswered) -> InputRequired:
        """How a run ended that has to be run again."""
        return InputRequired(unanswered.requests, self._answers, self.state)


class OnStream:
    """The handshake era: `emit` sends a request once it is durable, `wait` gives the client's response to it."""

    def __init__(self, emit: Emit, wait: Wait) -> None:
        self.state: dict[str, Any] = {}
        self._emit = emit
        self._wait = wait
        self._used: set[str] = set()

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """The answers. Raises BadAnswer, and Refused when the client answered with an error or not at all.

        What nobody waits for any more is withdrawn (lifecycle, §Timeouts).
        """
        asked = {name: self._unused(name) for name in questions}
        for name, question in questions.items():
            self._emit("request", {"name": asked[name], **as_request(question)})
        waiting = dict(asked)
        read: dict[str, Any] = {}
        try:
            for name, question in questions.items():
                response = await self._wait(asked[name])
                del waiting[name]
                read[name] = question.read(result_of(response))
        except BaseException as problem:
            self._withdraw(waiting.values(), "no answer in time" if isinstance(problem, Silence) else "not needed")
            raise
        return read

    def _unused(self, name: str) -> str:
        """A name of this call's own for a question: no two requests have one id (base protocol, §Requests)."""
        unused, count = name, 1
        while unused in self._used:
            count += 1
            unused = f"{name}-{count}"
        self._used.add(unused)
        return unused

    def _withdraw(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            self._emit("withdrawal", {"name": name, "reason": reason})

    def unfinished(self, unanswered: Unanswered) -> InputRequired:
        """Never: in this era a function waits."""
        raise AssertionError from unanswered
