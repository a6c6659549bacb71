"""The list of the kinds of tools. A new kind is a folder beside this module, and a line here.

The folder has `kind.py`, with a `KIND` (`catalog.kinds.base.Kind`): what the hub does with tools of the kind. It also
has `admin/tools.py`, with a `PAGE` (`catalog.admin.tool_pages.ToolPage`): how people see and write them.
"""

from typing import Final

# The name that is stored, what people read, and the package.
KINDS: Final[dict[str, tuple[str, str]]] = {
    "python": ("Python function", "tools_app.catalog.kinds.python"),
    "http": ("HTTP request", "tools_app.catalog.kinds.http"),
    "operation": ("API operation", "tools_app.catalog.kinds.openapi"),
    "upstream": ("Upstream MCP server", "tools_app.catalog.kinds.upstream"),
}


def choices() -> list[tuple[str, str]]:
    """Return the name and the label of each kind."""
    return [(name, label) for name, (label, _) in KINDS.items()]


# For model fields and serializers.
CHOICES: Final = choices()
