"""A measurement as a table: kept as JSON between runs, shown as Markdown."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles


@dataclass(frozen=True)
class Table:
    """Columns, rows of texts, what has to be said about them, and what went wrong: nothing, in a run that counts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=list)
    faults: Sequence[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The table, its first column to the left and all figures to the right, and below it the rest."""
        alignment = ["---", *("---:" for _ in self.columns[1:])]
        lines = [_line(row) for row in (self.columns, alignment, *self.rows)]
        texts = [*self.notes, *(f"**Fault:** {fault}" for fault in self.faults)]
        return "\n".join([*lines, *(f"\n{text}" for text in texts)])


@dataclass(frozen=True)
class Result:
    """A table, and when, where and by which command it was measured."""

    name: str
    date: str
    command: str
    machine: Sequence[tuple[str, str]]
    table: Table


def milliseconds(times: Sequence[float]) -> tuple[str, str]:
    """The median and the 99th percentile of at least two times in seconds, as cells."""
    return f"{median(times) * 1000:.1f}", f"{quantiles(times, n=100, method='inclusive')[98] * 1000:.1f}"


def save(result: Result, path: Path) -> None:
    """Keep a result, in place of an earlier one of the same name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**results, result.name: asdict(result)}, indent=1))


def load(path: Path) -> dict[str, Result]:
    """The results that are kept. Raises FileNotFoundError."""
    results = json.loads(path.read_text())
    return {name: Result(**{**fields, "table": Table(**fields["table"])}) for name, fields in results.items()}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
