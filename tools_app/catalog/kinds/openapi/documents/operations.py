"""A lenient parser of OpenAPI documents of versions 2.0 to 3.2: their operations as definitions of tools.

A broken operation is skipped, with the place of the problem. A document is only refused as a whole if it cannot be read
or exceeds a bound. Parsing a large document takes seconds, so it is done by a worker.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
import orjson

from tools_app.catalog.kinds.http.config import ConfigProblem, is_header
from tools_app.catalog.kinds.openapi.config import parse_operation
from tools_app.catalog.kinds.openapi.documents import cycles, lowering, naming
from tools_app.catalog.kinds.openapi.documents.arguments import ArgumentReader, Arguments
from tools_app.catalog.kinds.openapi.documents.document import (
    Document,
    InvalidDocument,
    joined,
    listing,
    mapping,
    text_of,
)
from tools_app.catalog.kinds.openapi.documents.outputs import OutputReader
from tools_app.catalog.kinds.openapi.documents.reader import UnreadableDocument, read
from tools_app.catalog.kinds.openapi.documents.schemas import Schemas
from tools_app.catalog.kinds.openapi.documents.selection import Selection
from tools_app.catalog.tokens import tokens_of
from tools_app.catalog.validation.sizes import has_exact_numbers
from tools_app.core.sanitize import for_column, has_nul, sanitized_json
from tools_app.protocol.authoring_schema import check_input_schema, check_schema
from tools_app.protocol.schema_bounds import pattern_problems
from tools_app.protocol.schema_keywords import subschemas

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "query")
READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "QUERY"})
BODILESS: Final = frozenset({"GET", "HEAD"})
MAX_OPERATIONS: Final = 5000
MAX_PATH_LENGTH: Final = 2000
MAX_KEY_LENGTH: Final = 255
MAX_METHOD_LENGTH: Final = 20
MAX_TITLE: Final = 200
MAX_TAGS: Final = 20
MAX_TEXT: Final = 4000
MAX_NOTES: Final = 20
MAX_NOTE: Final = 500
# All definitions of a document: with shared schemas they can be much larger than it.
MAX_PARSED_BYTES: Final = 64 * 1024 * 1024
# One definition as stored and offered, below the bound on a JSON field.
MAX_DEFINITION_BYTES: Final = 240 * 1024
# An output schema that is larger is left out.
MAX_OUTPUT_BYTES: Final = 64 * 1024
VERSIONS: Final = ("2.", "3.0", "3.1", "3.2")
NO_DOCUMENT: Final = 'This is not an OpenAPI document: its top level has neither "openapi" nor "swagger".'


class Operation(msgspec.Struct, frozen=True):
    """An operation that can be a tool. `key` is its method and path, `definition` what is generated from it.

    `tokens` is about what the definition costs a model. `notes` say what was repaired in the document, and where.
    """

    key: str
    method: str
    path: str
    operation_id: str
    tags: list[str]
    definition: dict[str, Any]
    tokens: int
    notes: list[str] = []

    @property
    def name(self) -> str:
        """The name of its tool."""
        return str(self.definition["name"])


class Skipped(msgspec.Struct, frozen=True):
    """An operation that cannot be a tool: its key, the JSON pointer of the problem, and why."""

    key: str
    pointer: str
    reason: str


class ParseOptions(msgspec.Struct, frozen=True):
    """How a document is read. `cycle_depth`: cut schemas that refer to themselves at this depth; 0 to keep them.

    `selection` are patterns of the operations that are read; without any, all are.
    """

    cycle_depth: int = 0
    output_schemas: bool = False
    selection: list[str] = []


class Parsed(msgspec.Struct, frozen=True):
    """What a document contains, read with `options`. `unselected` operations were not looked at."""

    title: str
    version: str
    servers: list[dict[str, Any]]
    schemes: dict[str, dict[str, str]]
    operations: list[Operation]
    skipped: list[Skipped]
    options: ParseOptions = ParseOptions()
    unselected: int = 0


class TooManyOperations(UnreadableDocument):
    """The document has, or the selection leaves, more operations than a source may have."""


def parse(data: bytes, options: ParseOptions = ParseOptions(), kept: Collection[str] = ()) -> Parsed:  # noqa: B008
    """Return what a document contains. Raises UnreadableDocument.

    `kept` are keys of operations that are selected in any case, because they are tools.
    """
    root = read(data)
    if not isinstance(root, dict) or not {"openapi", "swagger"} & root.keys():
        raise UnreadableDocument(NO_DOCUMENT)
    document = Document(root)
    if not document.version.startswith(VERSIONS):
        raise UnreadableDocument(
            f"Version {document.version[:40]} of OpenAPI is not supported. Use a document of 2.0 to 3.2."
        )
    return _Parser(document, options, kept).parsed()


class _Parser:
    """Parses the operations of one document."""

    def __init__(self, document: Document, options: ParseOptions, kept: Collection[str]) -> None:
        self._document = document
        self._options = options
        self._selection = Selection(options.selection)
        self._kept = frozenset(kept)
        self._outputs = OutputReader(document) if options.output_schemas else None
        self._schemas = Schemas(document)
        self._arguments = ArgumentReader(document, self._schemas)
        self._schemes = sanitized_json(schemes_of(document))
        self._names: set[str] = set()
        self._bytes = 0

    def parsed(self) -> Parsed:
        """Return everything. Raises UnreadableDocument."""
        operations: list[Operation] = []
        skipped: list[Skipped] = []
        found = list(self._found(skipped))
        selected = [one for one in found if self._is_selected(*one[:3])]
        if len(selected) + len(skipped) > MAX_OPERATIONS:
            raise TooManyOperations(
                f"The document has {len(found)} operations, of which {len(selected)} are selected. A source has at most"
                f" {MAX_OPERATIONS}: select some by patterns."
            )
        for method, path, item, pointer in selected:
            key = f"{method} {path}"
            try:
                operations.append(self._operation(method, path, item, pointer))
            except InvalidDocument as problem:
                skipped.append(Skipped(key, problem.pointer, problem.reason))
            except RecursionError:
                skipped.append(Skipped(key, pointer, "It is nested too deeply."))
        about = mapping(self._document.root.get("info"))
        title, version = (for_column(text_of(about.get(name)), MAX_TITLE) for name in ("title", "version"))
        servers = sanitized_json(servers_of(self._document))
        unselected = len(found) - len(selected)
        return Parsed(title, version, servers, self._schemes, operations, skipped, self._options, unselected)

    def _is_selected(self, method: str, path: str, item: dict[str, Any]) -> bool:
        key = f"{method} {path}"
        if self._selection.is_everything or key in self._kept:
            return True
        operation = mapping(_described(method, item))
        operation_id = text_of(operation.get("operationId"))
        names = (naming.tool_name(operation_id, method, path), operation_id)
        return self._selection.includes(key, names, filter(None, map(text_of, listing(operation.get("tags")))))

    def _found(self, skipped: list[Skipped]) -> Iterator[tuple[str, str, dict[str, Any], str]]:
        """Yield method, path, path item and pointer of each operation."""
        for path, value in mapping(self._document.root.get("paths")).items():
            if path.startswith("x-"):
                continue
            try:
                item, place = self._document.object_at(value, joined("#/paths", path))
            except InvalidDocument as problem:
                skipped.append(Skipped(path, problem.pointer, problem.reason))
                continue
            for method in METHODS:
                if method in item:
                    yield method.upper(), path, item, joined(place, method)
            for method in mapping(item.get("additionalOperations")):
                yield method, path, item, joined(place, "additionalOperations", method)
            if "trace" in item:
                skipped.append(Skipped(f"TRACE {path}", joined(place, "trace"), "TRACE is not supported."))

    def _operation(self, method: str, path: str, item: dict[str, Any], pointer: str) -> Operation:
        """Return one operation. Raises InvalidDocument."""
        _check_place(method, path, pointer)
        operation, place = self._document.object_at(_described(method, item), pointer)
        if method in BODILESS:
            operation = {name: value for name, value in operation.items() if name != "requestBody"}
        # Documents tell operations of one path apart by a fragment, which is not sent, or by a query, which is.
        sent_path, _, query = path.partition("#")[0].partition("?")
        pointers = (pointer.rpartition("/")[0], place)
        arguments = self._arguments.read(operation, item.get("parameters"), sent_path, pointers)
        operation_id = text_of(operation.get("operationId"))
        input_schema = self._cut(arguments.schema(self._schemas))
        if any(pattern_problems(input_schema)):
            # Each can be used, but not all of them.
            input_schema = orjson.loads(orjson.dumps(input_schema))
            for _, part in subschemas(input_schema):
                part.pop("pattern", None)
            arguments.notes.insert(0, f"{place}: The patterns are too many or too large together, and were left out.")
        definition = {
            "name": "",
            "title": for_column(" ".join(text_of(operation.get("summary")).split()), MAX_TITLE),
            "description": _description(operation),
            "input_schema": input_schema,
            "output_schema": self._output(method, operation, place),
            "annotations": annotations_of(method),
            "config": self._config(method, (sent_path, query), item, operation, arguments),
        }
        if definition["output_schema"] and len(orjson.dumps(definition, default=str)) > MAX_DEFINITION_BYTES:
            definition["output_schema"] = None
        self._bytes += _check_definition(definition, pointer)
        if self._bytes > MAX_PARSED_BYTES:
            raise UnreadableDocument(f"The operations are larger than {MAX_PARSED_BYTES // 1024**2} MB.")
        # Only now: an operation that is skipped takes no name.
        name = naming.unique_name(naming.tool_name(operation_id, method, path), self._names)
        definition["name"] = name
        self._names.add(name)
        tags = [text for text in map(text_of, listing(operation.get("tags"))[:MAX_TAGS]) if text]
        notes = [for_column(note, MAX_NOTE) for note in dict.fromkeys(arguments.notes)][:MAX_NOTES]
        tokens = tokens_of(definition)
        return Operation(f"{method} {path}", method, path, operation_id[:200], tags, definition, tokens, notes)

    def _cut(self, schema: dict[str, Any]) -> dict[str, Any]:
        return cycles.cut(schema, self._options.cycle_depth) if self._options.cycle_depth else schema

    def _output(self, method: str, operation: dict[str, Any], pointer: str) -> dict[str, Any] | None:
        """Return the output schema, if there is to be one. One that cannot be offered is left out."""
        found = None if self._outputs is None or method == "HEAD" else self._outputs.read(operation, pointer)
        if found is None:
            return None
        output_schema = sanitized_json(self._cut(found))
        is_usable = (
            len(orjson.dumps(output_schema)) <= MAX_OUTPUT_BYTES
            and has_exact_numbers(output_schema)
            and not check_schema(output_schema)
        )
        return output_schema if is_usable else None

    def _config(
        self, method: str, sent: tuple[str, str], item: dict[str, Any], operation: dict[str, Any], arguments: Arguments
    ) -> dict[str, Any]:
        """Return how a request is sent, to a path with a query."""
        path, query = sent
        given = {one["name"] for one in arguments.parameters if one["place"] == "query"}
        pairs = parse_qsl(query, keep_blank_values=True)
        fixed = [(name, value) for name, value in pairs if name not in given and "{" not in value]
        servers: Any = next((one for one in (operation.get("servers"), item.get("servers")) if listing(one)), [])
        server = None if self._document.is_old else next(filter(None, map(server_of, listing(servers))), None)
        return {
            "method": method,
            "path": path,
            "parameters": arguments.parameters,
            **({"body": arguments.body} if arguments.body else {}),
            "security": requirements_of(self._document, operation, self._schemes),
            **({"server": server} if server else {}),
            **({"fixed_query": urlencode(fixed, quote_via=quote)} if fixed else {}),
        }


MAX_SERVERS: Final = 50
MAX_SCHEMES: Final = 50
MAX_VARIABLES: Final = 20


def schemes_of(document: Document) -> dict[str, dict[str, str]]:
    """Return the security schemes by name: where a credential is sent. Others, such as mutual TLS, are left out."""
    if document.is_old:
        found = lowering.schemes(document.root)
    else:
        found = mapping(mapping(document.root.get("components")).get("securitySchemes"))
    schemes: dict[str, dict[str, str]] = {}
    for name, scheme in list(found.items())[:MAX_SCHEMES]:
        try:
            whole, _ = document.object_at(scheme, joined("#/components/securitySchemes", name))
        except InvalidDocument:
            continue
        if sent := _sent(whole):
            schemes[name] = sent
    return schemes


def _sent(scheme: dict[str, Any]) -> dict[str, str] | None:
    match scheme.get("type"):
        case "apiKey" if text_of(scheme.get("in")) in {"header", "query", "cookie"}:
            kind, name = str(scheme["in"]), text_of(scheme.get("name"))[:200]
            return {"kind": kind, "name": name} if name and (kind != "header" or is_header(name)) else None
        case "http" if text_of(scheme.get("scheme")).lower() in {"basic", "bearer"}:
            return {"kind": text_of(scheme["scheme"]).lower(), "name": "Authorization"}
        case "oauth2" | "openIdConnect":
            return {"kind": "bearer", "name": "Authorization"}
    return None


def requirements_of(document: Document, operation: dict[str, Any], known: dict[str, Any]) -> list[list[str]]:
    """Return the alternatives of an operation's security, each a list of schemes; an empty one needs no credential."""
    wanted = operation.get("security", document.root.get("security"))
    alternatives = []
    for alternative in listing(wanted):
        names = list(mapping(alternative))
        if all(name in known for name in names):
            alternatives.append(names)
    return alternatives


