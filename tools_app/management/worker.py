"""The Celery worker of the embedded hub: the worker of `celery worker`, in threads of this process."""

import threading

from celery import current_app
from celery.worker import WorkController
from django.conf import settings

START_SECONDS = 10.0


class EmbeddedWorker:
    """Runs background tools in `MCPHUB_WORKER_THREADS` threads, so that they need no second process."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._controller: WorkController | None = None
        # A daemon: a tool that never returns must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="celery-worker", daemon=True)

    def start(self) -> None:
        """Start and wait until tasks are taken. Raises RuntimeError if that takes more than ten seconds."""
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise RuntimeError("The Celery worker did not start: is its broker reachable?")

    def stop(self, seconds: float) -> bool:
        """Take no more tasks and wait at most `seconds` for those that run. False if some still do."""
        if self._controller is not None and self._thread.is_alive():
            closing = threading.Thread(target=self._controller.stop, name="celery-worker-stop", daemon=True)
            closing.start()
            closing.join(seconds)
            self._thread.join(0 if closing.is_alive() else seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # Made here and not in `start`: Celery closes the database connections of the thread that makes the worker.
        self._controller = WorkController(
            app=current_app,
            pool_cls="threads",
            concurrency=settings.MCPHUB_WORKER_THREADS,
            ready_callback=lambda _consumer: self._ready.set(),
            use_eventloop=False,
            without_mingle=True,
            without_gossip=True,
            without_heartbeat=True,
        )
        self._controller.start()
