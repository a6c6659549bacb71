"""Questions of upstreams to clients: the capabilities that an upstream is told of, and requests as the hub's questions.

A question of an upstream is checked like one of the hub's own functions. What cannot be asked is refused to the
upstream, and its call goes on.
"""

from collections.abc import Mapping
from typing import Any, Final

from tools_app.catalog.tool_api.elicitation import Elicit, Elicited, ElicitUrl, ListRoots, Question, Sample, declares
from tools_app.core.sanitize import has_nul
from tools_app.protocol import exact_json
from tools_app.protocol.content import valid_sampling
from tools_app.protocol.forms import form_schema
from tools_app.protocol.schema import InvalidSchema

# The capabilities that decide what an upstream may ask.
CAPABILITY_PATHS: Final = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context", "roots")
# The parameters of a sampling request that are passed on, besides messages and maxTokens.
SAMPLING_PARAMETERS: Final = (
    *("modelPreferences", "systemPrompt", "includeContext", "temperature", "stopSequences"),
    *("metadata", "tools", "toolChoice"),
)
MAX_QUESTION_BYTES: Final = 256 * 1024

Request = dict[str, Any]
# A set of capabilities, as paths such as "elicitation.url".
Profile = frozenset[str]
ALL_CAPABILITIES: Final[Profile] = frozenset(CAPABILITY_PATHS)
NO_CAPABILITIES: Final[Profile] = frozenset()


class InvalidQuestion(Exception):
    """The hub does not ask this. The message is for the upstream."""


def profile_of(capabilities: Mapping[str, Any]) -> Profile:
    """Return what a client with these capabilities can be asked."""
    return (
        frozenset(path for path in CAPABILITY_PATHS if declares(capabilities, path))
        if capabilities
        else NO_CAPABILITIES
    )


def capabilities_of(profile: Profile) -> dict[str, Any]:
    """Return a profile as the capabilities of a client."""
    declared: dict[str, Any] = {}
    for path in CAPABILITY_PATHS:
        if path in profile:
            area, _, mode = path.partition(".")
            modes = declared.setdefault(area, {})
            if mode or area == "elicitation":
                modes[mode or "form"] = {}
    return declared


def question_of(request: Mapping[str, Any]) -> Question:
    """Return a request of an upstream (`method` and `params`) as a question. Raises InvalidQuestion."""
    method, params = request.get("method"), request.get("params")
    if not isinstance(params, dict | None):
        raise InvalidQuestion("The parameters are not an object.")
    encoded = exact_json.dumps([method, params])
    if len(encoded) > MAX_QUESTION_BYTES:
        raise InvalidQuestion(f"The question is larger than {MAX_QUESTION_BYTES} bytes.")
    if has_nul([method, params], encoded):
        raise InvalidQuestion("The question contains a NUL character.")
    try:
        match method:
            case "elicitation/create":
                return _elicitation(params or {})
            case "sampling/createMessage":
                return _sampling(params or {})
            case "roots/list":
                return ListRoots()
    except (ValueError, InvalidSchema) as problem:
        raise InvalidQuestion(str(problem)) from problem
    raise InvalidQuestion(f"This method is not forwarded: {str(method)[:100]}")


def as_result(question: Question, value: Any) -> dict[str, Any]:
    """Return the result for the upstream; `value` is what `question.read` returned."""
    if isinstance(value, Elicited):
        is_form = isinstance(question, Elicit) and value.accepted
        return {"action": value.action, **({"content": value.content} if is_form else {})}
    return {"roots": value} if isinstance(question, ListRoots) else value


def _elicitation(params: Mapping[str, Any]) -> Question:
    message, schema, url = (params.get(name) for name in ("message", "requestedSchema", "url"))
    elicitation_id = params.get("elicitationId")
    match params.get("mode", "form"):
        case "form" if isinstance(message, str) and isinstance(schema, dict):
            return Elicit(message, form_schema(schema))
        case "url" if isinstance(message, str) and isinstance(url, str):
            return ElicitUrl(message, url, elicitation_id if isinstance(elicitation_id, str) else "")
    raise InvalidQuestion("The elicitation is invalid.")


def _sampling(params: Mapping[str, Any]) -> Question:
    messages, max_tokens = params.get("messages"), params.get("maxTokens")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidQuestion("The messages are not a list of objects.")
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int):
        raise InvalidQuestion("maxTokens is not an integer.")
    options = {name: params[name] for name in SAMPLING_PARAMETERS if params.get(name) is not None}
    return Sample(valid_sampling(messages), max_tokens, options)