def servers_of(document: Document) -> list[dict[str, Any]]:
    """Return the servers of a document, each with its variables."""
    found = lowering.servers(document.root) if document.is_old else listing(document.root.get("servers"))
    return [server for one in found[:MAX_SERVERS] if (server := server_of(one))]


def server_of(server: Any) -> dict[str, Any] | None:
    """Return a server with its variables: the default of each, and the values that it may have."""
    url = text_of(mapping(server).get("url"))
    if not url:
        return None
    variables = {}
    for name, variable in list(mapping(mapping(server).get("variables")).items())[:MAX_VARIABLES]:
        allowed = [text for text in map(text_of, listing(mapping(variable).get("enum"))) if text]
        default = text_of(mapping(variable).get("default")) or next(iter(allowed), "")
        variables[name] = {"default": default, **({"enum": allowed} if allowed else {})}
    return {"url": url, "variables": variables}


def _described(method: str, item: dict[str, Any]) -> Any:
    """Return what a path item says of a method."""
    name = method.lower()
    return item[name] if name in METHODS and name in item else item["additionalOperations"][method]


def annotations_of(method: str) -> dict[str, bool]:
    """Return the annotations of a tool by its method. Without a hint, clients assume that it destroys."""
    if method in READING:
        return {"readOnlyHint": True, "openWorldHint": True}
    annotations = {"readOnlyHint": False, "openWorldHint": True}
    if method in {"PUT", "DELETE"}:
        annotations["idempotentHint"] = True
    if method == "DELETE":
        annotations["destructiveHint"] = True
    return annotations


