"""Search in the documentation, beyond what `search_docs` shows of it."""

from tools_app.web.documentation.search import Hit, Index, sections

PAGES = {
    "docs/keys.md": "# Keys\n\nA key.\n\n## Rotate a key\n\nUse `rotate` twice.\n\n### Expiry\n\nOld keys end.",
    "docs/tools.md": "# Tools\n\nA tool has a **timeout**.\n\n| option | use |\n|---|---|\n| `retry` | again |\n",
}
INDEX = Index(section for path, source in PAGES.items() for section in sections(path, source))


def places(hits: list[Hit]) -> list[str]:
    return [f"{hit.path}#{hit.anchor}" for hit in hits]


def test_a_hit_leads_to_the_anchor_of_its_section() -> None:
    assert places(INDEX.search("rotate")) == ["docs/keys.md#rotate-a-key"]


def test_text_is_found_without_its_markup() -> None:
    (hit,) = INDEX.search("retry")
    assert hit.snippet == "A tool has a timeout. option use retry again"


def test_the_beginning_of_a_word_finds_it() -> None:
    assert places(INDEX.search("timeo")) == ["docs/tools.md#tools"]
    assert INDEX.search("ti") == []


def test_suggestions_begin_with_headings() -> None:
    assert places(INDEX.suggest("Key", 3)) == ["docs/keys.md#keys", "docs/keys.md#rotate-a-key", "docs/keys.md#expiry"]
    assert places(INDEX.suggest("key", 1)) == ["docs/keys.md#keys"]


def test_a_suggestion_holds_every_word() -> None:
    assert places(INDEX.suggest("rotate twice", 3)) == ["docs/keys.md#rotate-a-key"]
    assert INDEX.suggest("rotate timeout", 3) == []


def test_matching_words_are_marked() -> None:
    assert INDEX.marked("Old Keys end. Monkeys do not.", "key") == [
        ("Old ", False),
        ("Keys", True),
        (" end. Monkeys do not.", False),
    ]
