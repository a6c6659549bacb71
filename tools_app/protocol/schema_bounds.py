"""Bounds of JSON Schemas, and of the values that are checked against them (2026-07-28, base protocol, §JSON Schema
Usage).

A short schema whose references fan out can occupy a validator for hours: the number of paths to the same part of a
value grows exponentially. The paths are counted with every reference followed. A recursive reference ends there: the
validator checks each part of a value once against what refers to itself.

Regular expressions run in the linear-time engine of the validator, which supports neither look-around nor
back-references. `pattern_problems` checks every source of schemas (the admin, the REST API, files, code, forms of
tools).
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import jsonschema_rs

from tools_app.protocol.schema_keywords import DATA, REFERENCES, SCHEMA_MAPS, Path, subschemas

MAX_PARTS: Final = 100_000
MAX_ALTERNATIVES: Final = 10_000
MAX_DEPTH: Final = 64
TOO_LARGE: Final = f"it has more than {MAX_PARTS} parts"
TOO_MANY_ALTERNATIVES: Final = f"its references lead to one value along more than {MAX_ALTERNATIVES} paths"
TOO_DEEP: Final = f"it nests deeper than {MAX_DEPTH} levels"


# Keywords whose schemas describe parts of a value: its members, their names, or its entries.
_DESCENDING: Final = frozenset(
    {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"}
    | {"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"}
)
# The paths that a fraction in `multipleOf`, and an object or a list in `enum` count for: dividing by the one takes as
# long as 200 comparisons, and comparing with the other as long as four.
_DIVISION: Final = 200
_CHOICE: Final = 4


class SchemaTooComplex(ValueError):
    """A schema that is too complex."""


def check(schema: Any) -> None:
    """Raise SchemaTooComplex for a schema that is too large, or has too many paths to one value."""
    Measure(schema, only_paths=True).weigh(schema)


class Weight(NamedTuple):
    """The paths from a schema to one value, and the bytes of the compiled regular expressions on them."""

    paths: int
    pattern_bytes: int


_NOTHING: Final = Weight(0, 0)


class Measure:
    """Weighs the parts of one schema; `is_recursive` says whether one of those that were weighed contains itself.

    With `levels`, recursive references are followed as far as a value of so many levels leads, as the validator does
    when it explains what is wrong, and all values of `enum` count, because the explanation repeats them. With
    `only_paths`, nothing else counts. In both cases, more than MAX_ALTERNATIVES paths raise SchemaTooComplex.
    """

    def __init__(self, schema: Any, levels: int | None = None, *, only_paths: bool = False) -> None:
        self._target = References(schema).target
        self._levels = levels
        self._only_paths = only_paths
        self._weights: dict[tuple[int, int | None], Weight | None] = {}
        self.is_recursive = False

    def weigh(self, part: Any) -> Weight:
        """Return the weight of the schema or a part of it. Raises SchemaTooComplex."""
        try:
            return self._weigh(part, 0, self._levels)
        except RecursionError:
            raise SchemaTooComplex(TOO_DEEP) from None

    def _weigh(self, node: Any, depth: int, levels: int | None) -> Weight:
        if not isinstance(node, dict | list) or (levels is not None and levels < 0):
            return _NOTHING
        if depth > MAX_DEPTH:
            raise SchemaTooComplex(TOO_DEEP)
        key = (id(node), levels)
        if key not in self._weights:
            if len(self._weights) > MAX_PARTS:
                raise SchemaTooComplex(TOO_LARGE)
            self._weights[key] = None
            inner = (
                [self._own(node), *self._inner(node, depth + 1, levels)]
                if isinstance(node, dict)
                else [self._weigh(one, depth + 1, levels) for one in node]
            )
            weight = Weight(1 + sum(one.paths for one in inner), sum(one.pattern_bytes for one in inner))
            if weight.paths > MAX_ALTERNATIVES and (self._only_paths or levels is not None):
                raise SchemaTooComplex(TOO_MANY_ALTERNATIVES)
            self._weights[key] = weight
            return weight
        known = self._weights[key]
        # None while it is being weighed.
        self.is_recursive |= known is None
        return known or Weight(1, 0)

    def _own(self, node: Mapping[str, Any]) -> Weight:
        """Return the weight of a schema object without those in it."""
        if self._only_paths:
            return _NOTHING
        paths = _DIVISION if isinstance(node.get("multipleOf"), float) else 0
        values, names = node.get("enum"), node.get("patternProperties")
        if isinstance(values, list):
            choices = sum(isinstance(value, dict | list) for value in values)
            paths += _CHOICE * choices if self._levels is None else len(values)
        own = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
        own += names if isinstance(names, dict) else []
        return Weight(paths, sum(map(compiled_bytes, own)))

    def _inner(self, node: Mapping[str, Any], depth: int, levels: int | None) -> Iterator[Weight]:
        for keyword, value in node.items():
            below = levels - 1 if levels is not None and keyword in _DESCENDING else levels
            if keyword in REFERENCES and isinstance(value, str):
                yield self._weigh(self._target(value), 0, levels)
            elif keyword in ("$defs", "definitions") and levels is not None:
                continue  # only those that are referred to
            elif keyword in SCHEMA_MAPS and isinstance(value, dict):
                weights = [self._weigh(inner, depth, below) for inner in value.values()]
                if keyword in ("patternProperties", "dependentSchemas"):
                    yield from weights
                elif keyword == "properties" and weights:  # a value has one name
                    yield Weight(*map(max, zip(*weights, strict=True)))
            elif keyword not in DATA:
                yield self._weigh(value, depth, below)


class References:
    """Resolves the references of a schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._named = dict(_named(root))

    def target(self, reference: str) -> Any:
        """Return the part of the schema that a reference names; None if there is none."""
        if not reference.startswith("#/"):
            return self._named.get(reference.rstrip("#"), self._root if reference == "#" else None)
        node = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            node = node.get(name) if isinstance(node, dict) else None
        return node


