"""How long facts have stood still, by this process's own clock: one that is set back or wrong cannot end a call."""

from collections.abc import Hashable, Iterable
from time import monotonic

LONGEST_GAP_SECONDS = 3.0


class Standstill:
    """How long facts have been the same.

    After a gap between looks, as when the database was away, counting begins anew: nobody could have shown a change.
    """

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}
        self._looked = monotonic()

    def seconds(self, facts: Iterable[Hashable]) -> dict[Hashable, float]:
        """For how long each of `facts` has been seen at every look. Those not seen now are forgotten."""
        now = monotonic()
        if now - self._looked > LONGEST_GAP_SECONDS:
            self._since.clear()
        self._looked = now
        self._since = {fact: self._since.get(fact, now) for fact in facts}
        return {fact: now - since for fact, since in self._since.items()}

    def forget(self, fact: Hashable) -> None:
        """Count this one anew from the next look on."""
        self._since.pop(fact, None)
