"""The documentation's tables and lists agree with the code."""

import re
import tomllib

import pytest

from tests.documented.blocks import ROOT, Block, block, blocks
from tools_app.audit.search.query import PARSERS
from tools_app.models import Outcome

NAME = re.compile(r"`(\w+)`")
ARCHITECTURE = "docs/architecture.md"
MAX_TERMS = 20
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
MESSAGE = re.compile(r"(\w+)--?>>(\w+): \S.*")
PARTICIPANT = re.compile(r"participant (\w+)(?: as \S.*)?")
OPENS = re.compile(r"(alt|opt|loop) \S.*")


def table(page: str, header: str) -> list[list[str]]:
    """The rows of the table below `header`, as cells."""
    text = (ROOT / page).read_text().partition(f"\n{header}\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in text.splitlines()[1:]]


def test_the_audit_log_page_explains_every_outcome() -> None:
    rows = table("docs/audit.md", "| outcome | meaning |")

    assert sorted(outcome for outcome, _ in rows) == sorted(Outcome.labels)


def test_the_audit_log_page_explains_every_search_parameter() -> None:
    rows = table("docs/audit.md", "| parameter | matches calls |")

    assert sorted(name for row in rows for name in NAME.findall(row[0])) == sorted(PARSERS)


# --- Architecture -------------------------------------------------------------------------------------------------


def test_the_picture_of_the_layers_is_what_import_linter_enforces() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("exhaustive"))
    picture = block(ARCHITECTURE, "management").text.splitlines()

    assert [re.split(r"\s{2,}", line)[0] for line in picture] == layers


def test_the_glossary_is_short_and_sorted() -> None:
    terms = [row[0] for row in table(ARCHITECTURE, "| term | meaning |")]

    assert 0 < len(terms) <= MAX_TERMS
    assert terms == sorted(terms)


@pytest.mark.parametrize("diagram", blocks("mermaid"), ids=str)
def test_a_sequence_diagram_is_well_formed(diagram: Block) -> None:
    first, *lines = (line.strip() for line in diagram.text.splitlines())
    participants = {found[1] for line in lines if (found := PARTICIPANT.fullmatch(line))}
    open_parts = 0

    assert first == "sequenceDiagram"
    for line in lines:
        if message := MESSAGE.fullmatch(line):
            assert {message[1], message[2]} <= participants, line
        elif OPENS.fullmatch(line):
            open_parts += 1
        elif line == "end":
            open_parts -= 1
        else:
            assert PARTICIPANT.fullmatch(line) or re.fullmatch(r"else \S.*", line), line
        assert open_parts >= 0
    assert open_parts == 0


# --- Changelog ----------------------------------------------------------------------------------------------------


def test_the_changelog_has_the_standard_sections_of_bullets_and_says_nothing_twice() -> None:
    releases = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]

    for release in releases:
        headings = re.findall(r"^### (.+)$", release, re.MULTILINE)
        lines = [line for line in release.splitlines()[1:] if line and not line.startswith(("### ", "  "))]
        assert headings == [name for name in SECTIONS if name in headings]
        assert [line for line in lines if not line.startswith("- ")] == []
        assert sorted({line[:40] for line in lines}) == sorted(line[:40] for line in lines)
