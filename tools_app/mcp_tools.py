"""The demo tools: small, real, and one for each thing that a tool can do."""

import math
import operator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tools_app.toolkit import ToolContext, ToolError, tool
from tools_app.web.documentation import search
from tools_app.web.documentation.search import Hit

STEP_SECONDS = 0.1

_OPERATIONS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}
# Some JSON readers cannot represent integers beyond 64 bits.
_MAX_WHOLE = 2**63 - 1


@dataclass(frozen=True)
class Hits:
    """What a search found: at most `limit` hits, and how many there are in all."""

    result: list[Hit]
    total_count: Annotated[int, Field(serialization_alias="totalCount", ge=0)]


@tool(title="Echo", read_only=True, idempotent=True, open_world=False)
async def echo(message: str) -> str:
    """Greet back: answers `hello` and the message. Use it to check that the connection works.

    :param message: What to say hello to.
    """
    return f"hello {message}"


@tool(title="Echo my address", read_only=True, idempotent=True, open_world=False)
async def echo_ip(context: ToolContext) -> str:
    """Tell the network address from which this request reached the hub."""
    return context.caller.remote_address


@tool(title="Count", background=True, timeout=1200.0, read_only=True, idempotent=True, open_world=False)
def count(n: Annotated[int, Field(ge=0, le=10_000)], context: ToolContext) -> str:
    """Count to n in steps of 100 ms, reporting progress at each step. Use it to see progress and cancellation.

    :param n: How many steps to take.
    """
    for step in range(n):
        context.progress(step, total=n, message=f"Step {step} of {n}")
        context.sleep(STEP_SECONDS)
    return str(n)


@tool(title="Fail on purpose", read_only=True, idempotent=True, open_world=False)
def test_throw() -> str:
    """Raise an exception. Use it to see how the hub reports a tool that fails unexpectedly."""
    raise RuntimeError("test_throw was called, and this is what it does.")


@tool(title="Calculator", read_only=True, idempotent=True, open_world=False)
async def calculator(operation: Literal["add", "subtract", "multiply", "divide"], a: float, b: float) -> float:
    """Add, subtract, multiply or divide two numbers.

    :param operation: What to do with the numbers.
    :param a: The first number; the one to subtract from, or to divide.
    :param b: The second number; the one to subtract, or to divide by.
    """
    result = _computed(operation, a, b)
    if not math.isfinite(result):
        raise ToolError("The result is too large.")
    return result


@tool(title="Search the documentation", read_only=True, idempotent=True, open_world=False)
def search_docs(
    query: Annotated[str, Field(min_length=1, max_length=500)],
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
) -> Hits:
    """Search the documentation of this hub: connecting clients, writing tools, keys, audit, limits, operation.

    :param query: Words to look for. Sections that hold more of them, and rarer ones, come first.
    :param limit: The most sections to return.
    """
    hits = search.index().search(query)
    return Hits(result=hits[:limit], total_count=len(hits))


def _computed(operation: str, a: float, b: float) -> float:
    """Keep integers exact up to 64 bits; a result out of range is infinite. Raises ToolError."""
    try:
        result: float = _OPERATIONS[operation](a, b)
        return result if abs(result) <= _MAX_WHOLE else float(result)
    except ZeroDivisionError as problem:
        raise ToolError("Cannot divide by zero.") from problem
    except OverflowError:
        return math.inf
