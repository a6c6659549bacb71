"""A clock for code that is given one."""


class Clock:
    """It stands still at `now`, in seconds, unless the test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
