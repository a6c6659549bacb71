"""Pages to which upstreams send people, and who is told that one is done with (2025-11-25, elicitation, URL mode).

An upstream tells it in its session, under the id of the page, possibly long after the call has ended. Only the session
of the client that was sent there hears of it: on the stream of its call while that runs, then on its own stream.
"""

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final
from uuid import UUID

from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.elicitation import ElicitUrl, Question
from tools_app.core.notifications import publish
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.protocol.errors import PAGES_REQUIRED
from tools_app.protocol.versions import has_page_ids
from tools_app.upstreams.client import Message
from tools_app.upstreams.errors import ErrorResponse
from tools_app.upstreams.questions import MAX_OPEN_QUESTIONS, InvalidQuestion, question_of

COMPLETED: Final = "notifications/elicitation/complete"
# The kind of the notifications between processes about pages that are done with.
TOPIC: Final = "elicited"
MAX_ID_LENGTH: Final = 200
# Pages that one connection remembers, and for how long. The oldest are forgotten first.
MAX_PAGES: Final = 1000
PAGE_LIFETIME_SECONDS: Final = 3600.0
# Of the message of a page, where it is part of a text.
MAX_MESSAGE_LENGTH: Final = 500


class PageRecipient:
    """The client of a call, in a session of 2025-11-25. Created on the loop of the call."""

    def __init__(self, context: ToolContext, session_id: UUID) -> None:
        self.session_id = session_id
        self._context: ToolContext | None = context
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """Note that the call has ended: from now on the client hears of its pages on its own stream."""
        self._context = None

    def notify_completed(self, page_id: str) -> None:
        """Tell the client that a page is done with; called on the loop of the connections."""
        try:
            self._loop.call_soon_threadsafe(self._notify_completed, page_id)
        except RuntimeError:  # the loop of the call has ended
            publish_completed(self.session_id, page_id)

    def _notify_completed(self, page_id: str) -> None:
        if self._context is None:
            publish_completed(self.session_id, page_id)
            return
        with suppress(RecorderUnavailable):
            self._context.complete_page(page_id)


def recipient_of(context: ToolContext) -> PageRecipient | None:
    """Return the client of a call; None if its revision does not tell of pages."""
    session_id = context.caller.session_id
    return PageRecipient(context, session_id) if session_id and has_page_ids(context.protocol_version) else None


class OpenPages:
    """The pages of one connection by their ids. On the loop of the connections."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, tuple[PageRecipient | None, float]] = OrderedDict()

    def remember_question(self, request: Message, recipient: PageRecipient | None) -> None:
        """Remember the page of a question, if it is one that has an id."""
        params = request.get("params")
        if request.get("method") == "elicitation/create" and isinstance(params, dict) and params.get("mode") == "url":
            self._remember(params.get("elicitationId"), recipient)

    def remember_error(self, error: ErrorResponse, recipient: PageRecipient | None) -> None:
        """Remember the pages that a call needs before it can run."""
        for page in required_pages(error):
            self._remember(page.get("elicitationId"), recipient)

    def handle_completion(self, message: Message) -> None:
        """Take a notification of the upstream. An unknown id is ignored."""
        params = message.get("params")
        page_id = params.get("elicitationId") if isinstance(params, dict) else None
        recipient, expires_at = self._pages.pop(str(page_id), (None, 0.0))
        if recipient is not None and expires_at > monotonic():
            recipient.notify_completed(str(page_id))

    def _remember(self, page_id: Any, recipient: PageRecipient | None) -> None:
        if (
            recipient is None
            or not isinstance(page_id, str)
            or not 0 < len(page_id) <= MAX_ID_LENGTH
            or "\0" in page_id
        ):
            return
        existing, _ = self._pages.pop(page_id, (recipient, 0.0))
        # An id that was given to two sessions says nothing about either.
        is_shared = existing is None or existing.session_id != recipient.session_id
        self._pages[page_id] = (None if is_shared else recipient, monotonic() + PAGE_LIFETIME_SECONDS)
        if len(self._pages) > MAX_PAGES:
            self._pages.popitem(last=False)


def required_pages(error: ErrorResponse) -> list[dict[str, Any]]:
    """Return the pages that an error lists, if it is the one for them (2025-11-25, elicitation, §Error Handling)."""
    elicitations = error.data.get("elicitations") if isinstance(error.data, Mapping) else None
    if error.code != PAGES_REQUIRED or not isinstance(elicitations, list):
        return []
    return [page for page in elicitations if isinstance(page, dict) and page.get("mode", "url") == "url"]


def questions_of(error: ErrorResponse, scrubber: Scrubber) -> dict[str, ElicitUrl]:
    """Return the pages of an error that can be asked for, by names for the client."""
    questions: dict[str, ElicitUrl] = {}
    for page in required_pages(error)[:MAX_OPEN_QUESTIONS]:
        with suppress(InvalidQuestion):
            request = {"method": "elicitation/create", "params": {**page, "mode": "url"}}
            question = question_of(scrubber.value(request))
            if isinstance(question, ElicitUrl):
                questions[f"page-{len(questions) + 1}"] = question
    return questions


def pages_message(upstream: str, questions: Iterable[Question]) -> str:
    """Say which pages somebody must visit."""
    lines = (
        f"{question.message[:MAX_MESSAGE_LENGTH]} {question.url}"
        for question in questions
        if isinstance(question, ElicitUrl)
    )
    return f"The upstream '{upstream}' needs you to open a page first, and to call again then: {' '.join(lines)}"


def publish_completed(session_id: UUID, id: str) -> None:
    """Tell the process that has the stream of a session that a page is done with. It may be lost.

    Safe to use from any thread.
    """
    publish.notify(f"{TOPIC}:{session_id}:{base64.urlsafe_b64encode(id.encode()).decode()}")


def parse_topic(topic: str) -> tuple[str, str]:
    """Return the session and the id of the page that a notification names. Raises ValueError."""
    session_id, _, encoded = topic.partition(":")
    return session_id, base64.urlsafe_b64decode(encoded).decode()
