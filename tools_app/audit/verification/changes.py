"""Verification of the change log: the first change that is altered, deleted or moved is found and named.

There is one chain for the whole hub. It is short compared with those of the records, so all of it is verified.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from tools_app.audit.changes.changes import HASHED_FIELDS, START, digest
from tools_app.audit.checkpoints.statements import CheckpointText, trusted
from tools_app.audit.verification.claims import Claim
from tools_app.audit.verification.report import Finding, Problem, Report
from tools_app.models import Change, Checkpoint

BATCH = 500
# How many positions beyond its own a moved change is searched for.
NEAR = 200
# For a quick check: how many of the newest checkpoints are searched for the signed end of the chain.
NEWEST = 200
ID: Final = HASHED_FIELDS.index("id")
AT: Final = HASHED_FIELDS.index("at")
POSITION: Final = HASHED_FIELDS.index("position")


class Link(NamedTuple):
    """A stored change in the order of HASHED_FIELDS, and its digest."""

    fields: tuple[Any, ...]
    digest: bytes

    @property
    def position(self) -> int:
        """The position that the change states."""
        position: int = self.fields[POSITION]
        return position

    def fits(self, previous: bytes, position: int) -> bool:
        """Return whether this change was written at `position`, after the digest `previous`."""
        fields = (*self.fields[:POSITION], position, *self.fields[POSITION + 1 :])
        return digest(previous, fields) == self.digest


def verify_changes(report: Report, claims: Mapping[int, Claim]) -> None:
    """Verify the chain up to the first problem. `claims` are signed ends of it, by position."""
    position, previous, agreed = 0, START, 0
    for link in _links():
        report.check_time()
        if problem := _problem(link, position + 1, previous):
            report.add(problem)
            return
        position, previous = link.position, link.digest
        report.changes += 1
        claim = claims.get(position)
        if claim is not None and claim.hash != previous:
            message = (
                f"The changes from {agreed + 1} to {claim.position} follow one another, but were not there when the "
                "chain was signed: somebody rewrote them."
            )
            report.add(Finding(Problem.REWRITTEN, message, position=agreed + 1, at=claim.made_at, is_change=True))
            return
        agreed = position if claim is not None else agreed
    last = max(claims.values(), key=lambda claim: claim.position, default=None)
    if last is not None and last.position > position:
        report.add(_missing(position + 1, last.position, "the end was cut off", last.made_at))


def newest_claims(keys: frozenset[str]) -> dict[int, Claim]:
    """Return the signed ends that the newest checkpoints name."""
    claims: dict[int, Claim] = {}
    for row in Checkpoint.objects.order_by("-id")[:NEWEST]:
        text = trusted(row, keys)
        if isinstance(text, CheckpointText) and text.changes is not None:
            claims[text.changes.position] = Claim.of(text.changes, text.made_at)
    return claims


def _links(after: int = 0) -> Iterator[Link]:
    rows = Change.objects.filter(position__gt=after).order_by("position")
    for *fields, carried in rows.values_list(*HASHED_FIELDS, "digest").iterator(BATCH):
        yield Link(tuple(fields), bytes(carried))


def _problem(link: Link, position: int, previous: bytes) -> Finding | None:
    """Return the problem of the change that is stored in place of the one at `position`, if any."""
    if link.position > position:
        return _missing(position, link.position - 1, f"before change {link.position}", link.fields[AT])
    if link.fits(previous, position):
        return None
    nearby = [other for other in _links(position) if other.position <= position + NEAR]
    moved = next((other for other in nearby if other.fits(previous, position)), None)
    if moved is None:
        return _of(link, Problem.CHANGED, "What this change says was altered.")
    return _of(link, Problem.REORDERED, f"Change {moved.fields[ID]} belongs here, and stands at {moved.position}.")


def _of(link: Link, problem: Problem, message: str) -> Finding:
    return Finding(
        problem, message, position=link.position, change_id=link.fields[ID], at=link.fields[AT], is_change=True
    )


def _missing(first: int, last: int, where: str, at: datetime) -> Finding:
    gone = f"Change {first} is gone" if first == last else f"The changes from {first} to {last} are gone"
    return Finding(Problem.MISSING, f"{gone}: {where}.", position=first, at=at, is_change=True)
