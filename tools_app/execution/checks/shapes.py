"""Checks of JSON that is made of objects with known fields, such as icons or a prompt's messages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tools_app.protocol.authoring_schema import Path, SchemaProblem


@dataclass(frozen=True)
class Shape:
    """What a field may hold: how to tell, and what to write instead of anything else."""

    fits: Callable[[Any], bool]
    wanted: str


Shapes = Mapping[str, Shape]

TEXT = Shape(lambda value: isinstance(value, str), "write a text.")
FLAG = Shape(lambda value: isinstance(value, bool), "write true or false.")
TEXTS = Shape(
    lambda value: isinstance(value, list) and all(isinstance(entry, str) for entry in value),
    'write a list of texts, such as ["a", "b"].',
)


def object_faults(value: Any, required: Shapes, optional: Shapes, path: Path = ()) -> list[SchemaProblem]:
    """The faults of one object: fields that are missing, unknown, or hold something else than they may."""
    known = {**required, **optional}
    if not isinstance(value, dict):
        return [SchemaProblem(path, f"write an object with {_listed(known)}.")]
    missing = [SchemaProblem(path, f"its {name} is missing.") for name in required if name not in value]
    return missing + [
        SchemaProblem((*path, name), known[name].wanted if name in known else f"there are only {_listed(known)}.")
        for name, held in value.items()
        if name not in known or not known[name].fits(held)
    ]


def list_faults(values: list[Any], required: Shapes, optional: Shapes) -> list[SchemaProblem]:
    """The faults of each object of a list."""
    return [
        problem
        for position, value in enumerate(values)
        for problem in object_faults(value, required, optional, (position,))
    ]


def _listed(known: Shapes) -> str:
    return ", ".join(known)
