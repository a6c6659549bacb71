"""Icons of tools, resources and prompts, as an admin writes them (tools, §Tool)."""

from tools_app.admin.json_field import JsonTextField
from tools_app.execution.checks.icons import check_icons


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