def _check_place(method: str, path: str, pointer: str) -> None:
    if not (method.isascii() and method.isalpha() and len(method) <= MAX_METHOD_LENGTH):
        raise InvalidDocument(pointer, "This is no HTTP method.")
    if len(path) > MAX_PATH_LENGTH or len(f"{method} {path}") > MAX_KEY_LENGTH:
        raise InvalidDocument(pointer, f"The path is longer than {MAX_KEY_LENGTH} characters.")
    if not path.startswith("/"):
        raise InvalidDocument(pointer, "The path does not start with a slash.")
    if "\\" in path or not path.isprintable():
        raise InvalidDocument(pointer, "The path contains a backslash or a control character.")


def _description(operation: dict[str, Any]) -> str:
    """Return the description, after the summary if that says something else."""
    summary = " ".join(text_of(operation.get("summary")).split())
    text = text_of(operation.get("description")).strip()
    if summary and not text.lower().startswith(summary.rstrip(".").lower()):
        text = f"{summary.rstrip('.')}.\n\n{text}".strip()
    if operation.get("deprecated") is True:
        text = f"Deprecated. {text}".strip()
    text = for_column(text, len(text))
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _check_definition(definition: dict[str, Any], pointer: str) -> int:
    """Check the definition as that of any other tool is checked, and return its bytes. Raises InvalidDocument."""
    try:
        written = orjson.dumps(definition)
    except TypeError as problem:
        raise InvalidDocument(pointer, f"It cannot be stored: {problem}.") from problem
    if len(written) > MAX_DEFINITION_BYTES:
        raise InvalidDocument(pointer, f"Its definition is larger than {MAX_DEFINITION_BYTES} bytes.")
    if has_nul(definition, written):
        raise InvalidDocument(pointer, "It contains U+0000, which cannot be stored.")
    if not has_exact_numbers(definition):
        raise InvalidDocument(pointer, "It contains a number that cannot be stored exactly.")
    try:
        parse_operation(definition["config"])
    except ConfigProblem as problem:
        raise InvalidDocument(pointer, problem.message) from problem
    problems = check_input_schema(definition["input_schema"])
    if problems:
        raise InvalidDocument(pointer, f"Its input schema is invalid: {problems[0]}")
    return len(written)
