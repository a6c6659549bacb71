"""Generated calls as lines for PostgreSQL's COPY: each shape has a template for what differs among its calls."""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Model

from benchmarks.seed_calls.generator import MICROSECOND, Made
from benchmarks.seed_calls.shapes import Shape
from tools_app.audit.recorder.entries import HASH_VERSION, Link
from tools_app.models import Call, CallPayload

# The columns that differ among the calls of a shape.
PLACES: Final = {
    "id": "%(id)s",
    "started_at": "%(at)s",
    "finished_at": "%(end)s",
    "duration_us": "%(took)d",
    "request_id": "%(number)d",
    "writer": "%(writer)s",
    "chain_position": "%(position)d",
    "chain_hash": r"\\x%(hash)s",
    "hash_version": str(HASH_VERSION),
}


class Copier:
    """Writes calls and their payloads by COPY."""

    def __init__(self) -> None:
        self._lines: dict[Shape, str] = {}

    def __call__(self, writer: UUID, piece: list[tuple[Made, Link]]) -> None:
        """Write these calls of a writer, each with its link, in the open transaction."""
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit = off")
        _copy(Call, (self._call(writer, made, link) for made, link in piece))
        _copy(CallPayload, (_payload(made) for made, _ in piece))

    def _call(self, writer: UUID, made: Made, link: Link) -> str:
        line = self._lines.get(made.shape)
        if line is None:
            line = self._lines[made.shape] = _line(made.shape)
        return line % {
            "id": made.id.hex,
            "at": made.at.isoformat(),
            "end": (made.at + made.took).isoformat(),
            "took": made.took // MICROSECOND,
            "number": made.number,
            "writer": writer.hex,
            "position": link.chain_position,
            "hash": link.chain_hash.hex(),
        }


def _copy(model: type[Model], lines: Iterable[str]) -> None:
    columns = ", ".join(f'"{field.column}"' for field in model._meta.concrete_fields)
    with connection.cursor() as cursor, cursor.copy(f'COPY "{model._meta.db_table}" ({columns}) FROM STDIN') as copy:
        copy.write("".join(lines))


def _line(shape: Shape) -> str:
    columns = []
    for field in Call._meta.concrete_fields:
        default = field.get_default() if field.has_default() or not field.null else None
        value = shape.facts.get(field.attname, default)
        columns.append(PLACES.get(field.attname) or _text(value).replace("%", "%%"))
    return "\t".join(columns) + "\n"


def _payload(made: Made) -> str:
    if made.shape.packed:
        return f"{made.id.hex}\t\t\t\\\\x{made.shape.packed.hex()}\n"
    return f"{made.id.hex}\t{_escaped(made.arguments)}\t{_escaped(made.result)}\t\\N\n"


def _text(value: Any) -> str:
    return r"\N" if value is None else _escaped(str(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\t", r"\t").replace("\n", r"\n").replace("\r", r"\r")
