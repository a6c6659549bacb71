"""The OpenAPI document: names and descriptions for generated clients, and the errors of every operation."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc
from drf_spectacular.utils import OpenApiParameter

from tools_app.models import Connection
from tools_app.web.api.problems import MEDIA_TYPE

ROOT = "/api/v1/"
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="ETag of the row. If the row has changed since, the response is 412 and nothing is changed.",
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
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri", "examples": ["urn:mcphub:problem:invalid"]},
        "title": {"type": "string", "examples": ["Bad Request"]},
        "status": {"type": "integer", "examples": [400]},
        "detail": {"type": "string", "examples": ["One value is invalid. See `errors`."]},
        "errors": {
            "type": "object",
            "description": "Messages by field; nested fields are joined with dots.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
            "examples": [{"name": ["This field is required."]}],
        },
    },
}
ERRORS = {
    400: ("Invalid", "A value is invalid."),
    401: ("Unauthenticated", "Not logged in, or the token is invalid."),
    403: ("Forbidden", "Not permitted for this user."),
    404: ("Missing", "Not found, or not visible to this user."),
    409: ("Conflict", "The change conflicts with the current state."),
    412: ("ChangedMeanwhile", "The row has changed since its ETag was read."),
    413: ("TooLarge", "The body is too large."),
    415: ("MediaType", "The Content-Type is not JSON."),
    429: ("Throttled", "Rate limit exceeded. Retry after the seconds in `Retry-After`."),
    503: ("Unavailable", "The database is unavailable. Try again in a moment."),
}
SAID = {"200": "The result.", "201": "The new row.", "204": "Deleted."}
ALWAYS = (401, 403, 429, 503)


class Described(AutoSchema):
    """Describes one operation. Views of other apps inherit it as the default, and are described as they are."""

    def get_summary(self) -> str | None:
        """Return a summary of the operation, in three words."""
        if not self._is_own:
            return None
        action = getattr(self.view, "action", "")
        many = getattr(self.view, "plural", self.get_tags()[0].replace("-", " "))
        one = getattr(self.view, "singular", many.removesuffix("s"))
        return SUMMARIES[action].format(many=many, one=one) if action in SUMMARIES else None

    def get_description(self) -> str:
        """Return the description of the operation; a list's starts with that of its view."""
        description = str(super().get_description())
        if not self._is_own:
            return description
        view_description = get_doc(type(self.view))
        return (
            f"{view_description}\n\n{description}"
            if getattr(self.view, "action", "") == "list" and view_description != description
            else description
        )

    def get_override_parameters(self) -> list[Any]:
        """Return the parameters of a list, and the precondition of a change."""
        if not self._is_own:
            return []
        if getattr(self.view, "action", "") == "list":
            return [self.view.query_class]
        model = getattr(getattr(self.view, "queryset", None), "model", None)
        if getattr(self.view, "action", "") in CHANGING and (hasattr(model, "updated_at") or model is Connection):
            return [IF_MATCH]
        return []

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        """Return the name of a component: `Tool` for `ToolRow`."""
        return str(super().get_serializer_name(serializer, direction)).removesuffix("Row")

    @property
    def _is_own(self) -> bool:
        return str(type(self.view).__module__).startswith("tools_app.")

    def get_paginated_name(self, serializer_name: str) -> str:
        """Return the name of a page of these rows."""
        return f"{serializer_name}Page"


def own_endpoints(endpoints: list[Any]) -> list[Any]:
    """Return the endpoints of this API, without the health checks and the view for all other URLs."""
    return [endpoint for endpoint in endpoints if endpoint[0].startswith(ROOT) and endpoint[0] != ROOT]


def complete(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add the errors to every operation, and disallow additional properties in request bodies."""
    components = result["components"]
    components["schemas"]["Problem"] = PROBLEM
    schema = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    components["responses"] = {name: {"description": text, "content": schema} for name, text in ERRORS.values()}
    for operations in result["paths"].values():
        for method, operation in operations.items():
            # Errors that a view documents itself have the same schema.
            named = {int(status) for status in operation["responses"]} & ERRORS.keys()
            for status in sorted(_errors_of(operation, method) | named):
                operation["responses"][str(status)] = {"$ref": f"#/components/responses/{ERRORS[status][0]}"}
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                if name in components["schemas"]:
                    components["schemas"][name]["additionalProperties"] = False
            for status, answer in operation["responses"].items():
                if answer.get("description") == "":
                    answer["description"] = SAID.get(status, "Success.")
    return result


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
