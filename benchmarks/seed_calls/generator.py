"""A generator of calls."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from benchmarks.seed_calls.shapes import NUMBER, Owner, Shape, shapes_of
from tools_app.core.ids import least_id
from tools_app.core.packing import unpack

MICROSECOND: Final = timedelta(microseconds=1)

# The bits of a UUIDv7 besides its time: its version, its variant, and 74 random bits around them.
VERSION, VARIANT = 0x7 << 76, 0x2 << 62
LOW_BITS, HIGH_BITS, HIGH_AT = 62, 12, 64
# Most calls take about as long as others of their tool, a few of them much longer.
SPREAD: Final = 0.6


class Made(NamedTuple):
    """A generated call: what it does not share with the others of its shape."""

    id: UUID
    at: datetime
    took: timedelta
    number: int
    shape: Shape

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of its row besides those that say who recorded it."""
        return {
            **self.shape.facts,
            "id": self.id,
            "started_at": self.at,
            "finished_at": self.at + self.took,
            "duration_us": self.took // MICROSECOND,
            "request_id": str(self.number),
        }

    @property
    def texts(self) -> tuple[str, str]:
        """Arguments and result as they are stored, uncompressed."""
        return unpack(self.shape.packed) if self.shape.packed else (self.arguments, self.result)

    @property
    def arguments(self) -> str:
        """The arguments, with the call's number in them."""
        return self.shape.arguments.replace(NUMBER, self.padded)

    @property
    def result(self) -> str:
        """The result, with the call's number in it."""
        return self.shape.result.replace(NUMBER, self.padded)

    @property
    def padded(self) -> str:
        """The number as it is written in texts."""
        return f"{self.number:0{len(NUMBER)}d}"


def made_calls(owners: Sequence[Owner], count: int, begin: datetime, end: datetime) -> Iterator[Made]:
    """Yield calls of `owners` between two moments, oldest first: rows are inserted in the order of their ids."""
    random = Random()  # noqa: S311 - nothing here is secret
    shapes = shapes_of(owners, random)
    step = (end - begin) / max(count, 1)
    for number in range(count):
        at = begin + (number + random.random()) * step
        shape = shapes[int(random.random() * len(shapes))]
        took = timedelta(microseconds=int(shape.middle_us * random.lognormvariate(0, SPREAD)))
        noise = random.getrandbits(HIGH_BITS) << HIGH_AT | random.getrandbits(LOW_BITS)
        yield Made(UUID(int=least_id(at).int | VERSION | VARIANT | noise), at, took, number, shape)
