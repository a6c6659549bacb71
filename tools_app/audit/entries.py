"""What can be recorded: the beginning of a call, what it says, and its end."""

from uuid import UUID

import msgspec

from tools_app.audit.rows import Answer, Begun, Ended, Facts, Payload, Said


class Beginning(msgspec.Struct, frozen=True):
    """A call's intent, kept as a `RunningCall` until the call is settled."""

    facts: Facts
    begun: Begun
    topic: str = ""

    @property
    def call_id(self) -> UUID:
        """Which call this is about."""
        return self.facts.id


class Saying(msgspec.Struct, frozen=True):
    """An event of a call. `topic` is rung once the event is durable."""

    said: Said
    topic: str = ""

    @property
    def call_id(self) -> UUID:
        """Which call this is about."""
        return self.said.call_id


class Ending(msgspec.Struct, frozen=True):
    """A call's terminal record. `settles`: a `RunningCall` stands for it, and only who removes that may write this."""

    facts: Facts
    ended: Ended
    payload: Payload
    settles: bool
    answer: Answer | None = None
    topic: str = ""

    @property
    def call_id(self) -> UUID:
        """Which call this is about."""
        return self.facts.id


Entry = Beginning | Saying | Ending


class Batch(msgspec.Struct, frozen=True):
    """Entries that become durable together, in the order in which the tables take them."""

    beginnings: list[Beginning]
    sayings: list[Saying]
    endings: list[Ending]


def batch_of(entries: list[Entry]) -> Batch:
    """Sort entries by kind. A call that begins and ends in one batch needs no intent: its record says it all."""
    endings = [entry for entry in entries if isinstance(entry, Ending)]
    beginnings = [entry for entry in entries if isinstance(entry, Beginning)]
    if beginnings and endings:
        begun, ended = {entry.call_id for entry in beginnings}, {entry.call_id for entry in endings}
        whole = begun & ended
        beginnings = [entry for entry in beginnings if entry.call_id not in whole]
        endings = [_unsettling(entry) if entry.call_id in whole else entry for entry in endings]
    return Batch(beginnings, [entry for entry in entries if isinstance(entry, Saying)], endings)


def _unsettling(entry: Ending) -> Ending:
    return Ending(entry.facts, entry.ended, entry.payload, settles=False, answer=entry.answer, topic=entry.topic)
