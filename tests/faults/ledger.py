"""What clients heard, held against what is recorded: nothing missing, nothing twice, nothing made up."""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Protocol

from tests.faults.load import Asked, Load
from tests.services.stack import eventually

RECORDS = """
    SELECT c.tool_name, p.arguments, c.outcome, p.result, c.duration_us, c.cause,
           (SELECT max(e.data) FROM tools_app_callevent e WHERE e.call_id = c.id AND e.kind = 'answer')
    FROM tools_app_call c JOIN tools_app_callpayload p ON p.call_id = c.id
    WHERE c.method = 'tools/call' AND p.arguments LIKE %s
"""
RUNNING = "SELECT tool_name, status, arguments FROM tools_app_runningcall"
# What a call may have been recorded as whose client heard a result that says of itself that it is an error.
FAILED = {"tool_error", "timeout", "not_started", "lost", "interrupted", "rejected"}
# Refusals after which nothing can have happened, and the one after which nobody knows.
NOTHING_RAN = "Nothing ran."
MAY_HAVE_RUN = "It may have run."
OK = 200


class Books(Protocol):
    """A hub's database."""

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask it, with %s where the values go."""


@dataclass(frozen=True)
class Record:
    """One terminal record; `told` is what its client was told instead, where the record says so."""

    outcome: str
    result: str
    duration_us: int
    cause: str
    told: str | None = None


def records_of(books: Books, load: Load) -> dict[tuple[str, str], list[Record]]:
    """The records of all calls that brought a word of this load, by tool and word."""
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for tool, arguments, outcome, result, duration, cause, told in books.rows(RECORDS, f"%{load.name}%"):
        word = json.loads(arguments).get("word", "")
        if word.startswith(load.name):
            found[tool, word].append(Record(outcome, result, duration, cause, told))
    return found


def check(books: Books, load: Load, *, settled_within: float) -> dict[tuple[str, str], list[Record]]:
    """Hold every answer against the records, once no call is left that runs; how long that may take is the test's say.

    Raises AssertionError. Returns the records.
    """
    eventually(lambda: not books.rows(RUNNING), settled_within)
    records = records_of(books, load)
    asked = [asked for asked in load.asked if asked.word]
    hung = [one for one in asked if one.how in {"hung", "unanswered"}]
    assert not hung, f"calls had no answer: {[(one, records.get((one.tool, one.word))) for one in hung[:10]]}"
    problems = [problem for one in asked if (problem := _problem(one, records.get((one.tool, one.word), [])))]
    assert not problems, problems[:10]
    strangers = records.keys() - {(one.tool, one.word) for one in asked}
    assert not strangers, f"records of calls that nobody made: {sorted(strangers)[:10]}"
    return records


def _problem(asked: Asked, records: list[Record]) -> str:
    """What is wrong between a call and its records, "" if nothing is."""
    outcomes = {record.outcome for record in records}
    if len(records) > 1:
        return f"{asked} has {len(records)} records"
    if asked.how == "result" and not (outcomes == {"ok"} and asked.word in records[0].result):
        return f"{asked} was answered, and its record is {records}"
    if asked.how == "tool_error" and not (records and outcomes <= FAILED):
        return f"{asked} was answered, and its record is {records}"
    if asked.how == "refused":
        return _problem_of_refused(asked, records)
    return ""


def _problem_of_refused(asked: Asked, records: list[Record]) -> str:
    """A refusal is clear, and its record says the same: nothing ran, or nobody knew by then."""
    status, code, message, headers = asked.detail
    if NOTHING_RAN not in message and MAY_HAVE_RUN not in message:
        return f"{asked} was not refused clearly"
    # Where a stream had begun, its status was sent long before.
    if status != OK and ((status, code) != (503, -32603) or "retry-after" not in headers):
        return f"{asked} was not refused clearly"
    wrong = [record for record in records if not _agrees(record, message)]
    return f"{asked} was refused, and its record is {wrong}" if wrong else ""


def _agrees(record: Record, message: str) -> bool:
    if NOTHING_RAN in message:
        return record.outcome == "not_started"
    return record.outcome in {"lost", "not_started"} or MAY_HAVE_RUN in (record.told or "")
