"""Call queries: the filters of the audit log for the admin's list, exports, the REST API and commands.

    query = CallQuery.from_params(request.GET)        # a dict or a QueryDict; raises BadQuery(errors: {name: advice})
    page = pages.page(query, person, after=cursor)    # search/pages.py; raises BadQuery too, TextRefused for operators

The parameters are named like the fields below, and each is a text; `outcome` may be repeated, or separated by commas.
Missing and empty parameters are ignored, as are unknown names: `PARAMETERS` lists all names.

| parameter | finds calls |
|---|---|
| `tenant` | of this tenant: its id or slug |
| `tool` | of this tool, prompt or resource; `*` stands for any characters: `search_*` |
| `key` | with this API key: its id, or `anonymous` |
| `client` | whose client's name contains this |
| `session` | of the session with this id |
| `method` | of this method: `tools/call`, `resources/read`, `prompts/get`, or another |
| `outcome` | with one of these outcomes: `ok`, `tool_error`, ... (models.Outcome) |
| `since`, `until` | that started in this time: ISO 8601; without a zone in the active one; a day is a whole day |
| `period` | that started at most this long ago: a number with `m`, `h` or `d`, as in `90m`, `24h`, `7d` |
| `duration_min`, `duration_max` | whose duration is in this range, in milliseconds |
| `size_min`, `size_max` | whose arguments and result together are in this range, in bytes |
| `trace` | of this trace: 32 hex digits |
| `request` | with this JSON-RPC id |
| `address` | from this address; `*` stands for any characters: `10.1.*` |
| `text` | whose arguments, result or cause contain this text, in upper or lower case |
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, time, timedelta
from typing import Any, Final, Self
from urllib.parse import urlencode
from uuid import UUID

from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.utils.dateparse import parse_date, parse_datetime

from tools_app.models import Outcome

ANONYMOUS: Final = "anonymous"
MAX_PARAMETER: Final = 500
MAX_STARS: Final = 5
MAX_NUMBER: Final = 2**53
UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
MAX_DAYS: Final = 100 * 365
FIRST_YEAR: Final = 1000
LAST_YEAR: Final = 9999
# A name that the admin's lists used for it, and that existing links still contain.
ALIASES: Final = {"outcome__exact": "outcome"}


class BadQuery(ValueError):
    """An invalid query: how to fix it, by the name of the parameter."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("; ".join(f"{name}: {problem}" for name, problem in self.errors.items()))


@dataclass(frozen=True, kw_only=True)
class CallQuery:
    """The criteria of a search. Each field narrows the results; an empty one does not."""

    tenant: str = ""
    tool: str = ""
    key: str = ""
    client: str = ""
    session: UUID | None = None
    method: str = ""
    outcome: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    period: str = ""
    duration_min: int | None = None
    duration_max: int | None = None
    size_min: int | None = None
    size_max: int | None = None
    trace: str = ""
    request: str = ""
    address: str = ""
    text: str = ""

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """Return the query that these parameters describe. Raises BadQuery, which lists all errors."""
        found: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name, texts in _given(params).items():
            try:
                found[name] = PARSERS[name](texts)
            except ValueError as problem:
                errors[name] = str(problem)
        if not errors:
            for first, second in (("since", "until"), ("duration_min", "duration_max"), ("size_min", "size_max")):
                if first in found and second in found and found[second] < found[first]:
                    errors[second] = "This is less than where it begins: nothing can be found."
        if errors:
            raise BadQuery(errors)
        return cls(**found)

    def to_params(self) -> dict[str, list[str]]:
        """Return the parameters from which `from_params` creates this query."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _texts(value) for name, value in values.items() if value not in {None, "", ()}}

    def to_string(self) -> str:
        """Return the same as a query string."""
        return urlencode(self.to_params(), doseq=True)

    def without(self, name: str, value: str = "") -> Self:
        """Return the query without a parameter, or without one of its values."""
        params = self.to_params()
        left = [text for text in params.pop(name, []) if value and text != value]
        return self.from_params({**params, name: left})

    def at(self, now: datetime) -> Self:
        """Return the query as of a moment: with fixed bounds instead of a period."""
        begin = now - _span(self.period) if self.period else None
        since = max(filter(None, (self.since, begin)), default=None)
        until = min(filter(None, (self.until, now)))
        # A range that starts after its end finds nothing, but must stay a query that can be parsed.
        return replace(self, period="", since=since, until=max(until, since) if since else until)

    def starts(self, now: datetime) -> datetime | None:
        """Return the earliest start time of the calls that are searched."""
        return self.at(now).since

    @property
    def is_empty(self) -> bool:
        """Whether it finds everything."""
        return not self.to_params()


PARAMETERS: Final = tuple(field.name for field in fields(CallQuery))


def has_stars(text: str) -> bool:
    """Return whether a text is a pattern."""
    return "*" in text


def expression(pattern: str, *, backtracks: bool) -> str:
    """Return a pattern with stars as a regular expression for a database.

    `backtracks`: its engine is that of Python, as with SQLite, where several stars would take the time of as many
    nested loops. There, an atomic group makes each part keep its first match. Other engines do not support such groups.
    """
    first, *inner = (re.escape(part) for part in pattern.split("*"))
    if not backtracks or not inner:
        return "^" + ".*".join((first, *inner)) + "$"
    last = inner.pop()
    return f"^{first}" + "".join(f"(?>.*?{part})" for part in inner) + f".*{last}$"


def _given(params: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the texts of each known parameter that is not empty."""
    found = {}
    for given in params:
        name = ALIASES.get(given, given)
        value = params.getlist(given) if isinstance(params, MultiValueDict) else params[given]
        values = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        texts = [text for value in values if (text := str(value).strip())]
        if name in PARSERS and texts:
            found[name] = texts
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, tuple):
        return list(value)
    return [value.isoformat() if isinstance(value, datetime) else str(value)]


