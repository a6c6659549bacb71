"""A wrong clock for one process: with this directory on PYTHONPATH, Python imports this module at start.

What the file that CLOCK_FILE names holds is added, in seconds, to every wall clock of Python. Monotonic clocks go on.
"""

import datetime as dt
import os
import time
from pathlib import Path

_file = Path(os.environ["CLOCK_FILE"])
_real_time, _real_time_ns, _Real = time.time, time.time_ns, dt.datetime


def _shift() -> float:
    return float(_file.read_text() or 0)


class _Like(type):
    """Real dates are dates."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _Real)

    def __subclasscheck__(cls, other):
        return issubclass(other, _Real)


class _Shifted(_Real, metaclass=_Like):
    def __new__(cls, *arguments, **keywords):
        return _Real(*arguments, **keywords)

    @classmethod
    def now(cls, tz=None):
        return _Real.now(tz) + dt.timedelta(seconds=_shift())

    @classmethod
    def utcnow(cls):
        return cls.now(dt.UTC).replace(tzinfo=None)


dt.datetime = _Shifted
time.time = lambda: _real_time() + _shift()
time.time_ns = lambda: _real_time_ns() + int(_shift() * 1_000_000_000)
