"""What lists and results must look like, by revision: the specification's schemas, and where the clients are stricter.

The official TypeScript clients refuse a whole message for one member that is null, for Base64 or a time that is not
well-formed, or for a schema of a tool that does not say `"type": "object"`. They check all revisions by the latest one,
so that only what a revision does not know at all differs here.
"""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from tests.wire.client import MODERN
from tools_app.protocol.inbound import SERVER_META

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
ROLE: Schema = {"enum": ["user", "assistant"]}
URI: Schema = {"type": "string", "pattern": r"^[A-Za-z][A-Za-z0-9+.-]*:"}
BASE64: Schema = {"type": "string", "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}
TIME: Schema = {"type": "string", "format": "date-time", "pattern": r"^[0-9-]+T[0-9:.]+(Z|[+-][0-9:]+)$"}


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def object_of(required: Mapping[str, Schema], /, **optional: Schema) -> Schema:
    return {"type": "object", "properties": {**required, **optional}, "required": [*required]}


ICONS = list_of(object_of({"src": URI}, mimeType=TEXT, sizes=list_of(TEXT), theme={"enum": ["light", "dark"]}))
ANNOTATIONS = object_of(
    {}, audience=list_of(ROLE), priority={"type": "number", "minimum": 0, "maximum": 1}, lastModified=TIME
)
HINTS = object_of({}, title=TEXT, readOnlyHint=FLAG, destructiveHint=FLAG, idempotentHint=FLAG, openWorldHint=FLAG)
DESCRIBED = {"title": TEXT, "description": TEXT, "icons": ICONS, "_meta": OBJECT}
OF_OBJECTS = object_of(
    {"type": {"const": "object"}},
    properties={"type": "object", "additionalProperties": OBJECT},
    required=list_of(TEXT),
    **{"$schema": TEXT},
)
ANY_SCHEMA = object_of({}, **{"$schema": TEXT})
RESOURCE = {**DESCRIBED, "mimeType": TEXT, "annotations": ANNOTATIONS}
CONTENTS: Schema = {
    "anyOf": [
        object_of({"uri": URI, "text": TEXT}, mimeType=TEXT, _meta=OBJECT),
        object_of({"uri": URI, "blob": BASE64}, mimeType=TEXT, _meta=OBJECT),
    ]
}
# The types of content, with the revision from which each is known.
BLOCKS: tuple[tuple[str, str, dict[str, Schema], dict[str, Schema]], ...] = (
    ("text", "", {"text": TEXT}, {}),
    ("image", "", {"data": BASE64, "mimeType": TEXT}, {}),
    ("resource", "", {"resource": CONTENTS}, {}),
    ("audio", "2025-03-26", {"data": BASE64, "mimeType": TEXT}, {}),
    ("resource_link", "2025-06-18", {"uri": URI, "name": TEXT}, {**RESOURCE, "size": {"type": "integer"}}),
)


def schemas(version: str) -> dict[str, Schema]:
    """The schema of the result of each method in a revision."""
    block: Schema = {
        "anyOf": [
            object_of(
                {"type": {"const": kind}, **required}, **{**optional, "annotations": ANNOTATIONS, "_meta": OBJECT}
            )
            for kind, since, required, optional in BLOCKS
            if version >= since
        ]
    }
    is_modern = version == MODERN
    server = object_of({"name": TEXT, "version": TEXT}, title=TEXT)
    meta = object_of({}, **{SERVER_META: server})
    modern: dict[str, Schema] = {"resultType": TEXT} if is_modern else {}
    cached = {**modern, "ttlMs": {"type": "integer"}, "cacheScope": {"enum": ["private", "public"]}}
    if not is_modern:
        cached = {}
    argument = object_of({"name": TEXT}, title=TEXT, description=TEXT, required=FLAG)
    tool = object_of(
        {"name": TEXT, "inputSchema": OF_OBJECTS},
        **DESCRIBED,
        outputSchema=ANY_SCHEMA if is_modern else OF_OBJECTS,
        annotations=HINTS,
        execution=object_of({}, taskSupport={"enum": ["forbidden", "optional", "required"]}),
    )
    prompt = object_of({"name": TEXT}, **DESCRIBED, arguments=list_of(argument))
    common = {"nextCursor": TEXT, "_meta": meta}
    return {
        "tools/list": object_of({"tools": list_of(tool), **cached}, **common),
        "prompts/list": object_of({"prompts": list_of(prompt), **cached}, **common),
        "resources/list": object_of(
            {"resources": list_of(object_of({"uri": URI, "name": TEXT}, **RESOURCE)), **cached}, **common
        ),
        "resources/templates/list": object_of(
            {"resourceTemplates": list_of(object_of({"uriTemplate": URI, "name": TEXT}, **RESOURCE)), **cached},
            **common,
        ),
        "tools/call": object_of(
            {"content": list_of(block), **modern},
            isError=FLAG,
            _meta=meta,
            structuredContent={} if is_modern else OBJECT,
        ),
        "prompts/get": object_of(
            {"messages": list_of(object_of({"role": ROLE, "content": block})), **modern}, description=TEXT, _meta=meta
        ),
        "resources/read": object_of({"contents": list_of(CONTENTS), **cached}, _meta=meta),
    }


def check_valid(method: str, version: str, result: Any) -> None:
    """Fail for a result that clients of the revision refuse. Before 2025-06-18 there is no structured content."""
    validator = jsonschema_rs.Draft202012Validator(schemas(version)[method], validate_formats=True)
    problems = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(result)]
    assert not problems, f"{method} in {version}: {problems}"
    assert version >= "2025-06-18" or "structuredContent" not in result
