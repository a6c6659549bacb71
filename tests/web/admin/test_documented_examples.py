"""The examples of docs/resources-and-prompts.md: the code registers what it shows, the JSON passes the checks."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tools_app.catalog import prompt_functions as prompts
from tools_app.catalog import resource_functions as resources
from tools_app.catalog import uri_templates
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.validation.resources import check_request
from tools_app.catalog.validation.shapes import check_prompt_arguments, check_prompt_messages
from tools_app.core.validators import validate_names

PAGE = (Path(__file__).resolve().parents[3] / "docs/resources-and-prompts.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_code_registers_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (python, prompts, resources):
        monkeypatch.setattr(registry, "_functions", {})
    module: dict[str, Any] = {"__name__": "handbook.mcp_tools"}
    for block in blocks("python"):
        exec(block, module)
    assert list(resources.all_registered()) == ["handbook://index", "handbook://pages/{page}"]
    assert list(prompts.all_registered()) == ["describe_chart", "explain"]
    assert list(python.all_registered()) == ["edit_page"]
    assert set(prompts.all_registered()["explain"].function.completers) == {"page"}
    assert [message["content"]["type"] for message in module["describe_chart"]()] == [
        "text",
        "image",
        "audio",
        "resource",
        "resource_link",
    ]


def test_the_json_passes_the_checks_of_the_forms() -> None:
    request, arguments, messages, patterns = map(json.loads, blocks("json"))
    assert check_request(request, "docs://{page}") == []
    assert check_prompt_arguments(arguments) == []
    assert check_prompt_messages(messages, ["city"]) == []
    validate_names(patterns)


def test_the_templates_stand_for_what_the_table_says() -> None:
    pages, files = uri_templates.parse("handbook://pages/{page}"), uri_templates.parse("repo://{owner}/{+path}")
    assert pages.match("handbook://pages/intro") == {"page": "intro"}
    assert pages.match("handbook://pages/a/b") is None
    assert files.match("repo://ada/src/main.py") == {"owner": "ada", "path": "src/main.py"}
    assert files.match("repo://ada") is None
