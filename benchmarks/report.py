"""Writes the kept results into a document: `python -m benchmarks.report [docs/performance.md]`.

A table goes between `<!-- NAME -->` and `<!-- /NAME -->`, the facts of the newest run between those of `machine`.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.hub import PROJECT
from benchmarks.plan import RESULTS
from benchmarks.table import Result, Table, load

DOCUMENT = PROJECT / "docs" / "performance.md"
MACHINE = "machine"


class MissingMarkers(Exception):
    """The document has no place for a result."""


def insert_table(text: str, name: str, part: str) -> str:
    """The document with `part` between the marks of `name`. Raises MissingMarkers."""
    markers = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
    result, replaced = markers.subn(lambda match: f"{match[1]}\n{part}\n\n{match[2]}", text)
    if not replaced:
        raise MissingMarkers(name)
    return result


def check(names: Iterable[str]) -> None:
    """Raise MissingMarkers if the document has no place for one of these."""
    text = DOCUMENT.read_text()
    for name in (MACHINE, *names):
        insert_table(text, name, "")


def render_result(result: Result) -> str:
    """A result as the document shows it."""
    return f"{result.table.markdown()}\n\nMeasured on {result.date}: `{result.command}`"


def main() -> None:
    """Write every kept result into the document."""
    document = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    results = load(RESULTS)
    text = document.read_text()
    for name, result in results.items():
        text = insert_table(text, name, render_result(result))
    newest = max(results.values(), key=lambda result: result.date)
    text = insert_table(text, MACHINE, Table(("what", "which"), newest.machine).markdown())
    document.write_text(text)


if __name__ == "__main__":
    main()
