"""The index of the tool search: terms, construction, and toolsets."""

import asyncio
import threading
from time import thread_time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tools_app.catalog import search
from tools_app.catalog.search import SearchIndex
from tools_app.catalog.toolsets import Resolver


def tool(name: str, description: str = "") -> Any:
    definition = SimpleNamespace(name=name, title="", description=description, input_schema={})
    return SimpleNamespace(name=name, definition=definition, aliases=())


def catalog(*tools: Any, version: bytes = b"1") -> Any:
    return SimpleNamespace(tenant_id=uuid4(), version=version, tools={one.name: one for one in tools})


def index(*tools: Any) -> SearchIndex:
    return SearchIndex(b"1", {one.name: one for one in tools})


def test_an_index_of_any_catalog_fits_the_cache_and_each_tool_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "MAX_POSTINGS", 600)
    words = " ".join(f"w{n}x" for n in range(400))
    built = index(*(tool(f"name{n}", words) for n in range(100)))
    assert built.postings <= 600
    assert [hit.name for hit in built.search("name99", {"name99", "name1"})] == ["name99"]
    monkeypatch.setattr(search, "MAX_VOCABULARY", 10)
    assert index(tool("a", words)).size < 10 * search.TERM_BYTES + 10 * search.POSTING_BYTES + 1000
    assert search.MAX_POSTINGS * search.POSTING_BYTES + 25_000 * search.TERM_BYTES < search.MAX_INDEX_BYTES / 2


def test_words_that_begin_the_terms_of_hidden_tools_keep_nothing_busy() -> None:
    hidden = [tool(f"t{n}", " ".join(f"abcdefghijklmnop{n}q{m}x" for m in range(150))) for n in range(100)]
    built = index(tool("seen", "abcdefghijklmnopz"), *hidden)
    began = thread_time()
    query = " ".join("abcdefghijklmnop"[:length] for length in range(3, 17))
    assert [hit.name for hit in built.search(query, {"seen"})] == ["seen"]
    assert thread_time() - began < 10
    assert len(built.search("abc", {one.name for one in hidden})) <= search.MAX_COMPLETIONS


def test_searches_of_a_version_share_one_build_and_no_tenant_waits_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, begun, built = threading.Event(), threading.Event(), []
    slow, quick = catalog(tool("echo")), catalog(tool("echo"))

    class Slow(SearchIndex):
        def __init__(self, version: bytes, tools: Any) -> None:
            built.append(tools)
            if tools is slow.tools:
                begun.set()
                assert go.wait(10)
            super().__init__(version, tools)

    async def searched() -> None:
        waiting = [asyncio.create_task(search.search(slow, "echo", {"echo"})) for _ in range(3)]
        assert await asyncio.to_thread(begun.wait, 10)
        assert len(await search.search(quick, "echo", {"echo"})) == 1
        waiting[0].cancel()
        newer = SimpleNamespace(tenant_id=slow.tenant_id, version=b"2", tools={"other": tool("other")})
        waiting.append(asyncio.create_task(search.search(newer, "other", {"other"})))
        await asyncio.sleep(0)
        assert len(built) == 2
        go.set()
        assert [len(await one) for one in waiting[1:]] == [1, 1, 1]
        assert len(built) == 3

    monkeypatch.setattr(search, "SearchIndex", Slow)
    asyncio.run(searched())


def test_a_large_index_is_searched_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MANY_POSTINGS", 0)
    assert [hit.name for hit in asyncio.run(search.search(catalog(tool("echo")), "echo", {"echo"}))] == ["echo"]


def test_a_toolset_has_the_names_that_its_entries_and_patterns_fit() -> None:
    resolver = Resolver(["echo", "report_a", "report_b", "my_report", "x"])
    found = resolver.resolve(["echo", "report_*", "*_report", "gone", "none*"])
    assert found.names == {"echo", "report_a", "report_b", "my_report"}
    assert (found.covers("gone"), found.covers("none_more"), found.covers("other")) == (True, True, False)
