"""Messages from a client on a bidirectional connection, with the memory that is held for large ones."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from tools_app.core import large_work, request_memory
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.identity.principal import Principal
from tools_app.protocol import jsonrpc

Authenticate = Callable[[], Awaitable[Principal | None]]


async def decode_large(raw: bytes) -> Any:
    """Return the value of a message above `fair_scheduler.LARGE_BYTES`, in a slot of its tenant. Raises RpcError."""
    return await large_work.run(len(raw), partial(jsonrpc.decode, raw))


class Incoming(NamedTuple):
    """A message or batch. `free` gives back the memory that is held for it, if any is."""

    raw: bytes
    free: Callable[[], None] | None = None

    async def with_memory(self, authenticate: Authenticate) -> "Incoming":
        """Hold the memory of a large message for which none is held. Raises TooMuchMemory."""
        if self.free is not None or len(self.raw) <= LARGE_BYTES:
            return self
        principal = await authenticate()
        if principal is None:
            return self
        return Incoming(self.raw, await request_memory.hold_message(principal.tenant_id, len(self.raw)))

    def free_after(self, answering: "asyncio.Task[None] | None") -> None:
        """Give the memory back once the message is answered."""
        free = self.free
        if free is not None and answering is not None:
            answering.add_done_callback(lambda _: free())
        elif free is not None:
            free()
