"""Compare the responses that clients received with the records of their calls: none missing, repeated or invented."""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Protocol

from tests.faults.load import CallAttempt, Load
from tests.services.stack import eventually

RECORDS = """
    SELECT c.tool_name, p.arguments, c.outcome, p.result, c.duration_us, c.cause,
           (SELECT max(e.data) FROM tools_app_callevent e WHERE e.call_id = c.id AND e.kind = 'answer')
    FROM tools_app_call c JOIN tools_app_callpayload p ON p.call_id = c.id
    WHERE c.method = 'tools/call' AND p.arguments LIKE %s
"""
RUNNING = "SELECT tool_name, status, arguments FROM tools_app_runningcall"
# The recorded outcomes of calls whose clients received a result with isError.
FAILED = {"tool_error", "timeout", "not_started", "lost", "interrupted", "rejected"}
# Messages of refusals: the call did not run, or it is unknown whether it ran.
NOTHING_RAN = "Nothing ran."
MAY_HAVE_RUN = "It may have run."
OK = 200


class Database(Protocol):
    """A hub's database."""

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query with %s for each value."""


@dataclass(frozen=True)
class Record:
    """One final record. `client_answer` is the answer that the client received instead, if the record has one."""

    outcome: str
    result: str
    duration_us: int
    cause: str
    client_answer: str | None = None


def records_of(database: Database, load: Load) -> dict[tuple[str, str], list[Record]]:
    """The records of all calls with a word of this load, by tool and word."""
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for tool, arguments, outcome, result, duration, cause, client_answer in database.rows(RECORDS, f"%{load.name}%"):
        word = json.loads(arguments).get("word", "")
        if word.startswith(load.name):
            found[tool, word].append(Record(outcome, result, duration, cause, client_answer))
    return found


def check_records(database: Database, load: Load, *, settled_within: float) -> dict[tuple[str, str], list[Record]]:
    """Compare every response with the records when no call is running, which must be so within `settled_within`.

    Raises AssertionError. Returns the records.
    """
    eventually(lambda: not database.rows(RUNNING), settled_within)
    records = records_of(database, load)
    attempts = [attempt for attempt in load.attempts if attempt.word]
    hung = [attempt for attempt in attempts if attempt.outcome in {"hung", "unanswered"}]
    assert not hung, (
        f"calls had no answer: {[(attempt, records.get((attempt.tool, attempt.word))) for attempt in hung[:10]]}"
    )
    problems = [
        problem for attempt in attempts if (problem := _problem(attempt, records.get((attempt.tool, attempt.word), [])))
    ]
    assert not problems, problems[:10]
    unexpected = records.keys() - {(attempt.tool, attempt.word) for attempt in attempts}
    assert not unexpected, f"records of calls that nobody made: {sorted(unexpected)[:10]}"
    return records


def _problem(attempt: CallAttempt, records: list[Record]) -> str:
    """The contradiction between a call and its records, or ""."""
    outcomes = {record.outcome for record in records}
    if len(records) > 1:
        return f"{attempt} has {len(records)} records"
    if attempt.outcome == "result" and not (outcomes == {"ok"} and attempt.word in records[0].result):
        return f"{attempt} was answered, and its record is {records}"
    if attempt.outcome == "tool_error" and not (records and outcomes <= FAILED):
        return f"{attempt} was answered, and its record is {records}"
    if attempt.outcome == "refused":
        return _problem_of_refused(attempt, records)
    return ""


def _problem_of_refused(attempt: CallAttempt, records: list[Record]) -> str:
    """A refusal says clearly whether the call ran, and its record agrees."""
    status, code, message, headers = attempt.detail
    if NOTHING_RAN not in message and MAY_HAVE_RUN not in message:
        return f"{attempt} was not refused clearly"
    # If the stream had begun, the status was sent before.
    if status != OK and ((status, code) != (503, -32603) or "retry-after" not in headers):
        return f"{attempt} was not refused clearly"
    wrong = [record for record in records if not _is_consistent(record, message)]
    return f"{attempt} was refused, and its record is {wrong}" if wrong else ""


def _is_consistent(record: Record, message: str) -> bool:
    if NOTHING_RAN in message:
        return record.outcome == "not_started"
    return record.outcome in {"lost", "not_started"} or MAY_HAVE_RUN in (record.client_answer or "")
