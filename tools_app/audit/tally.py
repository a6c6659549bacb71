"""Counting what was recorded: in the recorder's thread, once a batch is durable, so that no call pays for it."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import UUID

from tools_app.audit.entries import Ending, Entry
from tools_app.models import Outcome
from tools_app.models.config import config
from tools_app.telemetry.tallies import tallies

# Whatever else has a record of its own counts as "other": clients choose the names of methods.
METHODS = frozenset({"tools/call", "resources/read", "prompts/get"})
DENIED = Outcome.DENIED.value
MICROSECOND = 1e-6


def written(entries: Sequence[Entry], late: Collection[UUID], seconds: float) -> None:
    """Count entries that became durable together, in `seconds`. `late` calls were settled by somebody else."""
    tallies.observe("mcphub_recorder_commit_seconds", [seconds])
    tallies.observe("mcphub_recorder_batch_records", [len(entries)])
    by_tenant = config.MCPHUB_METRICS_BY_TENANT
    ended: defaultdict[tuple[str, str, str, bool], list[int]] = defaultdict(list)
    for entry in entries:
        if type(entry) is Ending and entry.facts.id not in late:
            facts, end = entry.facts, entry.ended
            if end.outcome == DENIED:
                tallies.add("mcphub_denials_total", end.repeated, (str(end.http_status),))
            else:
                ended[facts.method, end.outcome, facts.protocol_version, end.background].append(end.duration_us)
                if by_tenant:
                    tallies.add("mcphub_tenant_calls_total", 1, (str(facts.tenant_id), end.outcome))
    for (method, outcome, revision, background), durations in ended.items():
        known, mode = method if method in METHODS else "other", "background" if background else "inline"
        tallies.add("mcphub_calls_total", len(durations), (known, outcome, revision, mode))
        tallies.observe("mcphub_call_duration_seconds", [us * MICROSECOND for us in durations], (known, mode))


def lost(count: int) -> None:
    """Count records that could not be written."""
    tallies.add("mcphub_recorder_failed_records_total", count)
