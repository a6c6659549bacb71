"""Validators of values that an admin enters, with messages that say what to enter instead."""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final, Literal

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator

from tools_app.core.field_mask import FieldMask, MaskError
from tools_app.core.sanitize import is_storable

MAX_ENTRIES = 200
MAX_ENTRY_LENGTH = 500
# Of a list of names, together with entries for exactly one item: all of these cost one look-up, each pattern its own.
MAX_EXACT = 1000
MAX_ALIASES = 20
MAX_ALIAS_LENGTH = 100
PATTERN = re.compile(r"^[A-Za-z0-9_.:/*{}+-]{1,500}\Z")
ItemKind = Literal["tool", "prompt", "resource"]
ITEM_KINDS: Final[tuple[ItemKind, ...]] = ("tool", "prompt", "resource")
# How an entry for exactly one item begins, and no name, URI or pattern.
STARTS: Final = tuple(f"{kind}=" for kind in ITEM_KINDS)
EXACT = re.compile(rf"^({'|'.join(STARTS)})\S{{1,{MAX_ENTRY_LENGTH}}}\Z")
MAX_EXACT_LENGTH: Final = MAX_ENTRY_LENGTH + max(map(len, STARTS))
NO_NAME: Final = (
    "use only characters of a name or URI, and * as the wildcard; or tool=, prompt= or resource= and exactly one name."
)
ONE_LINE: Final = RegexValidator(r"^[^\x00-\x1f\x7f]*\Z", "Use a single line without control characters.")


def validate_networks(value: object) -> None:
    """Raise ValidationError unless `value` is a list of CIDR strings."""
    for position, entry in enumerate(_strings(value)):
        try:
            ipaddress.ip_network(entry)
        except ValueError as problem:
            raise ValidationError(f"Entry {position + 1}: {_network_advice(entry)}") from problem


def _network_advice(entry: str) -> str:
    try:
        return f"{entry} has bits set outside of its network: write {ipaddress.ip_network(entry, strict=False)}."
    except ValueError:
        return f"{entry} is no network: write one such as 203.0.113.0/24, 203.0.113.7 or 2001:db8::/32."


def validate_key_names(value: object) -> None:
    """Raise ValidationError unless `value` is a list of non-empty strings."""
    for position, entry in enumerate(_strings(value)):
        if not entry.strip():
            raise ValidationError(f"Entry {position + 1} is empty.")


def validate_patterns(value: object) -> None:
    """Raise ValidationError unless `value` is a list of patterns: names or URIs in which `*` matches anything."""
    for position, entry in enumerate(_strings(value)):
        if not PATTERN.match(entry):
            raise ValidationError(f"Entry {position + 1}: use only characters of a name or URI, and * as the wildcard.")


def validate_names(value: object) -> None:
    """Raise ValidationError unless `value` is a list of permitted names: patterns, or `tool=NAME` for exactly one item.

    In place of `tool`, `prompt` or `resource`.
    """
    patterns = 0
    for position, entry in enumerate(_strings(value, MAX_EXACT, MAX_EXACT_LENGTH)):
        if EXACT.match(entry):
            continue
        if not PATTERN.match(entry):
            raise ValidationError(f"Entry {position + 1}: {NO_NAME}")
        patterns += 1
    if patterns > MAX_ENTRIES:
        raise ValidationError(f"At most {MAX_ENTRIES} entries that do not begin with {', '.join(STARTS)}.")


def validate_aliases(value: object) -> None:
    """Raise ValidationError unless `value` is a list of at most MAX_ALIASES short texts of one line."""
    entries = _strings(value)
    if len(entries) > MAX_ALIASES:
        raise ValidationError(f"At most {MAX_ALIASES} entries.")
    for position, entry in enumerate(entries):
        if not entry.strip() or len(entry) > MAX_ALIAS_LENGTH or not entry.isprintable():
            raise ValidationError(f"Entry {position + 1}: enter one line of 1 to {MAX_ALIAS_LENGTH} characters.")


def validate_mask(value: str) -> None:
    """Raise ValidationError unless `value` is a field mask."""
    try:
        FieldMask(value)
    except MaskError as problem:
        raise ValidationError(str(problem)) from problem


def _strings(value: object, max_entries: int = MAX_ENTRIES, max_length: int = MAX_ENTRY_LENGTH) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValidationError("Must be a JSON list of strings.")
    if len(value) > max_entries:
        raise ValidationError(f"At most {max_entries} entries.")
    for position, entry in enumerate(value):
        if len(entry) > max_length:
            raise ValidationError(f"Entry {position + 1}: at most {max_length} characters.")
        if not is_storable(entry):
            raise ValidationError(f"Entry {position + 1} contains a character that cannot be stored.")
    return value
