"""A controllable clock for tests."""


class Clock:
    """A clock that stays at `now`, in seconds, until the test changes it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
