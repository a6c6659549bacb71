"""What a function may ask the client: a form, a page to visit, a model's answer, the roots of its workspace.

A question knows its request on the wire, the capability that the client must have for it, and what a good answer is.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec

from tools_app.audit.redaction import is_secret
from tools_app.models.config import config
from tools_app.protocol.schema import CompiledSchema
from tools_app.protocol.versions import has_page_ids, has_sampling_tools

log = logging.getLogger(__name__)

ACTIONS: Final = ("accept", "decline", "cancel")
ROLES: Final = ("user", "assistant")
_LINK = re.compile(r"\bhttps?://", re.IGNORECASE)


class BadAnswer(Exception):
    """The client's answer is none to the question that was asked."""


class Elicited(msgspec.Struct, frozen=True):
    """What a person answered (elicitation, §Response Actions): accept with content, decline, or cancel."""

    action: str
    content: dict[str, Any]

    @property
    def accepted(self) -> bool:
        """Whether there is an answer to go on with."""
        return self.action == "accept"


class Question(Protocol):
    """One request to the client. `capability` is a path in what the client declares, as in "elicitation.url"."""

    @property
    def method(self) -> str:
        """The method of the request."""

    @property
    def capability(self) -> str:
        """What the client must have declared."""

    def params(self) -> dict[str, Any]:
        """The parameters of the request."""

    def read(self, answer: Mapping[str, Any]) -> Any:
        """What the function gets of a client's result. Raises BadAnswer."""


class Elicit(msgspec.Struct, frozen=True):
    """A form for a person (elicitation, §Form Mode): `schema` is a flat object of primitive properties.

    Raises ValueError for a form that asks for a secret, by the name of a field: a page is the place for it.
    """

    message: str
    schema: dict[str, Any]
    method = "elicitation/create"
    capability = "elicitation"

    def __post_init__(self) -> None:
        secret = next((name for name in self.schema.get("properties", ()) if is_secret(name)), None)
        if secret is not None:
            raise ValueError(f"A form never asks for a secret such as {secret!r}: send the person to a page.")
        if any(map(_LINK.search, (self.message, *_texts(self.schema)))):
            log.warning("The form %r shows an address: a page is the safer way to one.", self.message)

    def params(self) -> dict[str, Any]:
        """The form; its mode goes unsaid, which every revision understands."""
        return {"message": self.message, "requestedSchema": self.schema}

    def read(self, answer: Mapping[str, Any]) -> Elicited:
        """What the person answered; the content of an accepted form fits its schema."""
        elicited = _elicited(answer)
        if elicited.accepted:
            problems = CompiledSchema(self.schema).problems(elicited.content)
            if problems:
                raise BadAnswer("; ".join(f"{problem.field or 'content'}: {problem.message}" for problem in problems))
        return elicited


class ElicitUrl(msgspec.Struct, frozen=True):
    """A page that a person is to visit (elicitation, §URL Mode): what happens there does not pass the client.

    Raises ValueError for an address that is no https one (http will do on this machine, and in debug mode), or that
    carries a secret.
    """

    message: str
    url: str
    id: str = ""
    method = "elicitation/create"
    capability = "elicitation.url"

    def __post_init__(self) -> None:
        problem = _address_problem(self.url)
        if problem:
            raise ValueError(f"A person is not sent to this address: {problem}.")

    def params(self) -> dict[str, Any]:
        """The address, and in the revision 2025-11-25 the id under which the page may be reported as done."""
        identified = {"elicitationId": self.id} if self.id else {}
        return {"mode": "url", "message": self.message, "url": self.url, **identified}

    def read(self, answer: Mapping[str, Any]) -> Elicited:
        """Whether the person agreed to go there."""
        return _elicited(answer)


