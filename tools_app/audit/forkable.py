"""What a process remembers of its own records, and a forked child must not.

Whoever makes such a memory has it begin anew in a forked child.
"""

from threading import Lock


class OwnMemory:
    """Guarded by a lock. Subclasses say in `_clear` what there is to remember, and how it begins."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin anew, as a forked child does: a thread that it has not may have held the lock."""
        self._one_by_one = Lock()
        self._clear()

    def forget(self) -> None:
        """Begin anew after the database was emptied."""
        with self._one_by_one:
            self._clear()

    def _clear(self) -> None:
        raise NotImplementedError
