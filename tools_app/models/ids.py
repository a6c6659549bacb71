"""Primary keys that sort by time, so that indexes of growing tables stay compact."""

import uuid

from uuid_utils import compat


def new_id() -> uuid.UUID:
    """A fresh UUIDv7 (RFC 9562 §5.7)."""
    return compat.uuid7()
