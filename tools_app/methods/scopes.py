"""Checks on the scopes of a key as people type them, one at a time, with messages that say what to write instead."""

import ipaddress

from django.core.exceptions import ValidationError

from tools_app.auth.principal import matches
from tools_app.methods.permitting import METHODS
from tools_app.models.validators import validate_patterns


def check_pattern(line: str) -> None:
    """Raise ValidationError for what is no pattern of names or URIs."""
    try:
        validate_patterns([line])
    except ValidationError as problem:
        raise ValidationError([text.removeprefix("Entry 1: ") for text in problem.messages]) from problem


def check_method(line: str) -> None:
    """Raise ValidationError for a pattern that means no method of the hub: it would open nothing."""
    check_pattern(line)
    if not any(matches(method, [line]) for method in METHODS):
        raise ValidationError(f"the hub has no method {line}. It has: {', '.join(METHODS)}.")


def check_network(line: str) -> None:
    """Raise ValidationError for what is no network in CIDR form, with what may have been meant."""
    try:
        ipaddress.ip_network(line)
    except ValueError as problem:
        raise ValidationError(_meant(line)) from problem


def _meant(line: str) -> str:
    try:
        return f"{line} has bits set outside of its network: write {ipaddress.ip_network(line, strict=False)}."
    except ValueError:
        return f"{line} is no network: write one such as 203.0.113.0/24, 203.0.113.7 or 2001:db8::/32."
