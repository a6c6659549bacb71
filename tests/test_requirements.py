"""The requirements of the specification and the tests that show each of them, checked in both directions.

`tests/requirements/README.md` describes the manifest. Tests are parsed and not run, so that those count, too, which
need a browser or servers.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
MANIFEST = TESTS / "requirements"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
FILES = (*REVISIONS, "tasks")
LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT")
ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Requirement:
    """One table of the manifest, with its `id` and `file`."""

    id: str
    file: str
    level: str = ""
    section: str = ""
    says: str = ""
    see: str = ""
    applies: bool = True
    because: str = ""
    conformance: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    """One use of `@pytest.mark.shows`. Arguments that are not literals are None."""

    place: str
    ids: tuple[str | None, ...]
    stands_well: bool


@cache
def tables(file: str) -> dict[str, dict[str, Any]]:
    """The tables of one file by ID."""
    written = tomllib.loads((MANIFEST / f"{file}.toml").read_text(encoding="utf-8"))
    written.pop("dropped", None)
    return {f"{area}.{name}": table for area, named in written.items() for name, table in named.items()}


@cache
def dropped(file: str) -> tuple[str, ...]:
    """The requirements that a revision drops: IDs, and areas such as `batch.*`."""
    return tuple(tomllib.loads((MANIFEST / f"{file}.toml").read_text(encoding="utf-8")).get("dropped", ()))


@cache
def requirements() -> tuple[Requirement, ...]:
    """All requirements of the manifest."""
    known = {field.name for field in fields(Requirement)}
    return tuple(
        Requirement(
            **{
                **{name: value for name, value in table.items() if name in known},
                "id": id,
                "file": file,
                "conformance": tuple(table.get("conformance", ())),
            }
        )
        for file in FILES
        for id, table in tables(file).items()
    )


@cache
def scenarios() -> tuple[str, ...]:
    """The scenarios of the conformance suite."""
    lines = (MANIFEST / "scenarios.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@cache
def marks() -> tuple[Mark, ...]:
    """All uses of the marker under `tests`."""
    return tuple(mark for path in sorted(TESTS.rglob("*.py")) for mark in _marks_in(path))


def _marks_in(path: Path) -> Iterator[Mark]:
    text = path.read_text(encoding="utf-8")
    if ".shows" not in text:
        return
    tree = ast.parse(text, filename=str(path))
    good = {id(call) for call in _where_pytest_looks(tree)} if path.name.startswith("test_") else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_marker(node.func):
            ids = tuple(_text(argument) for argument in node.args)
            yield Mark(f"{path.relative_to(TESTS.parent)}:{node.lineno}", ids, id(node) in good and not node.keywords)


def _where_pytest_looks(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _is_collected(node):
            yield from node.decorator_list
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and _names(statement.targets) == ["pytestmark"]:
            value = statement.value
            yield from value.elts if isinstance(value, ast.List) else [value]


def _is_collected(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return node.name.startswith("Test" if isinstance(node, ast.ClassDef) else "test_")


def _is_marker(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function) == "pytest.mark.shows"


def _names(targets: Iterable[ast.expr]) -> list[str]:
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _text(argument: ast.expr) -> str | None:
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


def faults_of(id: str, table: dict[str, Any]) -> Iterator[str]:
    """The format errors of one table."""
    if not ID.fullmatch(id):
        yield "the id is not of the form area.what-it-is-about"
    unknown = table.keys() - ({field.name for field in fields(Requirement)} - {"id", "file"})
    if unknown:
        yield f"unknown fields: {', '.join(sorted(unknown))}"
    if table.get("level") not in LEVELS:
        yield f"the level is none of {', '.join(LEVELS)}"
    yield from (f"{name} is missing" for name in ("section", "says") if not table.get(name))
    if not str(table.get("says", "")).endswith("."):
        yield "`says` is not a sentence"
    if (table.get("applies", True) is False) != bool(table.get("because")):
        yield "`applies = false` and `because` come together"
    if table.get("applies", True) is False and table.get("conformance"):
        yield "what does not apply needs no scenario"


def in_force() -> dict[str, set[str]]:
    """The requirements of each revision: its own, and those of the one before that it does not drop or replace."""
    required: dict[str, set[str]] = {}
    required_now: set[str] = set()
    for revision in REVISIONS:
        gone = {id for id in required_now if any(fnmatchcase(id, pattern) for pattern in dropped(revision))}
        required_now = (required_now - gone - set(replaced(revision))) | tables(revision).keys()
        required[revision] = required_now
    return required


def replaced(file: str) -> list[str]:
    """The earlier requirements that those of a file replace."""
    return [table["see"] for table in tables(file).values() if "see" in table]


def fail_with(what: str, faults: Iterable[str]) -> None:
    """Fail with one line for each fault, without a traceback."""
    lines = list(faults)
    if lines:
        pytest.fail("\n".join([f"{what} ({len(lines)}):", *(f"  {line}" for line in lines)]), pytrace=False)


def test_each_requirement_is_written_as_the_manifest_wants_it() -> None:
    fail_with(
        "Badly written requirements",
        (
            f"{file}.toml, {id}: {fault}"
            for file in FILES
            for id, t in tables(file).items()
            for fault in faults_of(id, t)
        ),
    )


def test_no_two_requirements_have_the_same_id() -> None:
    first: dict[str, str] = {}
    twice = [r for r in requirements() if first.setdefault(r.id, r.file) != r.file]
    fail_with("Ids that are taken", (f"{r.file}.toml, {r.id}: it is in {first[r.id]}.toml" for r in twice))


def test_a_revision_drops_and_replaces_only_what_the_one_before_asked_for() -> None:
    required = in_force()
    faults = [
        f"{revision}.toml: {named}"
        for before, revision in pairwise(REVISIONS)
        for named in [*dropped(revision), *replaced(revision)]
        if not any(fnmatchcase(id, named) for id in required[before])
    ]
    nothing_before = [
        f"{file}.toml: {named}" for file in (REVISIONS[0], "tasks") for named in [*dropped(file), *replaced(file)]
    ]
    fail_with("Not asked for by the revision before", faults + nothing_before)


def test_each_requirement_is_shown_by_a_test_or_a_scenario() -> None:
    shown = {id for mark in marks() if mark.stands_well for id in mark.ids}
    open_ones = [r for r in requirements() if r.applies and not r.conformance and r.id not in shown]
    fail_with("Requirements that nothing shows", (f"{r.file}  {r.level:10}  {r.id}: {r.says}" for r in open_ones))


def test_each_marker_stands_on_a_test_and_names_requirements_that_apply() -> None:
    known = {r.id: r for r in requirements()}
    faults = [f"{mark.place}: no test has this marker" for mark in marks() if not mark.stands_well]
    for mark in marks():
        if not mark.ids:
            faults.append(f"{mark.place}: the marker names nothing")
        for id in mark.ids:
            if id is None:
                faults.append(f"{mark.place}: an id has to be a text that stands there")
            elif id not in known:
                faults.append(f"{mark.place}: there is no requirement {id}")
            elif not known[id].applies:
                faults.append(f"{mark.place}: the manifest says that {id} does not apply")
    fail_with("Markers that show nothing", faults)


def test_each_scenario_is_one_of_the_conformance_suite() -> None:
    assert list(scenarios()) == sorted(set(scenarios()))
    fail_with(
        "Scenarios that the suite does not have",
        (f"{r.file}.toml, {r.id}: {name}" for r in requirements() for name in r.conformance if name not in scenarios()),
    )
