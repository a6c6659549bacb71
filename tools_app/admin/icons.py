"""Icons of tools, resources and prompts, as an admin writes them (tools, §Tool)."""

import re
from typing import Any

from tools_app.admin.json_field import JsonTextField
from tools_app.admin.json_shape import TEXT, TEXTS, Shape, list_faults
from tools_app.protocol.authoring_schema import SchemaProblem

# Clients show icons to people: nothing that is sent in the clear, and no data that is not an image.
SOURCES = re.compile(r"https://[^/\s]\S*|data:image/\S+")
SOURCE = Shape(
    lambda value: isinstance(value, str) and bool(SOURCES.fullmatch(value)),
    "write an address that starts with https:// or an image that starts with data:image/.",
)


def check_icons(icons: list[Any]) -> list[SchemaProblem]:
    """The faults of a list of icons."""
    return list_faults(icons, {"src": SOURCE}, {"mimeType": TEXT, "sizes": TEXTS})


def icons_field() -> JsonTextField:
    """The field in which they are written."""
    return JsonTextField(
        kind=list,
        empty=list,
        check=check_icons,
        required=False,
        rows=4,
        help_text='E.g. [{"src": "https://example.com/icon.png", "mimeType": "image/png", "sizes": ["48x48"]}].',
    )
