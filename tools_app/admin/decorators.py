"""unfold's decorators, which come without types, with types."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from unfold.decorators import action, display
from unfold.enums import ActionVariant

Method = TypeVar("Method", bound=Callable[..., Any])
# A colour for all values, or one for each.
Label = bool | dict[Any, str]


def column(description: str, *, ordering: str | None = None, label: Label | None = None) -> Callable[[Method], Method]:
    """A method whose value is shown as a column or a read-only field, as a coloured `label` if given."""
    return cast(
        "Callable[[Method], Method]",
        display(description=description, ordering=ordering, label=label),
    )


def button(
    description: str, *, url_path: str, permissions: Sequence[str], icon: str, danger: bool = False
) -> Callable[[Method], Method]:
    """A view behind a button of a list or of a row's page, shown and open to those with the `permissions`."""
    variant = ActionVariant.DANGER if danger else ActionVariant.DEFAULT
    return cast(
        "Callable[[Method], Method]",
        action(description=description, url_path=url_path, permissions=permissions, icon=icon, variant=variant),
    )
