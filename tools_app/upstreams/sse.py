"""Parser of event streams from upstreams (WHATWG HTML, §9.2), bounded in bytes for each event."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tools_app.upstreams.errors import TooLarge

MAX_ID_LENGTH = 1024


@dataclass(frozen=True)
class StreamEvent:
    """One event. `retry_ms` is the delay before a reconnection that the upstream asks for; None if it asks for none."""

    kind: str
    data: bytes
    id: str = ""
    retry_ms: int | None = None


@dataclass
class EventParser:
    """Collects chunks of a stream into events. `max_bytes` bounds one event, and a line that does not end."""

    max_bytes: int
    _line: bytearray = field(default_factory=bytearray)
    _kind: str = ""
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0
    _id: str = ""
    _retry_ms: int | None = None
    _after_cr: bool = False

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Return the events that `chunk` completes. Raises TooLarge."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._line += line
            self._check()
            complete, self._line = bytes(self._line), bytearray()
            if complete:
                self._read(complete)
            elif event := self._dispatch():
                yield event
        self._line += rest
        self._check()

    @property
    def unfinished(self) -> int:
        """The bytes of the event that is not complete yet."""
        return len(self._line) + self._size

    def _check(self) -> None:
        if self.unfinished > self.max_bytes:
            raise TooLarge(f"The upstream sent a message of more than {self.max_bytes} bytes.")

    def _read(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._kind = value[:100].decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value and len(value) <= MAX_ID_LENGTH:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 9:  # noqa: PLR2004
            self._retry_ms = int(value)

    def _dispatch(self) -> StreamEvent | None:
        """Return the event that an empty line ends; None if nothing but comments preceded it."""
        if not self._data and not self._id and self._retry_ms is None:
            self._kind = ""
            return None
        event = StreamEvent(self._kind or "message", b"\n".join(self._data), self._id, self._retry_ms)
        # Unlike a browser, which keeps the last id for later events, the caller keeps it.
        self._kind, self._data, self._size, self._id, self._retry_ms = "", [], 0, "", None
        return event
