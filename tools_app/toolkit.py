"""What the author of a tool imports: `from tools_app.toolkit import ToolContext, ToolError, tool`."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from tools_app.execution.context import ToolContext
from tools_app.execution.kinds import python
from tools_app.execution.results import ToolError, ToolResult

__all__ = ["ToolContext", "ToolError", "ToolResult", "tool"]

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    background: bool = False,
    timeout: float = 60.0,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Callable[[Function], Function]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    background: bool = False,
    timeout: float = 60.0,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Function | Callable[[Function], Function]:
    """Offer a function, sync or async, as a tool that admins may enable: `@tool` or `@tool(background=True)`.

    Its schemas come from its type hints, its description and those of its parameters from its docstring. The
    function itself is left as it is. `timeout` is in seconds; `background` runs it in a Celery worker. What
    `read_only`, `destructive`, `idempotent` and `open_world` say becomes the hints of ToolAnnotations, over what
    `annotations` says; None leaves a hint out. Raises ImproperlyConfigured as `python.register` does.
    """
    said = {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
    hints = dict(annotations or {}) | {hint: value for hint, value in said.items() if value is not None}

    def offer(offered: Function) -> Function:
        python.register(
            offered, name=name, title=title, annotations=hints, background=background, timeout_seconds=timeout
        )
        return offered

    return offer if function is None else offer(function)
