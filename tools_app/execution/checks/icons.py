"""What can be wrong with the icons of tools, resources and prompts (tools, §Tool)."""

import re
from typing import Any

from tools_app.execution.checks.shapes import TEXT, TEXTS, Shape, list_faults
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
