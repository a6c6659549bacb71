"""A measurement as a table: kept as JSON between runs, shown as Markdown."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Table:
    """Columns, rows of texts, what has to be said about them, and what went wrong: nothing, in a run that counts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=list)
    faults: Sequence[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The table, its first column to the left and all figures to the right, and below it the rest."""
        marks = ["---", *("---:" for _ in self.columns[1:])]
        lines = [_line(row) for row in (self.columns, marks, *self.rows)]
        said = [*self.notes, *(f"**Fault:** {fault}" for fault in self.faults)]
        return "\n".join([*lines, *(f"\n{text}" for text in said)])


@dataclass(frozen=True)
class Result:
    """A table, and when, where and by which command it was measured."""

    name: str
    date: str
    command: str
    machine: Sequence[tuple[str, str]]
    table: Table


def save(result: Result, path: Path) -> None:
    """Keep a result, in place of an earlier one of the same name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**kept, result.name: asdict(result)}, indent=1))


def saved(path: Path) -> dict[str, Result]:
    """The results that are kept. Raises FileNotFoundError."""
    kept = json.loads(path.read_text())
    return {name: Result(**{**one, "table": Table(**one["table"])}) for name, one in kept.items()}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
