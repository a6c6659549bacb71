"""Made-up calls, one after the other."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from tools_app.audit.seeding.shapes import NUMBER, Owner, Shape, shapes_of
from tools_app.models.ids import least_id

# What a UUIDv7 has beside its moment: its version, its variant, and 74 random bits around them.
VERSION, VARIANT = 0x7 << 76, 0x2 << 62
LOW_BITS, HIGH_BITS, HIGH_AT = 62, 12, 64
# Most calls take about as long as others of their tool, a few of them much longer.
SPREAD: Final = 0.6


class Made(NamedTuple):
    """A made-up call: what it does not share with the others of its shape."""

    id: UUID
    at: datetime
    took: timedelta
    number: int
    shape: Shape

    @property
    def arguments(self) -> str:
        """Its arguments, with its number in them."""
        return self.shape.arguments.replace(NUMBER, self.padded)

    @property
    def result(self) -> str:
        """Its result, with its number in it."""
        return self.shape.result.replace(NUMBER, self.padded)

    @property
    def padded(self) -> str:
        """Its number as it stands in texts."""
        return f"{self.number:0{len(NUMBER)}d}"


def made_calls(owners: Sequence[Owner], count: int, begin: datetime, end: datetime) -> Iterator[Made]:
    """Calls of `owners` between two moments, oldest first: they come into the tables in the order of their ids."""
    random = Random()  # noqa: S311 - nothing here is secret
    shapes = shapes_of(owners, random)
    step = (end - begin) / max(count, 1)
    for number in range(count):
        at = begin + (number + random.random()) * step
        shape = shapes[int(random.random() * len(shapes))]
        took = timedelta(microseconds=int(shape.middle_us * random.lognormvariate(0, SPREAD)))
        noise = random.getrandbits(HIGH_BITS) << HIGH_AT | random.getrandbits(LOW_BITS)
        yield Made(UUID(int=least_id(at).int | VERSION | VARIANT | noise), at, took, number, shape)
