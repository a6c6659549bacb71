"""The hub in one process: an ASGI server, a Celery worker, and their order of startup and shutdown."""

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable

from channels.routing import get_default_application
from django.conf import settings

from tools_app.runtime import process
from tools_app.server.base import DAPHNE, UVICORN, AsgiServer, url_of
from tools_app.server.boundary import Boundary
from tools_app.server.worker import EmbeddedWorker
from tools_app.transport import shutdown

logger = logging.getLogger(__name__)

START_SECONDS = 30.0
WORKER_STOP_SECONDS = 5.0
# The idle timeout of a connection during shutdown: its client may be sending a request.
IDLE_SECONDS = 1.0
LAST_ANSWERS_SECONDS = 2.0


class EmbeddedHub:
    """Serves the project's ASGI application and, by default, runs its background tools.

    `server` is one of `base.SERVERS`.
    """

    def __init__(self, listener: socket.socket, *, with_worker: bool = True, server: str = UVICORN) -> None:
        self.url = url_of(listener)
        self._boundary = Boundary(get_default_application())
        self._server = _create_server(server, self._boundary, listener)
        self._worker = EmbeddedWorker() if with_worker else None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def serve_forever(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve in this thread until `stop`, and return after the shutdown. `ready` is called when the hub listens.

        Raises WorkerNotStarted.
        """
        if self._worker is not None:
            self._worker.start()
        self._server.run(ready)

    def start_in_thread(self) -> None:
        """Serve in a new thread, and return when the hub listens. Raises RuntimeError if it does not."""
        listening = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=[listening.set], name="hub", daemon=True)
        self._thread.start()
        if not listening.wait(START_SECONDS):
            raise RuntimeError("The hub did not start.")

    def stop(self) -> None:
        """Start the shutdown, once. Safe from any thread and from a signal handler."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._server.spawn(self._shut_down)

    def join(self, seconds: float) -> None:
        """Wait for a hub that runs in a thread to end."""
        if self._thread is not None:
            self._thread.join(seconds)

    async def _shut_down(self) -> None:
        """Let calls finish before the worker stops, and write every record before the connections close."""
        try:
            await _try(self._server.stop_listening)
            self._boundary.is_closing = True
            await _try(lambda: self._server.end_keep_alive(IDLE_SECONDS))
            await _try(lambda: shutdown.drain(settings.MCPHUB_DRAIN_TIMEOUT))
            await _try(lambda: self._boundary.finish_requests(LAST_ANSWERS_SECONDS))
            await _try(self._stop_worker)
            await _try(lambda: asyncio.to_thread(process.stop_recording))
        finally:
            self._server.stop()

    async def _stop_worker(self) -> None:
        if self._worker is not None and not await asyncio.to_thread(self._worker.stop, WORKER_STOP_SECONDS):
            logger.warning("A background tool ignored its cancellation and was abandoned.")


async def _try(step: Callable[[], Awaitable[None]]) -> None:
    """Run one step of the shutdown: if it fails, the next steps still run."""
    try:
        await step()
    except Exception:
        logger.exception("A step of the shutdown failed.")


def _create_server(name: str, boundary: Boundary, listener: socket.socket) -> AsgiServer:
    # Only the selected server is imported.
    if name == DAPHNE:
        from tools_app.server.daphne import DaphneServer  # noqa: PLC0415

        return DaphneServer(boundary, listener, settings.MCPHUB_MAX_BODY_BYTES)
    from tools_app.server.uvicorn import UvicornServer  # noqa: PLC0415

    return UvicornServer(boundary, listener, settings.MCPHUB_MAX_BODY_BYTES)
