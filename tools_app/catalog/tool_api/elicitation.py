"""Questions of functions to the client: forms, URLs, sampling and roots.

A question defines its request on the wire, the required client capability, and what a valid answer is.
"""

import logging
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import msgspec

from tools_app.audit.recorder.redaction import is_secret
from tools_app.catalog.tool_api.results import InputRequired
from tools_app.core.config import config
from tools_app.core.urls import is_loopback_host, split_url
from tools_app.protocol.schema import CompiledSchema
from tools_app.protocol.versions import has_page_ids, has_sampling_tools

log = logging.getLogger(__name__)

ACTIONS: Final = ("accept", "decline", "cancel")
ROLES: Final = ("user", "assistant")
# Validation errors of an answer are shown to the user.
MAX_PROBLEM: Final = 1000
_LINK = re.compile(r"\bhttps?://", re.IGNORECASE)


class BadAnswer(Exception):
    """The client's answer is invalid for the question."""


class Refused(Exception):
    """The client responded to a question with an error, or not at all."""


class Unanswered(BaseException):
    """Ends a run whose questions have no answers yet. A BaseException, so that `except Exception` does not catch it."""

    def __init__(self, requests: dict[str, Any]) -> None:
        super().__init__(", ".join(requests))
        self.requests = requests


class Elicited(msgspec.Struct, frozen=True):
    """The user's answer (elicitation, §Response Actions): accept with content, decline, or cancel."""

    action: str
    content: dict[str, Any]

    @property
    def accepted(self) -> bool:
        """Whether the user accepted."""
        return self.action == "accept"


class Question(Protocol):
    """One request to the client. `capability` is a path in the client's capabilities, such as "elicitation.url"."""

    @property
    def method(self) -> str:
        """The method of the request."""

    @property
    def capability(self) -> str:
        """The capability that the client must declare."""

    def params(self) -> dict[str, Any]:
        """The parameters of the request."""

    def read(self, answer: Mapping[str, Any]) -> Any:
        """Convert a client's result into the function's return value. Raises BadAnswer."""


class Conversation(Protocol):
    """The channel through which a context asks. `state` is passed to the function in the next round."""

    state: dict[str, Any]

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Return the answers by question name."""

    def forget(self, names: Iterable[str]) -> None:
        """Drop answers that the function needs no more."""

    def unfinished(self, unanswered: Unanswered) -> InputRequired:
        """Return the outcome of a run that must be repeated."""


class Elicit(msgspec.Struct, frozen=True):
    """A form for the user (elicitation, §Form Mode): `schema` is a flat object of primitive properties.

    Raises ValueError if a field's name suggests a secret (use a URL instead), and BadSchema for a schema that cannot be
    used.
    """

    message: str
    schema: dict[str, Any]
    method = "elicitation/create"
    capability = "elicitation"

    def __post_init__(self) -> None:
        secret = next((name for name in self.schema.get("properties", ()) if is_secret(name)), None)
        if secret is not None:
            raise ValueError(f"Forms cannot ask for secrets such as {secret!r}. Use a URL elicitation.")
        CompiledSchema(self.schema)
        properties = self.schema.get("properties", {})
        described = [self.schema, *(properties.values() if isinstance(properties, dict) else ())]
        texts = [one.get(name) for one in described if isinstance(one, dict) for name in ("title", "description")]
        if any(_LINK.search(text) for text in (self.message, *texts) if isinstance(text, str)):
            log.warning("The form %r contains a URL. Use a URL elicitation instead.", self.message)

    def params(self) -> dict[str, Any]:
        """The form; `mode` is omitted, which every revision accepts."""
        return {"message": self.message, "requestedSchema": self.schema}

    def read(self, answer: Mapping[str, Any]) -> Elicited:
        """Return the user's answer; the content of an accepted form matches its schema."""
        elicited = _elicited(answer)
        if elicited.accepted:
            problems = CompiledSchema(self.schema).problems(elicited.content)
            if problems:
                message = "; ".join(f"{problem.field or 'content'}: {problem.message}" for problem in problems)
                raise BadAnswer(message if len(message) <= MAX_PROBLEM else message[:MAX_PROBLEM] + "…")
        return elicited


class ElicitUrl(msgspec.Struct, frozen=True):
    """A URL for the user to visit (elicitation, §URL Mode): what happens there does not pass through the client.

    Raises ValueError for a URL that is not https (http is allowed for this machine, and in debug mode), or that
    contains a secret.
    """

    message: str
    url: str
    id: str = ""
    method = "elicitation/create"
    capability = "elicitation.url"

    def __post_init__(self) -> None:
        problem = _address_problem(self.url)
        if problem:
            raise ValueError(f"Invalid elicitation URL: {problem}.")

    def params(self) -> dict[str, Any]:
        """The URL and, in revision 2025-11-25, the id used to report completion."""
        identified = {"elicitationId": self.id} if self.id else {}
        return {"mode": "url", "message": self.message, "url": self.url, **identified}

    def read(self, answer: Mapping[str, Any]) -> Elicited:
        """Return whether the user agreed to visit the URL."""
        return _elicited(answer)