def _named(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a schema that define an anchor or an id for references."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            for keyword, prefix in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", ""), ("id", "")):
                if isinstance(node.get(keyword), str):
                    yield prefix + node[keyword].rstrip("#"), node
            waiting += node.values()


KIB: Final = 1024
MAX_PATTERN_LENGTH: Final = 4000
MAX_PATTERNS: Final = 500
# Compiled size in bytes: of one pattern, and of all patterns of a schema.
MAX_PATTERN_BYTES: Final = 1024 * KIB
# Those of patterns that are compiled and never run.
MAX_UNCHECKED_BYTES: Final = 64 * 1024
MAX_PATTERNS_BYTES: Final = 4 * MAX_PATTERN_BYTES
# The engine's memory limit for each pattern while it matches.
_CACHE_BYTES: Final = 256 * KIB
_STEPS: Final = (1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MAX_PATTERN_BYTES)

LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES, dfa_size_limit=_CACHE_BYTES)
MAX_SHOWN: Final = 80

# Not part of the syntax: escaped characters, except for references, and character classes.
_INERT: Final = re.compile(r"\\[^1-9k]|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)", re.DOTALL)
_COUNTED: Final = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")
_UNSUPPORTED: Final = {
    "look-around": re.compile(r"\(\?<?[=!]"),
    "an atomic group": re.compile(r"\(\?>"),
    "a back-reference": re.compile(r"\\[1-9k]"),
}


def patterns(schema: Any) -> Iterator[tuple[Path, str]]:
    """Yield each regular expression of a schema with its path."""
    for path, part in subschemas(schema):
        if isinstance(part.get("pattern"), str):
            yield (*path, "pattern"), part["pattern"]
        named = part.get("patternProperties")
        for name in named if isinstance(named, dict) else ():
            yield (*path, "patternProperties", name), name


def pattern_problems(schema: Any) -> Iterator[tuple[Path, str]]:
    """Return the errors of a schema's regular expressions: the path of each invalid one and a message."""
    total = 0
    for count, (path, pattern) in enumerate(patterns(schema), 1):
        if count > MAX_PATTERNS:
            yield (), f"it has more than {MAX_PATTERNS} regular expressions"
            return
        problem = pattern_problem(pattern)
        if problem:
            yield path, problem
            continue
        total += compiled_bytes(pattern)
        if total > MAX_PATTERNS_BYTES:
            yield (), f"its regular expressions take more than {MAX_PATTERNS_BYTES // KIB} KiB together"
            return


@lru_cache(maxsize=1024)
def pattern_problem(pattern: str) -> str:
    """Return why a regular expression is not allowed in a schema, in a message that names it; "" if it is."""
    shown = repr(pattern if len(pattern) <= MAX_SHOWN else pattern[:MAX_SHOWN] + "…")
    if len(pattern) > MAX_PATTERN_LENGTH:
        return f"{shown} is longer than {MAX_PATTERN_LENGTH} characters"
    if compiled_bytes(pattern) <= MAX_PATTERN_BYTES:
        return ""
    return f"{shown} {_refusal(pattern)}"


def backtracking_in(pattern: str) -> str:
    """Return what a pattern uses that only engines with backtracking have; "" if nothing. Does not compile it."""
    bare = _INERT.sub("", pattern[:MAX_PATTERN_LENGTH])
    return next((kind for kind, sign in _UNSUPPORTED.items() if sign.search(bare)), "")


def needs_backtracking(pattern: str) -> bool:
    """Whether a pattern is valid, but only for an engine with backtracking. It is compiled for one, and never run."""
    options = jsonschema_rs.FancyRegexOptions(size_limit=MAX_UNCHECKED_BYTES)
    is_candidate = len(pattern) <= MAX_PATTERN_LENGTH and backtracking_in(pattern) != ""
    return is_candidate and compiled_bytes(pattern) > MAX_PATTERN_BYTES and _compiles(pattern, options)


def _refusal(pattern: str) -> str:
    if kind := backtracking_in(pattern):
        return f"uses {kind}, which is not supported because its time has no bound: rewrite it without"
    if _compiles(_COUNTED.sub(_once, pattern), LINEAR):
        return "is too large when compiled: repeat less, or bound the length with maxLength"
    return "is not a valid regular expression, or is too large when compiled"


def _once(counted: re.Match[str]) -> str:
    least, most = counted.groups()
    return counted[0] if most and int(most) < int(least) else ""


@lru_cache(maxsize=1024)
def compiled_bytes(pattern: str) -> int:
    """Return the approximate compiled size of a pattern, which is also its cost for each byte of a text.

    More than MAX_PATTERN_BYTES for a pattern that the linear-time engine rejects.
    """
    fits = (step for step in _STEPS if _compiles(pattern, jsonschema_rs.RegexOptions(size_limit=step)))
    return next(fits, MAX_PATTERN_BYTES + 1)


def _compiles(pattern: str, options: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions) -> bool:
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
    except ValueError:
        return False
    return True
