"""How many calls the next statement of a search looks at: as many as are likely to fill its time."""

from dataclasses import dataclass
from typing import Final

from tools_app.audit.search.looking import Look
from tools_app.audit.search.plan import Plan

FIRST_LOOK: Final = 1_000
LEAST, MOST = 100, 300_000
MOST_PACKED_BYTES: Final = 32 * 1024 * 1024
# How many more than before, at most: what was quick once may have been in memory.
GROWTH: Final = 20
# Where some of the calls are wanted, so much more than should do.
RESERVE: Final = 1.3


@dataclass
class Pace:
    """What is known of the speed of a search. `wanted`: how many calls would be enough."""

    plan: Plan
    wanted: int
    found: int = 0
    searched: int = 0

    @property
    def asks(self) -> bool:
        """Whether calls are looked at that may not be wanted."""
        return bool(self.plan.asked or self.plan.text)

    @property
    def first(self) -> int:
        """How many calls are looked at first. Where indexes do it all, each of them is wanted."""
        return FIRST_LOOK if self.asks else self.wanted

    def next(self, look: Look, took: float, seconds: float) -> int:
        """How many are looked at in so many seconds, after a look that took some."""
        self.found += len(look.found)
        self.searched += look.searched
        likely = [look.searched * seconds / max(took, 0.001), look.searched * GROWTH, MOST]
        if look.packed_bytes:
            likely.append(look.searched * MOST_PACKED_BYTES / look.packed_bytes)
        if 0 < self.found < self.wanted:
            likely.append((self.wanted - self.found) * self.searched / self.found * RESERVE)
        return max(LEAST, int(min(likely)))
