"""What a function may ask the client: a form, a page to visit, a model's answer, the roots of its workspace.

A question knows its request on the wire, the capability that the client must have for it, and what a good answer is.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from tools_app.protocol.schema import CompiledSchema

ACTIONS = ("accept", "decline", "cancel")


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
    """A form for a person (elicitation, §Form Mode): `schema` is a flat object of primitive properties."""

    message: str
    schema: dict[str, Any]
    method = "elicitation/create"
    capability = "elicitation"

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
    """A page that a person is to visit (elicitation, §URL Mode): what happens there does not pass the client."""

    message: str
    url: str
    id: str = ""
    method = "elicitation/create"
    capability = "elicitation.url"

    def params(self) -> dict[str, Any]:
        """The address, and in the revision 2025-11-25 the id under which the page may be reported as done."""
        identified = {"elicitationId": self.id} if self.id else {}
        return {"mode": "url", "message": self.message, "url": self.url, **identified}

    def read(self, answer: Mapping[str, Any]) -> Elicited:
        """Whether the person agreed to go there."""
        return _elicited(answer)


class Sample(msgspec.Struct, frozen=True):
    """A question to the client's model (sampling, §Creating Messages); `options` are more parameters of it."""

    messages: list[dict[str, Any]]
    max_tokens: int
    options: dict[str, Any] = {}
    method = "sampling/createMessage"
    capability = "sampling"

    def params(self) -> dict[str, Any]:
        """The messages and how to answer them."""
        return {"messages": self.messages, "maxTokens": self.max_tokens, **self.options}

    def read(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The model's message."""
        if not isinstance(answer.get("role"), str) or not isinstance(answer.get("content"), dict | list):
            raise BadAnswer("a sampling result has a role and content")
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
