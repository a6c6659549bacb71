"""Checks on values that an admin types, with messages that say what to write instead."""

import ipaddress
import re
from collections.abc import Sequence

from django.core.exceptions import ValidationError

MOST_ENTRIES = 200
PATTERN = re.compile(r"^[A-Za-z0-9_.:/*{}+-]{1,500}\Z")


def validate_networks(value: object) -> None:
    """Raise ValidationError unless `value` is a list of CIDR strings."""
    for position, entry in enumerate(_strings(value)):
        try:
            ipaddress.ip_network(entry)
        except ValueError as problem:
            raise ValidationError(f"Entry {position + 1}: {problem}.") from problem


def validate_key_names(value: object) -> None:
    """Raise ValidationError unless `value` is a list of non-empty strings."""
    for position, entry in enumerate(_strings(value)):
        if not entry.strip():
            raise ValidationError(f"Entry {position + 1} is empty.")


def validate_patterns(value: object) -> None:
    """Raise ValidationError unless `value` is a list of patterns: names or URIs in which `*` stands for anything."""
    for position, entry in enumerate(_strings(value)):
        if not PATTERN.match(entry):
            raise ValidationError(f"Entry {position + 1}: use the characters of a name or a URI, and * for anything.")


def _strings(value: object) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValidationError("Write a JSON list of strings.")
    if len(value) > MOST_ENTRIES:
        raise ValidationError(f"At most {MOST_ENTRIES} entries.")
    return value
