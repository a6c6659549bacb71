"""Field masks: JMESPath expressions that select parts of JSON, evaluated within a bounded number of steps.

A few functions of JMESPath are left out, because they make texts of any length: `join`, `map` and `to_string`. What an
expression repeats is counted again each time, so that no short expression makes a large value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import sleep
from typing import Any, Final

from jmespath import functions, parser, visitor
from jmespath.exceptions import JMESPathError

MAX_MASK_LENGTH: Final = 500
MAX_STEPS: Final = 1_000_000
# So many characters of a text count as one step.
CHARACTERS_OF_A_STEP: Final = 32
# How many steps a thread takes before another one may run.
STEPS_AT_ONCE: Final = 1_000
LEFT_OUT: Final = frozenset({"join", "map", "to_string"})
FUNCTIONS: Final[Mapping[str, Any]] = {
    name: spec for name, spec in functions.Functions.FUNCTION_TABLE.items() if name not in LEFT_OUT
}


class MaskError(ValueError):
    """A mask is invalid, or cannot be applied to a value. The message says why."""


@dataclass(slots=True)
class StepBudget:
    """The steps that are left for all parts of one result."""

    left: int = MAX_STEPS


class FieldMask:
    """A parsed mask."""

    def __init__(self, expression: str) -> None:
        """Parse a mask. Raises MaskError."""
        if len(expression) > MAX_MASK_LENGTH:
            raise MaskError(f"A mask has at most {MAX_MASK_LENGTH} characters.")
        try:
            self._tree: dict[str, Any] = parser.Parser().parse(expression).parsed
        except (JMESPathError, ValueError) as problem:
            raise MaskError(f"This is no JMESPath expression: {problem}") from problem
        except RecursionError as problem:
            raise MaskError("The expression is nested too deeply.") from problem
        _check_functions(self._tree)

    def apply(self, value: Any, budget: StepBudget | None = None) -> Any:
        """Return what the mask selects of JSON data. Raises MaskError. Not for the event loop: it may take a second."""
        try:
            return _Interpreter(budget or StepBudget()).visit(self._tree, value)
        except MaskError:
            raise
        except (JMESPathError, ValueError, TypeError, ArithmeticError) as problem:
            # Its message may contain values of the data.
            raise MaskError(f"It does not fit this result ({type(problem).__name__}).") from problem
        except RecursionError as problem:
            raise MaskError("The result is nested too deeply.") from problem


def _check_functions(tree: dict[str, Any]) -> None:
    """Raise MaskError for a function that masks do not have, or one with a wrong number of arguments."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        children = [child for child in node.get("children", ()) if isinstance(child, dict)]
        waiting.extend(children)
        if node["type"] != "function_expression":
            continue
        name, given = node["value"], len(children)
        if name not in FUNCTIONS:
            raise MaskError(f"Masks have no function {name}(). They have: {', '.join(sorted(FUNCTIONS))}.")
        signature = FUNCTIONS[name]["signature"]
        is_open = bool(signature and signature[-1].get("variadic"))
        if given < len(signature) or (given > len(signature) and not is_open):
            raise MaskError(f"The function {name}() takes {len(signature)} arguments, not {given}.")


class _Interpreter(visitor.TreeInterpreter):
    """Evaluates one mask once, and counts its steps."""

    def __init__(self, budget: StepBudget) -> None:
        super().__init__()
        self._budget = budget
        self._until_pause = STEPS_AT_ONCE

    def visit(self, node: dict[str, Any], *args: Any, **options: Any) -> Any:
        self._count(1)
        return super().visit(node, *args, **options)

    def visit_multi_select_list(self, node: dict[str, Any], value: Any) -> Any:
        return self._counted(super().visit_multi_select_list(node, value))

    def visit_multi_select_dict(self, node: dict[str, Any], value: Any) -> Any:
        return self._counted(super().visit_multi_select_dict(node, value))

    def visit_function_expression(self, node: dict[str, Any], value: Any) -> Any:
        found = super().visit_function_expression(node, value)
        self._count(_size(found))
        return found

    def visit_flatten(self, node: dict[str, Any], value: Any) -> Any:
        found = super().visit_flatten(node, value)
        self._count(_size(found))
        return found

    def _counted(self, created: Any) -> Any:
        """Count all that a new object or list contains: it may contain the same value many times."""
        waiting = [created]
        while waiting:
            value = waiting.pop()
            self._count(1 + _size(value))
            if isinstance(value, dict):
                waiting.extend(value.values())
            elif isinstance(value, list):
                waiting.extend(value)
        return created

    def _count(self, steps: int) -> None:
        self._budget.left -= steps
        if self._budget.left < 0:
            raise MaskError(f"The mask takes more than {MAX_STEPS} steps.")
        self._until_pause -= steps
        if self._until_pause < 0:
            self._until_pause = STEPS_AT_ONCE
            sleep(0)  # the event loop does not wait for this thread


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) // CHARACTERS_OF_A_STEP
    return len(value) if isinstance(value, list | dict) else 0
