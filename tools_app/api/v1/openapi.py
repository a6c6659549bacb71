"""The OpenAPI document: names and words that make a generated client pleasant, and the errors of every operation."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc
from drf_spectacular.utils import OpenApiParameter
from inflection import singularize

from tools_app.api.v1.problems import MEDIA_TYPE

ROOT = "/api/v1/"
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag that was read. If the row was changed since then, the answer is 412 and nothing is changed.",
)
SUMMARIES = {
    "list": "List {many}",
    "retrieve": "Get {one}",
    "create": "Add {one}",
    "update": "Replace {one}",
    "partial_update": "Change {one}",
    "destroy": "Delete {one}",
}
CHANGING = frozenset({"update", "partial_update", "destroy", "restore"})
PROBLEM = {
    "type": "object",
    "description": "What went wrong (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri", "examples": ["urn:mcphub:problem:invalid"]},
        "title": {"type": "string", "examples": ["Bad Request"]},
        "status": {"type": "integer", "examples": [400]},
        "detail": {"type": "string", "examples": ["One value is not right: see `errors`."]},
        "errors": {
            "type": "object",
            "description": "Messages by field; dots lead into nested values.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
            "examples": [{"name": ["This field is required."]}],
        },
    },
}
ERRORS = {
    400: ("Invalid", "A value is not right."),
    401: ("Unauthenticated", "Nobody is logged in, or the token is no good."),
    403: ("Forbidden", "The person may not do this."),
    404: ("Missing", "There is no such row, or none that the person may see."),
    409: ("Conflict", "The change does not fit to how things stand."),
    412: ("ChangedMeanwhile", "The row was changed since its ETag was read."),
    413: ("TooLarge", "The body is too large."),
    415: ("MediaType", "The body is not said to be JSON."),
    429: ("Throttled", "The person sends too many requests: wait as long as `Retry-After` says."),
    503: ("Unavailable", "The database does not answer: try again in a moment."),
}
SAID = {"200": "What was asked for.", "201": "The new row.", "204": "It is gone."}
ALWAYS = (401, 403, 429, 503)


class Described(AutoSchema):
    """Describes one operation."""

    def get_summary(self) -> str | None:
        """What the operation does, in three words."""
        action = getattr(self.view, "action", "")
        many = getattr(self.view, "plural", self.get_tags()[0])
        one = getattr(self.view, "singular", singularize(many))
        return SUMMARIES[action].format(many=many, one=one) if action in SUMMARIES else None

    def get_description(self) -> str:
        """What the operation does; lists say first what they are of."""
        said = str(super().get_description())
        own = get_doc(type(self.view))
        return f"{own}\n\n{said}" if getattr(self.view, "action", "") == "list" and own != said else said

    def get_override_parameters(self) -> list[Any]:
        """The parameters of a list, and the precondition of a change."""
        if getattr(self.view, "action", "") == "list":
            return [self.view.query_class]
        model = getattr(getattr(self.view, "queryset", None), "model", None)
        if getattr(self.view, "action", "") in CHANGING and hasattr(model, "updated_at"):
            return [IF_MATCH]
        return []

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        """What a component is called: `Tool` is made by `ToolRow`."""
        return str(super().get_serializer_name(serializer, direction)).removesuffix("Row")

    def get_paginated_name(self, serializer_name: str) -> str:
        """What a page of such rows is called."""
        return f"{serializer_name}Page"


def ours(endpoints: list[Any]) -> list[Any]:
    """The endpoints of this API, without the health checks beside it and the answer to every other address."""
    return [endpoint for endpoint in endpoints if endpoint[0].startswith(ROOT) and endpoint[0] != ROOT]


def complete(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add the errors to every operation, and say of bodies that they hold nothing else."""
    components = result["components"]
    components["schemas"]["Problem"] = PROBLEM
    components["responses"] = {name: _error_answer(text) for name, text in ERRORS.values()}
    for operations in result["paths"].values():
        for method, operation in operations.items():
            _add_errors(operation, method)
            _close(operation, components["schemas"])
            for status, answer in operation["responses"].items():
                if answer.get("description") == "":
                    answer["description"] = SAID.get(status, "It worked.")
    return result


def _error_answer(text: str) -> dict[str, Any]:
    return {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def _add_errors(operation: dict[str, Any], method: str) -> None:
    # What a view names itself is of the same shape.
    named = {int(status) for status in operation["responses"]} & ERRORS.keys()
    for status in sorted(_errors_of(operation, method) | named):
        operation["responses"][str(status)] = {"$ref": f"#/components/responses/{ERRORS[status][0]}"}


def _errors_of(operation: dict[str, Any], method: str) -> set[int]:
    errors = set(ALWAYS)
    places = {parameter["in"] for parameter in operation.get("parameters", ())}
    if "query" in places:
        errors.add(400)
    if "path" in places:
        errors.add(404)
    if "header" in places:
        errors.add(412)
    if method in {"post", "put", "patch"}:
        errors |= {400, 404, 409, 413, 415}
    if method == "delete":
        errors |= {400, 409}
    return errors


def _close(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """A body with a field that there is not is refused."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        if name in schemas:
            schemas[name]["additionalProperties"] = False
