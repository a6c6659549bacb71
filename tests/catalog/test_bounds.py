"""What a tenant stores for its catalog has the bounds of `docs/security.md`."""

import asyncio
import threading
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.web_services import WAIT_SECONDS
from tools_app.catalog import authoring, compiled, shaping, skills, stored, toolsets
from tools_app.catalog import search as tool_search
from tools_app.catalog.kinds.http import request as http_request
from tools_app.catalog.kinds.http.config import HttpConfig
from tools_app.catalog.kinds.templates import Values
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import ToolError
from tools_app.catalog.validation.resources import MAX_CHARACTERS, text_fault
from tools_app.core import field_mask, validators
from tools_app.models import Prompt, Resource, ResourceKind, Tenant

pytestmark = pytest.mark.slow


def test_arguments_that_a_prompt_repeats_have_a_bound(settings: Any) -> None:
    settings.MCPHUB_MAX_RESULT_BYTES = 1000
    row = Prompt(arguments=[{"name": "a"}], messages=[{"role": "user", "text": "{a}" * 100}])
    render = stored.renderer(row)
    assert asyncio.run(render({"a": "x" * 10}, ToolContext.__new__(ToolContext))).messages
    with pytest.raises(ToolError, match="larger than the limit of 1000 bytes"):
        asyncio.run(render({"a": "x" * 11}, ToolContext.__new__(ToolContext)))


def test_arguments_that_a_request_repeats_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "MAX_REPEATED", 1000)
    config = HttpConfig(
        method="POST", base_url="https://api.example.com", body_mode="template", body={"x": "{a}" * 100}
    )
    assert http_request.build_request(config, Values({"a": "x" * 10}, {})).body
    with pytest.raises(ToolError, match="more than 1000 characters"):
        http_request.build_request(config, Values({"a": "x" * 11}, {}))


def test_lists_of_names_and_patterns_have_bounds() -> None:
    for check in (validators.validate_key_names, validators.validate_patterns):
        check(["x" * validators.MAX_ENTRY_LENGTH] * validators.MAX_ENTRIES)
        for rejected in (["x"] * (validators.MAX_ENTRIES + 1), ["x" * (validators.MAX_ENTRY_LENGTH + 1)], ["x\0"]):
            with pytest.raises(ValidationError):
                check(rejected)


def test_lists_of_permitted_names_have_bounds() -> None:
    longest = [f"tool={'x' * validators.MAX_ENTRY_LENGTH}"] * (validators.MAX_EXACT - validators.MAX_ENTRIES)
    validators.validate_names([*longest, *["x" * validators.MAX_ENTRY_LENGTH] * validators.MAX_ENTRIES])
    for rejected in (
        ["x"] * (validators.MAX_ENTRIES + 1),
        ["tool=x"] * (validators.MAX_EXACT + 1),
        ["x" * (validators.MAX_ENTRY_LENGTH + 1)],
        [f"{longest[0]}x"],
        ["tool=x\0"],
    ):
        with pytest.raises(ValidationError):
            validators.validate_names(rejected)


def test_a_skill_of_too_many_files_is_none(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills, "MAX_FILES", 2)
    head = "---\nname: own\ndescription: x\n---\n"

    def offer_files(*names: str) -> int:
        for name in names:
            authoring.save_resource(
                Resource(
                    tenant=tenant,
                    uri=f"skill://own/{name}",
                    name=name,
                    kind=ResourceKind.TEXT,
                    text=head if name == "SKILL.md" else "x",
                )
            )
        return len(skills.skills_of(compiled.load([tenant.pk])[tenant.pk]))

    assert offer_files("SKILL.md", "one.md") == 1
    assert offer_files("two.md") == 0


def test_the_text_of_a_resource_has_a_bound() -> None:
    assert text_fault("x" * MAX_CHARACTERS, "docs://own") is None
    assert "200000 characters" in str(text_fault("x" * (MAX_CHARACTERS + 1), "docs://own"))


def test_the_frontmatter_of_a_skill_has_a_bound() -> None:
    head = "name: own\ndescription: "
    text = "x" * (skills.MAX_FRONTMATTER - len(head))
    assert skills.frontmatter(f"---\n{head}{text}\n---\n", "skill://own/SKILL.md")
    for rejected in (f"{head}{text}x", "name: &a own\ndescription: *a"):
        with pytest.raises(skills.InvalidManifest):
            skills.frontmatter(f"---\n{rejected}\n---\n", "skill://own/SKILL.md")


def test_a_pattern_of_a_toolset_has_few_wildcards() -> None:
    toolsets.check_tools(["a*" * toolsets.MAX_WILDCARDS])
    with pytest.raises(ValidationError):
        toolsets.check_tools(["a*" * (toolsets.MAX_WILDCARDS + 1)])


def test_so_many_words_of_a_tool_are_indexed(tenant: Tenant, registries: None) -> None:
    row = authoring.add_code_tools(tenant, ["echo"])[0]
    row.aliases = [f"w{n}x" for n in range(tool_search.MAX_TOOL_TERMS + 1)]
    row.save()
    tenant.refresh_from_db()
    found = compiled.of_tenant(tenant)
    index = tool_search.SearchIndex(found.version, {"echo": found.tools["echo"]})
    assert index.postings == tool_search.MAX_TOOL_TERMS


def test_aliases_of_a_tool_have_bounds() -> None:
    longest = "x" * validators.MAX_ALIAS_LENGTH
    validators.validate_aliases([longest] * validators.MAX_ALIASES)
    for rejected in (
        [longest + "x"],
        ["x"] * (validators.MAX_ALIASES + 1),
        [" "],
        ["two\nlines"],
        ["\x00"],
        ["\ud800"],
        "x",
    ):
        with pytest.raises(ValidationError):
            validators.validate_aliases(rejected)


def test_a_field_mask_has_a_bound_and_ends() -> None:
    longest = "a" * field_mask.MAX_MASK_LENGTH
    field_mask.FieldMask(longest)
    with pytest.raises(field_mask.MaskError):
        field_mask.FieldMask(longest + "a")
    with pytest.raises(field_mask.MaskError, match="steps"):
        field_mask.FieldMask("|".join(["[@,@]"] * 40)).apply({})


def test_results_that_wait_to_be_shaped_have_a_bound(tenant: Tenant) -> None:
    async def scenario() -> tuple[object, object]:
        shaper = shaping._threads()
        started, released = threading.Event(), threading.Event()
        owner = tenant.pk

        def hold() -> None:
            started.set()
            released.wait(WAIT_SECONDS)

        first = asyncio.create_task(shaper.run(owner, hold))
        assert await asyncio.to_thread(started.wait, WAIT_SECONDS)
        items = shaping.Shaping(None, 1, None)
        waiting = [
            asyncio.create_task(shaping.shape_in_thread(owner, items, b'{"content":[]}'))
            for _ in range(shaping.MAX_WAITING_OF_TENANT)
        ]
        await asyncio.sleep(0)
        beyond = await shaping.shape_in_thread(owner, items, b'{"content":[]}')
        released.set()
        await asyncio.gather(first, *waiting)
        assert beyond is not None
        return beyond.result.content, beyond.result.structured

    assert asyncio.run(scenario()) == ([{"type": "text", "text": shaping.BUSY}], None)


def test_the_part_of_a_result_has_a_bound() -> None:
    uri, limit = "result://00000000-0000-0000-0000-000000000000", shaping.MAX_PART_BYTES
    lengths = [shaping.part_of(f"{uri}?length={length}") for length in (limit, limit + 1)]
    assert [part and part.length for part in lengths] == [limit, limit]
