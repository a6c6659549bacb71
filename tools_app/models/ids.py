"""Primary keys that sort by time, so that indexes of growing tables stay compact."""

import uuid
from datetime import UTC, datetime, timedelta

from uuid_utils import compat

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANDOM_BITS = 80


def new_id() -> uuid.UUID:
    """A fresh UUIDv7 (RFC 9562 §5.7)."""
    return compat.uuid7()


def least_id(moment: datetime) -> uuid.UUID:
    """What sorts after every id that was made before `moment`, to the millisecond, and before all later ones.

    Before 1970 there are no ids.
    """
    return uuid.UUID(int=max(0, (moment - _EPOCH) // timedelta(milliseconds=1)) << _RANDOM_BITS)


def made_at(id: uuid.UUID) -> datetime:
    """When `new_id` made it, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=id.int >> _RANDOM_BITS)
