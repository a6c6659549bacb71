"""Time-ordered primary keys, which keep the indexes of growing tables compact."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from uuid_utils import compat

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANDOM_BITS = 80

# A function that returns a new UUIDv7 (RFC 9562 §5.7).
new_id: Final[Callable[[], uuid.UUID]] = compat.uuid7


def least_id(moment: datetime) -> uuid.UUID:
    """Return an id that sorts after all ids created before `moment`, to the millisecond, and before all later ones.

    There are no ids before 1970.
    """
    return uuid.UUID(int=max(0, (moment - _EPOCH) // timedelta(milliseconds=1)) << _RANDOM_BITS)


def made_at(id: uuid.UUID) -> datetime:
    """Return the time at which `new_id` created an id, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=id.int >> _RANDOM_BITS)
