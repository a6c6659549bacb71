"""What can be wrong with a resource that an admin writes, told with the place of the fault. Knows nothing of forms."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tools_app.execution.checks.shapes import Shape, object_faults
from tools_app.execution.kinds import http, templates
from tools_app.execution.offers import uris
from tools_app.execution.skills import MANIFEST, BadManifest, frontmatter
from tools_app.protocol.authoring_schema import Path, SchemaProblem

MOST_BYTES = 5 * 1024 * 1024
# In a form, a character takes up to twelve bytes; Django reads forms of no more than 2.5 MB.
MOST_CHARACTERS = 200_000
MIME_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.+-]+=[\w.+-]+)*", re.ASCII)
ROLES = {"user", "assistant"}


def uri_fault(uri: str, *, template: bool) -> str | None:
    """What is wrong with the variables of a URI. `template`: it may have some."""
    try:
        variables = uris.parse(uri).variables
    except uris.BadTemplate as problem:
        return str(problem)
    if variables and not template:
        return "Only a request or a function can answer for a template: write no {variable} here."
    return None


def mime_type_fault(mime_type: str) -> str | None:
    """What is wrong with a MIME type, which may be left out."""
    return "Write a MIME type, such as text/markdown." if mime_type and not MIME_TYPE.fullmatch(mime_type) else None


def text_fault(text: str, uri: str) -> str | None:
    """What is wrong with a text, or with the head of one that is by its URI the SKILL.md of a skill."""
    if len(text) > MOST_CHARACTERS:
        return f"{MOST_CHARACTERS} characters are the most: upload a longer text as a file."
    if uri.endswith(MANIFEST):
        try:
            frontmatter(text, uri)
        except BadManifest as problem:
            return f"By its URI this is the SKILL.md of a skill. {problem}"
    return None


def file_fault(size: int) -> str | None:
    """What is wrong with a file of so many bytes."""
    return f"This file is too large: {MOST_BYTES // 1024**2} MB are the most." if size > MOST_BYTES else None


def check_request(config: dict[str, Any], uri: str | None) -> list[SchemaProblem]:
    """The faults of a resource's request, whose templates may use the variables of `uri` (None: it is wrong)."""
    try:
        http.parse_config(config)
    except http.ConfigProblem as problem:
        return [SchemaProblem((problem.field,), problem.message)]
    return [] if uri is None else _unknown_arguments(config, set(uris.parse(uri).variables))


def check_annotations(annotations: dict[str, Any]) -> list[SchemaProblem]:
    """The faults of a resource's annotations (resources, §Annotations)."""
    return object_faults(annotations, {}, {"audience": AUDIENCE, "priority": PRIORITY, "lastModified": MOMENT})


def _unknown_arguments(config: dict[str, Any], variables: set[str]) -> list[SchemaProblem]:
    return [
        SchemaProblem(path, f"{{{name}}} is no variable of the URI.")
        for path, text in _texts(config, ())
        # The base URL is no template.
        if path[0] != "base_url"
        for name in sorted(templates.parse(text).arguments - variables)
    ]


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    entries: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        yield from _texts(inner, (*path, name))


def _is_audience(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(role, str) and role in ROLES for role in value)


def _is_priority(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_moment(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


AUDIENCE = Shape(_is_audience, 'write a list of "user" and "assistant".')
PRIORITY = Shape(_is_priority, "write a number from 0 to 1.")
MOMENT = Shape(_is_moment, "write a time, such as 2026-01-31T12:00:00Z.")
