"""The hub in one process: an ASGI server, a Celery worker, and the order in which they start and stop."""

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable

from channels.routing import get_default_application
from django.conf import settings

from tools_app.audit import recorder
from tools_app.management import servers
from tools_app.management.listening import url_of
from tools_app.management.worker import EmbeddedWorker
from tools_app.transport import shutdown

logger = logging.getLogger(__name__)

START_SECONDS = 30.0
WORKER_STOP_SECONDS = 5.0
# How long a connection may stay idle in a hub that stops: its client may just be sending a request.
IDLE_SECONDS = 1.0
LAST_ANSWERS_SECONDS = 2.0


class EmbeddedHub:
    """Serves the project's ASGI application and, unless told otherwise, runs its background tools.

    `server` names one of `servers.SERVERS`, which has to be installed.
    """

    def __init__(self, listener: socket.socket, *, with_worker: bool = True, server: str | None = None) -> None:
        self.url = url_of(listener)
        self._server = servers.make(
            server or servers.default(), get_default_application(), listener, settings.MCPHUB_MAX_BODY_BYTES
        )
        self._worker = EmbeddedWorker() if with_worker else None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def serve_forever(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve in this thread until `stop`, and return when all is shut down. `ready` is called when it listens.

        Raises WorkerNotStarted.
        """
        if self._worker is not None:
            self._worker.start()
        self._server.run(ready)

    def start_in_thread(self) -> None:
        """Serve in a thread of its own, and return when the hub listens. Raises RuntimeError if it does not."""
        listening = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=[listening.set], name="hub", daemon=True)
        self._thread.start()
        if not listening.wait(START_SECONDS):
            raise RuntimeError("The hub did not start.")

    def stop(self) -> None:
        """Begin to shut down, once. Safe from any thread and from a signal handler."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._server.spawn(self._shut_down)

    def join(self, seconds: float) -> None:
        """Wait for a hub that runs in a thread to end."""
        if self._thread is not None:
            self._thread.join(seconds)

    async def _shut_down(self) -> None:
        """Let calls finish before the worker goes, and have every record written before the connections close."""
        try:
            await _try(self._server.stop_listening)
            await _try(lambda: self._server.let_go(IDLE_SECONDS))
            await _try(lambda: shutdown.drain(settings.MCPHUB_DRAIN_SECONDS))
            await _try(lambda: self._server.finish(LAST_ANSWERS_SECONDS))
            await _try(self._stop_worker)
            await _try(lambda: asyncio.to_thread(recorder.shutdown))
        finally:
            self._server.stop()

    async def _stop_worker(self) -> None:
        if self._worker is not None and not await asyncio.to_thread(self._worker.stop, WORKER_STOP_SECONDS):
            logger.warning("A background tool ignored its cancellation; the hub stops without it.")


async def _try(step: Callable[[], Awaitable[None]]) -> None:
    """Take one step of the shutdown: when it fails, the next ones matter all the more."""
    try:
        await step()
    except Exception:
        logger.exception("A step of the shutdown failed.")