class Sample(msgspec.Struct, frozen=True):
    """A request to the client's model (sampling, §Creating Messages); `options` are more parameters of it.

    Raises ValueError for messages whose tool uses and tool results do not match.
    """

    messages: list[dict[str, Any]]
    max_tokens: int
    options: dict[str, Any] = {}
    method = "sampling/createMessage"

    def __post_init__(self) -> None:
        problem = _messages_problem(self.messages)
        if problem:
            raise ValueError(f"Invalid sampling request: {problem}.")

    @property
    def capability(self) -> str:
        """`sampling`, or its `tools` capability if the model may use tools."""
        return "sampling.tools" if {"tools", "toolChoice"} & self.options.keys() else "sampling"

    def params(self) -> dict[str, Any]:
        """The messages and the options."""
        return {"messages": self.messages, "maxTokens": self.max_tokens, **self.options}

    def read(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model's message."""
        blocks = _blocks(answer)
        if answer.get("role") not in ROLES or not blocks:
            raise BadAnswer(f"a sampling result must have a role ({' or '.join(ROLES)}) and content")
        if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks):
            raise BadAnswer("the content of a sampling result must be blocks with a type")
        return dict(answer)


class ListRoots(msgspec.Struct, frozen=True):
    """The roots of the client's workspace (roots, §Listing Roots)."""

    method = "roots/list"
    capability = "roots"

    def params(self) -> dict[str, Any]:
        """No parameters."""
        return {}

    def read(self, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the roots, each with its URI."""
        roots = answer.get("roots")
        if not isinstance(roots, list) or not all(
            isinstance(root, dict) and isinstance(root.get("uri"), str) for root in roots
        ):
            raise BadAnswer("a roots result must have a list of roots, each with a uri")
        return roots


def for_version(question: Question, id: str, version: str, capabilities: Mapping[str, Any]) -> Question:
    """Return a question adapted to the client's revision; `id` identifies a URL elicitation where required.

    The context of other servers is requested only from clients that declare it (2025-11-25, sampling, §Capabilities).
    """
    if isinstance(question, ElicitUrl):
        return msgspec.structs.replace(question, id=(question.id or id) if has_page_ids(version) else "")
    if isinstance(question, Sample) and not has_sampling_tools(version):
        # Their messages have one block each.
        messages = [{**message, "content": block} for message in question.messages for block in _blocks(message)]
        return msgspec.structs.replace(question, messages=messages)
    if isinstance(question, Sample) and not declares(capabilities, "sampling.context"):
        options = {name: value for name, value in question.options.items() if name != "includeContext"}
        return msgspec.structs.replace(question, options=options)
    return question


def as_request(question: Question, problem: str = "") -> dict[str, Any]:
    """Return a question as an entry of `inputRequests`; for the user, with the errors of the previous answer."""
    params = question.params()
    if problem and "message" in params:
        params = {**params, "message": f"{params['message']}\n\nThe last answer was invalid: {problem}."}
    return {"method": question.method, "params": params}


def declares(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether a client declared a capability. An `elicitation` capability without a mode means form mode."""
    area, _, mode = path.partition(".")
    declared = capabilities.get(area)
    if not isinstance(declared, dict):
        return False
    if mode:
        return mode in declared
    return area != "elicitation" or "form" in declared or "url" not in declared


def _elicited(answer: Mapping[str, Any]) -> Elicited:
    action, content = answer.get("action"), answer.get("content")
    if action not in ACTIONS:
        raise BadAnswer(f"an elicitation result must have an action: {', '.join(ACTIONS)}")
    if not isinstance(content, dict | None):
        raise BadAnswer("the content of an elicitation result must be an object")
    return Elicited(str(action), content or {})


def _address_problem(url: str) -> str:
    parts = split_url(url)
    if parts is None or not url.isascii() or not url.isprintable() or " " in url or not parts.host:
        return "it is not an http or https URL"
    if parts.scheme != "https" and not (parts.scheme == "http" and (config.DEBUG or is_loopback_host(parts.host))):
        return "it must use https"
    named = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if "@" in parts.netloc or any(map(is_secret, named)):
        return "it contains a secret"
    return ""


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else [content]


def _messages_problem(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the violated rule of tool uses and results (2025-11-25, sampling, §Message Content Constraints)."""
    awaited: list[Any] = []
    for message in messages:
        blocks = [block for block in _blocks(message) if isinstance(block, dict)]
        results = [block.get("toolUseId") for block in blocks if block.get("type") == "tool_result"]
        if results and len(results) != len(blocks):
            return "a message with tool results must contain only tool results"
        if sorted(map(str, results)) != sorted(map(str, awaited)):
            return "each tool use must be followed by its result in the next message"
        awaited = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    return "each tool use must be followed by its result" if awaited else ""


def unused_name(name: str, used: Container[str]) -> str:
    """Return a name that is unique in a call, as request ids must be (base protocol, §Requests)."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(name for name in names if name not in used)
