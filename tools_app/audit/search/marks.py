"""Where a list of calls ends: the moment and the id of a call, and cursors made of them."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self
from uuid import UUID

from tools_app.audit.search.query import BadQuery
from tools_app.models import Call

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MOMENT, _ID = 8, 16
LONGEST: Final = 64
UUID_MOST: Final = 2**128 - 1


class Mark(NamedTuple):
    """A place in the list of calls."""

    at: datetime
    id: UUID

    @classmethod
    def of(cls, call: Call) -> Self:
        """Where a call stands."""
        return cls(call.started_at, call.pk)

    @classmethod
    def read(cls, cursor: str, name: str) -> Self:
        """The place that a cursor names. Raises BadQuery, under the parameter's name, for anything else."""
        try:
            # What follows the end of base64 is dropped by the decoder, so the length is looked at before.
            both = urlsafe_b64decode(cursor) if cursor.isascii() and len(cursor) <= LONGEST else b""
            if len(both) != _MOMENT + _ID:
                raise ValueError
            at = _EPOCH + int.from_bytes(both[:_MOMENT], "big") * _MICROSECOND
        except (ValueError, OverflowError):
            raise BadQuery({name: "This is no cursor of a list: begin with the newest calls."}) from None
        return cls(at, UUID(bytes=both[_MOMENT:]))

    def beside(self, *, newer: bool) -> Self:
        """The place next to this one, from which a look the other way finds this call, too."""
        number = self.id.int + (1 if newer else -1)
        return type(self)(self.at, UUID(int=min(max(number, 0), UUID_MOST)))

    @property
    def cursor(self) -> str:
        """The opaque text that `read` understands."""
        moment = max(0, (self.at - _EPOCH) // _MICROSECOND)
        return urlsafe_b64encode(moment.to_bytes(_MOMENT, "big") + self.id.bytes).decode()
