"""Checkpoints that were exported, held against those in the database: who rewrites both leaves a contradiction."""

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

import msgspec

from tools_app.audit.statements import CheckpointText, NotTrusted, Signed, digest_of, opened
from tools_app.audit.verification.claims import Claim, Heads, Statements, covers
from tools_app.audit.verification.records import in_batches
from tools_app.audit.verification.report import Finding, Problem, Report
from tools_app.models import Checkpoint

LINES = 500

Line = tuple[int, CheckpointText, str]


class Exports:
    """The last head of each chain that an export names, and what it says against the database."""

    def __init__(self, lines: Iterable[str], keys: frozenset[str], statements: Statements, report: Report) -> None:
        self._keys = keys
        self._statements = statements
        self._report = report
        self.heads: dict[UUID, Heads] = defaultdict(dict)
        for some in in_batches(enumerate(lines, 1), LINES):
            self._compare([line for number, text in some if text.strip() and (line := self._read(number, text))])

    def _read(self, number: int, line: str) -> Line | None:
        self._report.exported += 1
        try:
            signed = msgspec.json.decode(line, type=Signed)
            text = opened(signed, self._keys)
        except (msgspec.MsgspecError, NotTrusted) as problem:
            self._wrong(f"Line {number} of the export proves nothing: {problem}.")
            return None
        if not isinstance(text, CheckpointText):
            self._wrong(f"Line {number} of the export is no checkpoint.")
            return None
        self._take(text)
        return number, text, digest_of(signed)

    def _take(self, text: CheckpointText) -> None:
        self._statements.take_changes(text)
        heads = self.heads[text.writer]
        for head in text.heads:
            if head.tenant not in heads or head.position >= heads[head.tenant].position:
                heads[head.tenant] = Claim.of(head, text.made_at)

    def _compare(self, lines: list[Line]) -> None:
        """Whether the database still has these checkpoints as they were exported."""
        by_writer: dict[UUID, list[Line]] = defaultdict(list)
        for line in lines:
            by_writer[line[1].writer].append(line)
        for writer, own in by_writer.items():
            numbers = [text.sequence for _, text, _ in own]
            rows = Checkpoint.objects.filter(writer=writer, sequence__in=numbers).values_list("sequence", "digest")
            there = {sequence: bytes(digest).hex() for sequence, digest in rows}
            runs = self._statements.checkpoint_runs(writer) if len(there) < len(own) else []
            for number, text, digest in own:
                found = there.get(text.sequence)
                if found is None and not covers(runs, text.sequence, digest):
                    self._wrong(f"Checkpoint {text.sequence}, line {number} of the export, is gone.", text)
                elif found is not None and found != digest:
                    self._wrong(f"Checkpoint {text.sequence}, line {number} of the export, says otherwise now.", text)

    def _wrong(self, says: str, text: CheckpointText | None = None) -> None:
        writer, at = (text.writer, text.made_at) if text else (None, None)
        self._report.add(Finding(Problem.CHECKPOINT, says, writer=writer, at=at))
