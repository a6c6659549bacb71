"""Validation of resources that an admin writes, with the path of each error. Independent of forms."""

from collections.abc import Iterator
from typing import Any

from tools_app.catalog import uri_templates
from tools_app.catalog.kinds import templates
from tools_app.catalog.kinds.http import runner as http
from tools_app.catalog.skills import MANIFEST, InvalidManifest, frontmatter
from tools_app.catalog.validation.shapes import Shape, object_faults
from tools_app.protocol.authoring_schema import SchemaProblem
from tools_app.protocol.content import moment
from tools_app.protocol.schema_keywords import Path

MAX_BYTES = 5 * 1024 * 1024
# In a form, a character takes up to twelve bytes; Django's limit for a form is 2.5 MB.
MAX_CHARACTERS = 200_000
ROLES = {"user", "assistant"}


def uri_fault(uri: str, *, template: bool) -> str | None:
    """Return the error of a URI's variables. `template`: variables are allowed."""
    try:
        variables = uri_templates.parse(uri).variables
    except uri_templates.BadTemplate as problem:
        return str(problem)
    if variables and not template:
        return "URI templates are only possible for HTTP requests and Python functions. Remove the {variable}."
    return None


def text_fault(text: str, uri: str) -> str | None:
    """Return the error of a text, or of the frontmatter if its URI is the SKILL.md of a skill."""
    if len(text) > MAX_CHARACTERS:
        return f"The text has more than {MAX_CHARACTERS} characters. Upload it as a file."
    if uri.endswith(MANIFEST):
        try:
            frontmatter(text, uri)
        except InvalidManifest as problem:
            return f"This URI is the SKILL.md of a skill. {problem}"
    return None


def file_fault(size: int) -> str | None:
    """Return the error of a file of this size in bytes."""
    return f"The file is larger than {MAX_BYTES // 1024**2} MB." if size > MAX_BYTES else None


def check_request(config: dict[str, Any], uri: str | None) -> list[SchemaProblem]:
    """Return the errors of a resource's request; templates may use the variables of `uri` (None: it is invalid)."""
    try:
        http.parse_config(config)
    except http.ConfigProblem as problem:
        return [SchemaProblem((problem.field,), problem.message)]
    if uri is None:
        return []
    variables = set(uri_templates.parse(uri).variables)
    return [
        SchemaProblem(path, f"{{{name}}} is not a variable of the URI.")
        for path, text in _texts(config, ())
        # The base URL is not a template.
        if path[0] != "base_url"
        for name in sorted(templates.parse(text).arguments - variables)
    ]


def check_annotations(annotations: dict[str, Any]) -> list[SchemaProblem]:
    """Return the errors of a resource's annotations (resources, §Annotations)."""
    return object_faults(annotations, {}, {"audience": AUDIENCE, "priority": PRIORITY, "lastModified": MOMENT})


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    entries: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        yield from _texts(inner, (*path, name))


AUDIENCE = Shape(
    lambda value: isinstance(value, list) and all(isinstance(role, str) and role in ROLES for role in value),
    'must be a list of "user" and "assistant".',
)
PRIORITY = Shape(
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1,
    "must be a number from 0 to 1.",
)
MOMENT = Shape(
    lambda value: moment(value) is not None, "must be a time with its offset from UTC, such as 2026-01-31T12:00:00Z."
)
