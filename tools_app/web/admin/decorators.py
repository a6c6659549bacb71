"""Typed wrappers around unfold's decorators."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from unfold.decorators import action, display
from unfold.enums import ActionVariant

Method = TypeVar("Method", bound=Callable[..., Any])


def column(description: str, *, ordering: str | None = None, boolean: bool | None = None) -> Callable[[Method], Method]:
    """Declare a method whose value is shown as a column or read-only field."""
    return cast(
        "Callable[[Method], Method]",
        display(description=description, ordering=ordering, boolean=boolean),
    )


def button(
    description: str, *, url_path: str, permissions: Sequence[str], icon: str, danger: bool = False
) -> Callable[[Method], Method]:
    """Declare a view behind a button of a list or detail page, available to users with the `permissions`."""
    variant = ActionVariant.DANGER if danger else ActionVariant.DEFAULT
    return cast(
        "Callable[[Method], Method]",
        action(description=description, url_path=url_path, permissions=permissions, icon=icon, variant=variant),
    )
