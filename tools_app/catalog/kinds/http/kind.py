"""Tools that send a request, which an admin describes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tools_app.catalog.kinds.base import Compilation, Implementation, Kind, written
from tools_app.catalog.kinds.http.config import (
    ConfigProblem,
    as_described,
    parse_config,
    placeholders,
    secrets_of,
    with_defaults,
)
from tools_app.catalog.kinds.http.references import secret_faults
from tools_app.catalog.kinds.http.runner import http_runner
from tools_app.catalog.validation.items import described_faults, tool_faults
from tools_app.models import Tool

# With one of these keywords, a schema may accept arguments that its `properties` do not name.
OPEN_KEYWORDS = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}


class HttpKind(Kind):
    """`Tool.config` has the fields of `catalog.kinds.http.config.HttpConfig`."""

    name = "http"
    config_help = (
        "Of an HTTP request: `method`, `base_url`, `path`, `query`, `headers`, `body_mode` (none, arguments, template),"
        " `body`, `max_response_bytes`, `follow_redirects`; `{name}` stands for an argument, `{secret:NAME}` for a"
        " secret, which must exist."
    )
    file_field = "request"
    file_hint = "must be an object with method, base_url, path and the other fields of the request."

    def faults(self, tool: Tool) -> Iterator[tuple[str, str]]:
        """Yield the errors of the definition and of the request."""
        described = list(described_faults(tool))
        yield from described
        unsound = any(field == "input_schema" for field, _ in described)
        # An invalid schema has no argument names to compare with the request.
        problem = request_problem(tool.config, {} if unsound else tool.input_schema)
        if problem is not None and problem.field == "input_schema":
            if not unsound:
                yield problem.field, problem.message
        elif problem is not None:
            yield f"config.{problem.field}", problem.message

    def request_faults(self, tool: Tool, _given: dict[str, Any], former: Tool | None) -> Mapping[str, Iterable[str]]:
        """Return the secrets that are missing in a valid tool, except those that the stored one names already."""
        return tool_faults(tool) or secret_faults(tool.tenant, tool.config, former.config if former else None)

    def compile(self, tool: Tool, compilation: Compilation) -> Implementation:
        """Return the tool with its request. Raises ConfigProblem, and ValueError for an invalid network."""
        networks = compilation.tenant.allowed_networks
        config = parse_config(tool.config)
        return written(
            tool, http_runner(config, compilation.secrets, networks, tool.timeout_seconds, tool.output_schema)
        )

    def secret_names(self, config: Mapping[str, Any]) -> set[str]:
        """Return the names of the secrets that a request uses; none of an invalid one."""
        return secrets_of(config)

    def origin(self, _tool: Tool, _config: Mapping[str, Any]) -> str:
        """Return that it is a request: its URL may be long."""
        return "HTTP request"

    def to_file(self, tool: Tool) -> Any:
        """Return the request without fields that have their defaults."""
        return as_described(tool.config)

    def file_config(self, value: Any) -> Mapping[str, Any]:
        """Return the request with all its fields, as the form of a tool stores it."""
        return with_defaults(value)


def request_problem(config: Mapping[str, Any], schema: Mapping[str, Any]) -> ConfigProblem | None:
    """Return the error of a tool's request; placeholders must be arguments of `schema`, which is valid."""
    try:
        parsed = parse_config(config)
    except ConfigProblem as problem:
        return problem
    missing = placeholders(parsed) - schema.get("properties", {}).keys()
    if missing and not OPEN_KEYWORDS & schema.keys():
        names = ", ".join(sorted(missing))
        return ConfigProblem("input_schema", f"The request uses arguments that are not in the schema: {names}.")
    return None


KIND = HttpKind()
