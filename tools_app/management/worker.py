"""The Celery worker of the embedded hub: the worker of `celery worker`, in threads of this process."""

import threading

from celery import current_app
from celery.worker import WorkController
from django.conf import settings

START_SECONDS = 10.0


class WorkerNotStarted(Exception):
    """The worker takes no tasks: its broker does not answer, or it failed and said why in the log."""


class EmbeddedWorker:
    """Runs background tools in `MCPHUB_WORKER_THREADS` threads, so that they need no second process."""

    def __init__(self) -> None:
        self._settled = threading.Event()
        self._is_ready = False
        self._controller: WorkController | None = None
        # A daemon: a tool that never returns must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="celery-worker", daemon=True)

    def start(self) -> None:
        """Start and wait until tasks are taken. Raises WorkerNotStarted, at the latest after ten seconds."""
        self._thread.start()
        self._settled.wait(START_SECONDS)
        if not self._is_ready:
            raise WorkerNotStarted("The background worker did not start: does the broker answer?")

    def stop(self, seconds: float) -> bool:
        """Take no more tasks and wait at most `seconds` for those that run. False if some still do."""
        if self._controller is None or not self._thread.is_alive():
            return True
        # The worker's own thread is not waited for: it may sit in a last look at the broker for two seconds.
        closing = threading.Thread(target=self._controller.stop, name="celery-worker-stop", daemon=True)
        closing.start()
        closing.join(seconds)
        return not closing.is_alive()

    def _run(self) -> None:
        try:
            # Made in this thread: Celery closes the database connections of the thread that makes a worker.
            self._controller = WorkController(
                app=current_app,
                pool_cls="threads",
                concurrency=settings.MCPHUB_WORKER_THREADS,
                ready_callback=self._on_ready,
                use_eventloop=False,
                without_mingle=True,
                without_gossip=True,
                without_heartbeat=True,
            )
            self._controller.start()
        finally:
            self._settled.set()

    def _on_ready(self, _consumer: object) -> None:
        self._is_ready = True
        self._settled.set()
