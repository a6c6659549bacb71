"""Writes the kept results into a document: `python -m benchmarks.report [docs/performance.md]`.

A table goes between `<!-- NAME -->` and `<!-- /NAME -->`, the facts of the newest run between those of `machine`.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.hub import PROJECT
from benchmarks.plan import RESULTS
from benchmarks.table import Result, Table, saved

DOCUMENT = PROJECT / "docs" / "performance.md"
MACHINE = "machine"


class NoPlace(Exception):
    """The document has no place for a result."""


def put(text: str, name: str, part: str) -> str:
    """The document with `part` between the marks of `name`. Raises NoPlace."""
    place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
    written, places = place.subn(lambda found: f"{found[1]}\n{part}\n\n{found[2]}", text)
    if not places:
        raise NoPlace(name)
    return written


def check(names: Iterable[str]) -> None:
    """Raise NoPlace if the document has no place for one of these."""
    text = DOCUMENT.read_text()
    for name in (MACHINE, *names):
        put(text, name, "")


def shown(result: Result) -> str:
    """A result as the document shows it."""
    return f"{result.table.markdown()}\n\nMeasured on {result.date}: `{result.command}`"


def main() -> None:
    """Write every kept result into the document."""
    document = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    results = saved(RESULTS)
    text = document.read_text()
    for name, result in results.items():
        text = put(text, name, shown(result))
    newest = max(results.values(), key=lambda result: result.date)
    text = put(text, MACHINE, Table(("what", "which"), newest.machine).markdown())
    document.write_text(text)


if __name__ == "__main__":
    main()
