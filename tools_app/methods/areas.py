"""The areas of the specification: importing them registers the handlers of their methods."""

from typing import Final

from django.core.exceptions import ValidationError

from tools_app.core.validators import validate_patterns
from tools_app.identity.patterns import matches
from tools_app.identity.principal import UNRESTRICTED_METHODS
from tools_app.methods import completion, lifecycle, prompts, resources, subscriptions, tasks, tools
from tools_app.methods.registry import handlers

__all__ = ["AREAS", "METHODS", "check_method", "handlers"]

AREAS: Final = (completion, lifecycle, prompts, resources, subscriptions, tasks, tools)
# The methods that a key's permissions may list, in any revision: all others are always allowed. `subscriptions/listen`
# has no handler, because a transport answers it with a stream.
METHODS: Final = tuple(sorted(({name for name, _ in handlers} | {"subscriptions/listen"}) - UNRESTRICTED_METHODS))


def check_method(line: str) -> None:
    """Raise ValidationError for a pattern that matches no method of the hub: it would permit nothing."""
    validate_patterns([line])
    if not any(matches(method, [line]) for method in METHODS):
        raise ValidationError(f"the hub has no method {line}. It has: {', '.join(METHODS)}.")
