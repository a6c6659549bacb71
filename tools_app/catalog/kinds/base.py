"""What a kind of tools is: how its tools are validated, compiled, and described in a tenant's file."""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Final, Protocol, TypeVar

from tools_app.catalog.kinds.registry import KINDS
from tools_app.catalog.models import TOOL_SETTINGS
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import Result
from tools_app.models import ApiSource, TaskSupport, Tenant, Tool

T = TypeVar("T")

# In a tenant's file, the fields of a tool whose definition an admin writes.
WRITTEN: Final = (
    "title",
    "description",
    "input_schema",
    "output_schema",
    "annotations",
    "icons",
    "background",
    "task",
    "timeout_seconds",
    *TOOL_SETTINGS,
)


@dataclass(frozen=True)
class ToolDefinition:
    """The definition of a tool for clients (tools, §Tool), for all kinds."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    annotations: Mapping[str, Any]
    icons: Sequence[Mapping[str, Any]] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


class Runner(Protocol):
    """Runs one tool, or reads one resource or prompt, with validated arguments.

    Raises ToolError for a failure that the model may read, CallCancelled when the call was cancelled; any other
    exception becomes a generic error for the client and a cause in the audit log.
    """

    def __call__(self, arguments: dict[str, Any], context: ToolContext) -> Coroutine[Any, Any, Result]:
        """Run the tool."""


# Returns the URIs of resources that arguments name, each with the name of its argument.
NamedResources = Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]]
NO_SUCH_RESOURCE: Final = "There is no text or file with this URI among the resources that you may read."


@dataclass(frozen=True)
class Implementation:
    """A compiled tool as its kind makes it: what clients see, and how it runs.

    `needs_person` means that it is offered only to callers that act for a person.
    """

    definition: ToolDefinition
    run: Runner
    background: bool
    task: TaskSupport
    timeout_seconds: float
    needs_person: bool = False
    named_resources: NamedResources | None = None


class Compilation:
    """What the rows of one catalog are compiled with: the tenant, its secrets, and what kinds read for all rows."""

    def __init__(self, tenant: Tenant, secrets: Mapping[str, str]) -> None:
        self.tenant = tenant
        self.secrets = secrets
        self._loaded: dict[Any, Any] = {}

    def once(self, load: Callable[["Compilation"], T]) -> T:
        """Return what `load` returns, which is called for the first row only."""
        if load not in self._loaded:
            self._loaded[load] = load(self)
        loaded: T = self._loaded[load]
        return loaded


class Kind:
    """A kind of tools. `name` is that of `kinds.registry`.

    `config_help` describes `Tool.config` in the REST API. `follows_code`: code declares its tools, and `adopt` copies
    the declaration. `lenient`: its schemas may have regular expressions that the hub does not check. `history` is shown
    above the revisions of a tool that people cannot restore.

    A tenant's file describes the configuration in `file_field`, which has the type `file_type`, beside `file_settings`;
    "" leaves its tools out of files. `file_hint` says what to write.
    """

    name: ClassVar[str]
    config_help: ClassVar[str] = ""
    follows_code: ClassVar[bool] = False
    lenient: ClassVar[bool] = False
    history: ClassVar[str] = ""
    file_field: ClassVar[str] = ""
    file_type: ClassVar[type] = dict
    file_hint: ClassVar[str] = "must be an object."
    file_settings: ClassVar[tuple[str, ...]] = WRITTEN

    def faults(self, tool: Tool) -> Iterator[tuple[str, str]]:
        """Yield the errors of a tool, each with its field: `config.` and a name for one of its configuration."""
        raise NotImplementedError

    def request_faults(self, _tool: Tool, _given: dict[str, Any], _former: Tool | None) -> Mapping[str, Iterable[str]]:
        """Return what is wrong with a request to the REST API besides `faults`, by field.

        `given` are its values, which `tool` has already, and `former` is the stored tool, None if it is new.
        """
        return {}

    def compile(self, tool: Tool, compilation: Compilation) -> Implementation:
        """Return what clients see of a valid tool, and how it runs. Raises ValueError or UnknownFunction."""
        raise NotImplementedError

    def adopt(self, tool: Tool) -> None:
        """Copy into the row what its code declares. Raises UnknownFunction if no installed app has it."""

    def secret_names(self, _config: Mapping[str, Any]) -> set[str]:
        """Return the names of the secrets that a configuration uses, which may be invalid."""
        return set()

    def restore_problem(self, _tool: Tool, _definition: Mapping[str, Any]) -> str:
        """Return why an earlier definition, of this or another kind, cannot be restored; "" if it can."""
        return ""

    def clone_problem(self, _tool: Tool, _tenant: Tenant) -> str:
        """Return why a tool cannot be copied to a tenant; "" if it can."""
        return ""

    def origin(self, tool: Tool, config: Mapping[str, Any]) -> str:
        """Return where a tool comes from, with the configuration of one of its revisions."""
        raise NotImplementedError

    def to_file(self, tool: Tool) -> Any:
        """Return what a tenant's file says in `file_field`."""
        return tool.config

    def file_config(self, value: Any) -> Mapping[str, Any]:
        """Return the configuration of the value in a file, which has the type `file_type`."""
        config: Mapping[str, Any] = value
        return config

    def from_file(self, tool: Tool, _value: Any, _sources: Mapping[str, ApiSource]) -> None:
        """Write what else the value of a file says into a tool that has its other fields already.

        `sources` are the API sources of the tenant and of the file, by name.
        """
        tool.source, tool.operation, tool.generated = None, "", {}


class UnknownKind(ValueError):
    """The hub has no kind of this name, any more."""


def kind_of(name: str) -> Kind:
    """Return a kind. Raises UnknownKind."""
    if name not in KINDS:
        raise UnknownKind(f"This hub has no tools of the kind {name!r}.")
    kind: Kind = import_module(f"{KINDS[name][1]}.kind").KIND
    return kind


def all_kinds() -> dict[str, Kind]:
    """Return all kinds by name."""
    return {name: kind_of(name) for name in KINDS}


def following_code() -> list[str]:
    """Return the names of the kinds whose tools are declared by code."""
    return [name for name, kind in all_kinds().items() if kind.follows_code]


def written(tool: Tool, run: Runner, named_resources: NamedResources | None = None) -> Implementation:
    """Return a tool whose row has its whole definition."""
    definition = ToolDefinition(
        tool.name, tool.title, tool.description, tool.input_schema, tool.output_schema, tool.annotations, tool.icons
    )
    task = TaskSupport(tool.task)
    return Implementation(definition, run, tool.background, task, tool.timeout_seconds, named_resources=named_resources)