def _one(parse: Callable[[str], Any]) -> Callable[[list[str]], Any]:
    def parsed(texts: list[str]) -> Any:
        if len(texts) > 1:
            raise ValueError("Give it once only.")
        (text,) = texts
        if len(text) > MAX_PARAMETER:
            raise ValueError(f"Write {MAX_PARAMETER} characters at most.")
        if "\0" in text:
            raise ValueError("A NUL character cannot be looked for.")
        return parse(text)

    return parsed


def _pattern(text: str) -> str:
    if text.count("*") > MAX_STARS:
        raise ValueError(f"Write {MAX_STARS} stars at most.")
    return text


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError("Write an id, such as 01890a5d-ac96-774b-bcce-b302099a8057.") from None


def _key(text: str) -> str:
    if text.lower() == ANONYMOUS:
        return ANONYMOUS
    try:
        return str(UUID(text))
    except ValueError:
        raise ValueError(f"Write the id of a key, or {ANONYMOUS}.") from None


def _outcomes(texts: list[str]) -> tuple[str, ...]:
    names = list(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))
    if any(name not in Outcome.values for name in names):
        raise ValueError(f"Choose among {', '.join(Outcome.values)}.")
    return tuple(names)


def _moment(text: str, otherwise: time) -> datetime:
    moment: datetime | None = None
    try:
        day = parse_date(text)
        moment = datetime.combine(day, otherwise) if day else parse_datetime(text)
        if moment and timezone.is_naive(moment):
            moment = timezone.make_aware(moment)
        # Dates near the limits cannot be converted to UTC.
        if moment and FIRST_YEAR <= moment.year < LAST_YEAR:
            return moment.astimezone(timezone.get_fixed_timezone(0))
    except (ValueError, OverflowError):
        pass
    raise ValueError("Write a day or a moment, such as 2026-05-04 or 2026-05-04T12:30.")


def _period(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,6}[mhd]", text) or not timedelta() < _span(text) <= timedelta(days=MAX_DAYS):
        raise ValueError("Write a number with m, h or d, such as 90m, 24h or 7d.")
    return text


def _span(period: str) -> timedelta:
    return int(period[:-1]) * UNITS[period[-1]]


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,16}", text) or int(text) > MAX_NUMBER:
        raise ValueError("Write a whole number from 0 on.")
    return int(text)


def _trace(text: str) -> str:
    if not re.fullmatch(r"[0-9A-Fa-f]{32}", text):
        raise ValueError("Write the 32 hex digits of a trace.")
    return text.lower()


PARSERS: Final[Mapping[str, Callable[[list[str]], Any]]] = {
    **dict.fromkeys(("tenant", "client", "method", "request", "text"), _one(str)),
    **dict.fromkeys(("tool", "address"), _one(_pattern)),
    **dict.fromkeys(("duration_min", "duration_max", "size_min", "size_max"), _one(_number)),
    "key": _one(_key),
    "session": _one(_uuid),
    "outcome": _outcomes,
    "since": _one(lambda text: _moment(text, time.min)),
    "until": _one(lambda text: _moment(text, time.max)),
    "period": _one(_period),
    "trace": _one(_trace),
}
