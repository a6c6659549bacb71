"""Rules on claims: what the statements of an issuer mean in its tenant."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tools_app.identity.patterns import matches
from tools_app.models import Issuer

# Of a claim, such as the groups of a person, so many values are compared.
MAX_VALUES: Final = 500
MAX_VALUE_LENGTH: Final = 1000
MAX_NAMED: Final = 10


class NoMatchingRule(Exception):
    """No rule of the tenant fits the claims; the message names those that rules look at."""


class Rule(NamedTuple):
    """What a fitting rule gives: a role to a person, names and methods to a workload (empty: all)."""

    number: int
    role: str
    names: list[str]
    methods: list[str]


def find(issuer: Issuer, claims: Mapping[str, Any]) -> Rule:
    """Return the first rule that fits. Raises NoMatchingRule."""
    for position, rule in enumerate(issuer.rules):
        if fits(rule.get("claims", {}), claims):
            return Rule(position + 1, rule.get("role", ""), rule.get("names", []), rule.get("methods", []))
    # Their values, as in "your groups (g1, g2)".
    looked_at = list(dict.fromkeys(name for rule in issuer.rules for name in rule.get("claims", {}))) or ["groups"]
    texts = [f"{name} ({', '.join(values(claims, name)[:MAX_NAMED]) or 'none'})" for name in looked_at[:MAX_NAMED]]
    raise NoMatchingRule(f"No rule of {issuer.tenant.name} fits your {', '.join(texts)}.")


def description(issuer: Issuer, rule: Rule) -> str:
    """Return which rule was used, for the record of sign-ins."""
    return f"By rule {rule.number} of {issuer.name}{': ' if rule.role else ''}{rule.role}."


def fits(wanted: Mapping[str, Any], claims: Mapping[str, Any]) -> bool:
    """Whether each wanted claim has a value that matches one of its patterns."""
    return all(any(matches(value, patterns) for value in values(claims, name)) for name, patterns in wanted.items())


def values(claims: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a claim as text. A name with dots, such as realm_access.roles, leads into objects."""
    found: Any = claims.get(name)
    if found is None and "." in name:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    several = found if isinstance(found, list) else [found]
    return [text for text in map(_text, several[:MAX_VALUES]) if text]


def names(issuer: Issuer) -> set[str]:
    """Return the names of the claims that the rules look at."""
    return {name for rule in issuer.rules for name in rule.get("claims", {})}


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int():
            return str(value)[:MAX_VALUE_LENGTH]
    return ""
