"""Bounds of JSON Schemas, checked before compilation (2026-07-28, base protocol, §JSON Schema Usage).

A short schema whose references fan out can occupy a validator for hours: the number of paths to the same part of a
value grows exponentially. The paths are counted with every reference followed. A recursive reference ends there: how
often it is followed is bounded by the depth of the value.

Regular expressions run in the linear-time engine of the validator, which supports neither look-around nor
back-references. `pattern_problems` checks every source of schemas (the admin, the REST API, files, code, forms of
tools).
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from tools_app.protocol.schema_keywords import DATA, REFERENCES, SCHEMA_MAPS, Path, subschemas

MAX_PARTS: Final = 100_000
MAX_ALTERNATIVES: Final = 10_000
MAX_DEPTH: Final = 64
TOO_LARGE: Final = f"it has more than {MAX_PARTS} parts"
TOO_MANY_ALTERNATIVES: Final = f"its references lead to one value along more than {MAX_ALTERNATIVES} paths"
TOO_DEEP: Final = f"it nests deeper than {MAX_DEPTH} levels"


class SchemaTooComplex(ValueError):
    """A schema that is too complex."""


def check(schema: Any) -> int:
    """Count a schema's paths to one value. Raises SchemaTooComplex for too many, or too large a schema."""
    try:
        return _Measure(schema).ways(schema, 0)
    except RecursionError:
        raise SchemaTooComplex(TOO_DEEP) from None


class _Measure:
    """Traverses the objects and lists of one schema, each once."""

    def __init__(self, root: Any) -> None:
        self._ways: dict[int, int] = {}
        self._target = References(root).target

    def ways(self, node: Any, depth: int) -> int:
        """Return the number of paths from a node to one value; 1 while the node is being counted (recursion)."""
        if not isinstance(node, dict | list):
            return 0
        if depth > MAX_DEPTH:
            raise SchemaTooComplex(TOO_DEEP)
        if len(self._ways) > MAX_PARTS:
            raise SchemaTooComplex(TOO_LARGE)
        if id(node) not in self._ways:
            self._ways[id(node)] = 1
            self._ways[id(node)] = 1 + sum(self._inner(node, depth + 1))
        if self._ways[id(node)] > MAX_ALTERNATIVES:
            raise SchemaTooComplex(TOO_MANY_ALTERNATIVES)
        return self._ways[id(node)]

    def _inner(self, node: Any, depth: int) -> Iterator[int]:
        if isinstance(node, list):
            yield from (self.ways(inner, depth) for inner in node)
            return
        for keyword, value in node.items():
            if keyword in REFERENCES and isinstance(value, str):
                yield self.ways(self._target(value), 0)
            elif keyword in SCHEMA_MAPS and isinstance(value, dict):
                below = [self.ways(inner, depth) for inner in value.values()]
                # A value has one property name, and definitions alone apply to no value.
                yield sum(below) if keyword in ("patternProperties", "dependentSchemas") else max(below, default=0)
            elif keyword not in DATA:
                yield self.ways(value, depth)


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