class Sample(msgspec.Struct, frozen=True):
    """A question to the client's model (sampling, §Creating Messages); `options` are more parameters of it.

    Raises ValueError for messages in which uses and results of tools do not belong together.
    """

    messages: list[dict[str, Any]]
    max_tokens: int
    options: dict[str, Any] = {}
    method = "sampling/createMessage"

    def __post_init__(self) -> None:
        problem = _messages_problem(self.messages)
        if problem:
            raise ValueError(f"The client's model is not asked so: {problem}.")

    @property
    def capability(self) -> str:
        """More than sampling alone if the model is to use tools."""
        return "sampling.tools" if {"tools", "toolChoice"} & self.options.keys() else "sampling"

    def params(self) -> dict[str, Any]:
        """The messages and how to answer them."""
        return {"messages": self.messages, "maxTokens": self.max_tokens, **self.options}

    def read(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The model's message."""
        blocks = _blocks(answer)
        if answer.get("role") not in ROLES or not blocks:
            raise BadAnswer(f"a sampling result has a role ({' or '.join(ROLES)}) and content")
        if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks):
            raise BadAnswer("the content of a sampling result is made of blocks, each with a type")
        return dict(answer)


class ListRoots(msgspec.Struct, frozen=True):
    """The roots of the client's workspace (roots, §Listing Roots)."""

    method = "roots/list"
    capability = "roots"

    def params(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def read(self, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The roots, each with its URI."""
        roots = answer.get("roots")
        if not isinstance(roots, list) or not all(
            isinstance(root, dict) and isinstance(root.get("uri"), str) for root in roots
        ):
            raise BadAnswer("a roots result has a list of roots, each with a uri")
        return roots


def fitted(question: Question, id: str, version: str, capabilities: Mapping[str, Any]) -> Question:
    """A question as a client of this revision can be asked it; `id` is for the page of one that wants an id.

    The context of other servers is asked for only of clients that declare it (2025-11-25, sampling, §Capabilities).
    """
    if isinstance(question, ElicitUrl):
        return msgspec.structs.replace(question, id=(question.id or id) if has_page_ids(version) else "")
    if isinstance(question, Sample) and has_sampling_tools(version) and not declares(capabilities, "sampling.context"):
        options = {name: value for name, value in question.options.items() if name != "includeContext"}
        return msgspec.structs.replace(question, options=options)
    return question


def as_request(question: Question) -> dict[str, Any]:
    """A question as it stands in `inputRequests`."""
    return {"method": question.method, "params": question.params()}


def declares(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether a client declared a capability. An `elicitation` that names no mode is one for forms."""
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
        raise BadAnswer(f"an elicitation result has an action: {', '.join(ACTIONS)}")
    if not isinstance(content, dict | None):
        raise BadAnswer("the content of an elicitation result is an object")
    return Elicited(str(action), content or {})


def _texts(schema: Mapping[str, Any]) -> Iterator[str]:
    """What a form shows beside its message."""
    properties = schema.get("properties", {})
    for shown in (schema, *(properties.values() if isinstance(properties, dict) else ())):
        if isinstance(shown, dict):
            yield from (text for name in ("title", "description") if isinstance(text := shown.get(name), str))


def _address_problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as problem:
        return str(problem)
    if not url.isascii() or not url.isprintable() or " " in url or not parts.hostname:
        return "it is no address of the web"
    if parts.scheme != "https" and not (parts.scheme == "http" and (config.DEBUG or _is_here(parts.hostname))):
        return "it is not an https one"
    named = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if "@" in parts.netloc or any(map(is_secret, named)):
        return "it carries a secret"
    return ""


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else [content]


def _messages_problem(messages: Sequence[Mapping[str, Any]]) -> str:
    """Which rule of uses and results of tools is broken (2025-11-25, sampling, §Message Content Constraints)."""
    awaited: list[Any] = []
    for message in messages:
        blocks = [block for block in _blocks(message) if isinstance(block, dict)]
        results = [block.get("toolUseId") for block in blocks if block.get("type") == "tool_result"]
        if results and len(results) != len(blocks):
            return "a message with results of tools holds nothing else"
        if sorted(map(str, results)) != sorted(map(str, awaited)):
            return "each use of a tool is followed, in the next message, by its result"
        awaited = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    return "each use of a tool is followed by its result" if awaited else ""
