"""Parameters in headers: none with the name of a secret (2026-07-28, tools, §x-mcp-header)."""

from typing import Annotated, Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.validation.items import check_tool_arguments
from tools_app.protocol.mirrored import InvalidMirror
from tools_app.toolkit import header, tool


def marked(name: str, header_name: str) -> dict[str, Any]:
    inner = {"type": "object", "properties": {name: {"type": "string", "x-mcp-header": header_name}}}
    return {"type": "object", "properties": {"outer": inner}}


@pytest.mark.shows("tools.sensitive-headers")
@pytest.mark.parametrize(
    ("name", "header_name"),
    [("password", "P"), ("apiKey", "K"), ("access_token", "A"), ("pin", "N"), ("x", "Api-Key"), ("y", "Session-Token")],
)
def test_what_is_named_like_a_secret_is_refused_at_its_place(name: str, header_name: str) -> None:
    with pytest.raises(InvalidMirror, match="looks like a secret") as problem:
        python.check_header_arguments(marked(name, header_name))
    assert problem.value.path == ("properties", "outer", "properties", name)
    (found,) = check_tool_arguments(marked(name, header_name))
    assert found.path == ("properties", "outer", "properties", name)


@pytest.mark.shows("tools.sensitive-headers")
def test_code_that_marks_a_secret_is_not_loaded(registries: None) -> None:
    def log_in(password: Annotated[str, header("Word")]) -> str:
        return password

    with pytest.raises(ImproperlyConfigured, match=r"log_in: 'password' looks like a secret"):
        tool(log_in)


@pytest.mark.parametrize(("name", "header_name"), [("region", "Region"), ("max_tokens", "Max-Tokens")])
def test_all_else_may_travel(name: str, header_name: str) -> None:
    python.check_header_arguments(marked(name, header_name))
    assert check_tool_arguments(marked(name, header_name)) == []
