"""Rules on the claims of external tokens: which rule fits, and what is wrong with one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.core.exceptions import ValidationError

from tools_app.access.principal import matches
from tools_app.models import ClaimRule, Issuer
from tools_app.models.validators import validate_patterns

MAX_RULES: Final = 100
MAX_CONDITIONS: Final = 20
MAX_CLAIM_NAME: Final = 200
# Values of a claim that are compared; more are ignored.
MAX_VALUES: Final = 1000
MAX_SHOWN_GROUPS: Final = 10


def rule_for(issuer: Issuer, claims: Mapping[str, Any], *, roles: bool) -> ClaimRule | None:
    """Return the first rule of an issuer that the claims satisfy: with a role for people, without one for workloads."""
    return next((rule for rule in issuer.rules.all() if bool(rule.role) == roles and fits(rule, claims)), None)


def fits(rule: ClaimRule, claims: Mapping[str, Any]) -> bool:
    """Whether each condition of a rule has a value that matches one of its patterns."""
    return all(
        any(matches(value, patterns) for value in values_of(claims, claim))
        for claim, patterns in rule.conditions.items()
    )


def values_of(claims: Mapping[str, Any], claim: str) -> Sequence[str]:
    """Return the values of a claim as texts. A dot leads into an object, whole names first."""
    found: Any = claims.get(claim)
    if found is None and "." in claim:
        first, _, rest = claim.rpartition(".")
        outer = claims.get(first)
        found = outer.get(rest) if isinstance(outer, Mapping) else None
    values: Iterable[Any] = found if isinstance(found, list) else [found]
    return [_text(value) for value in list(values)[:MAX_VALUES] if isinstance(value, str | int | bool)]


def validate_conditions(conditions: object) -> None:
    """Raise ValidationError for conditions that are not claims with lists of patterns."""
    if not isinstance(conditions, dict) or len(conditions) > MAX_CONDITIONS:
        raise ValidationError(f"Write a JSON object with at most {MAX_CONDITIONS} claims.")
    for claim, patterns in conditions.items():
        if not isinstance(claim, str) or not 0 < len(claim) <= MAX_CLAIM_NAME:
            raise ValidationError(f"The name of a claim has 1 to {MAX_CLAIM_NAME} characters.")
        if not patterns:
            raise ValidationError(f"{claim}: write a list of patterns.")
        validate_patterns(patterns)


def _text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
