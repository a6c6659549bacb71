"""The Celery worker of the embedded hub: the worker of `celery worker`, in threads of this process.

`WorkController` is Celery's embeddable worker. Three parts are not documented (`tests/server/test_contracts.py`): its
options `ready_callback` and `use_eventloop`, and `should_stop` of `state`, which ends a worker that no message reaches.
"""

import threading
from contextlib import suppress

from celery import current_app
from celery.exceptions import WorkerShutdown
from celery.platforms import EX_OK
from celery.utils.nodenames import anon_nodename
from celery.worker import WorkController, state
from celery.worker.control import control_command
from django.conf import settings

from tools_app.catalog.kinds.openapi.sources import documents as api_sources
from tools_app.core.process.threads import start_thread

START_SECONDS = 10.0
STOP = "mcphub_stop"


@control_command(name=STOP)
def stop_now(_state: object) -> None:
    """Stop the worker that receives this message, as Celery's own `shutdown` does, but without a warning in the log."""
    raise WorkerShutdown(EX_OK)


class WorkerNotStarted(Exception):
    """The worker takes no tasks: its broker does not answer, or it failed and logged the reason."""


class EmbeddedWorker:
    """Runs background tools in `MCPHUB_WORKER_THREADS` threads, so that they need no second process.

    Like any worker, it reads documents of API sources beside them.
    """

    def __init__(self) -> None:
        self._start_finished = threading.Event()
        self._is_ready = False
        # A unique name: another worker on this host must not receive this worker's messages.
        self._name = anon_nodename()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start and wait until tasks are accepted. Raises WorkerNotStarted after at most ten seconds."""
        self._thread = start_thread("celery-worker", self._run)
        self._start_finished.wait(START_SECONDS)
        if not self._is_ready:
            raise WorkerNotStarted("The background worker did not start. Check that the broker is available.")
        api_sources.reader()

    def stop(self, seconds: float) -> bool:
        """Accept no more tasks and wait at most `seconds` for running ones. Returns False if some still run."""
        # Only the worker's own thread may close its connections. It handles a message immediately; without a working
        # broker, it checks the flag within seconds.
        state.should_stop = EX_OK  # type: ignore[assignment] # its stub knows the first value only
        start_thread("celery-worker-stop", self._send_stop)
        assert self._thread is not None
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _send_stop(self) -> None:
        with suppress(*current_app.connection_for_write().connection_errors):
            current_app.control.broadcast(STOP, destination=[self._name])

    def _run(self) -> None:
        try:
            # Created in this thread: Celery closes the database connections of the thread that creates a worker.
            worker = WorkController(
                app=current_app,
                hostname=self._name,
                pool="threads",
                concurrency=settings.MCPHUB_WORKER_THREADS,
                ready_callback=self._on_ready,
                use_eventloop=False,
                without_mingle=True,
                without_gossip=True,
                without_heartbeat=True,
            )
            worker.start()
        finally:
            state.should_stop = None
            self._start_finished.set()

    def _on_ready(self, _consumer: object) -> None:
        self._is_ready = True
        self._start_finished.set()
