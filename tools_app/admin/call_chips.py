"""What a search of the audit log is narrowed by, in words, each with a way to drop it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tools_app.admin.call_choices import Offered
from tools_app.admin.call_facts import moment_text
from tools_app.admin.call_form import PERIODS
from tools_app.audit.search.query import CallQuery
from tools_app.models import Outcome

WORDS: Final = {
    "text": "contains “{}”",
    "tenant": "tenant {}",
    "tool": "name {}",
    "method": "method {}",
    "outcome": "{}",
    "key": "key {}",
    "client": "client {}",
    "address": "address {}",
    "period": "{}",
    "since": "from {}",
    "until": "to {}",
    "duration_min": "took at least {} ms",
    "duration_max": "took at most {} ms",
    "size_min": "at least {} bytes",
    "size_max": "at most {} bytes",
    "session": "session {}",
    "trace": "trace {}",
    "request": "request {}",
}


@dataclass(frozen=True)
class Chip:
    """One condition in words; `without` is the query string of the search that does not have it."""

    text: str
    without: str


def chips(query: CallQuery, offered: Offered) -> list[Chip]:
    """The conditions of a search."""
    names = {"tenant": dict(offered.tenants), "key": dict(offered.keys), "period": PERIODS}
    return list(_chips(query, names))


def _chips(query: CallQuery, names: Mapping[str, Mapping[str, str]]) -> Iterator[Chip]:
    for name, texts in query.to_params().items():
        for text in texts:
            shown = names.get(name, {}).get(text, text)
            yield Chip(WORDS[name].format(_said(query, name, shown)), query.without(name, text).to_string())


def _said(query: CallQuery, name: str, shown: str) -> str:
    if name == "outcome":
        return str(Outcome(shown).label)
    value = getattr(query, name)
    return moment_text(value) if isinstance(value, datetime) else shown
