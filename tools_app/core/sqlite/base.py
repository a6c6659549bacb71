"""Django's SQLite engine, with a queue for the threads of a process that write.

SQLite lets one connection write at a time, and the others poll with growing pauses: a thread that commits often makes
another one wait for seconds. Here, threads write in the order in which they asked. Processes still compete by polling.
"""

import os
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from django.db import OperationalError
from django.db.backends.sqlite3 import base

from tools_app.core.process.runtime import Service

# Statements that take SQLite's write lock without a transaction of their own.
WRITE: Final = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
# Python's default for a connection, in seconds.
DEFAULT_TIMEOUT: Final = 5.0
PRIVATE: Final = 0o600


class WriteQueue:
    """Whether a thread writes to a database, and the turns of those that wait for it, in order."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.is_held = False
        self.waiting: deque[threading.Lock] = deque()


# By the path of the database file. A forked child has none of the threads that wait, nor the one that writes.
_queues: Service[[], defaultdict[str, WriteQueue]] = Service(lambda: defaultdict(WriteQueue))


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection to SQLite whose transactions and single writes queue. Raises OperationalError as SQLite does."""

    # Of the database that it is connected to.
    _queue: WriteQueue

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: WriteQueue | None = None
        self.execute_wrappers.append(self._execute_locked)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Connect, in this process: a forked child does not use the connection of its parent."""
        path = str(self.settings_dict["NAME"])
        self._queue = _queues()[path]
        if not path.startswith((":", "file:")):
            # Readable by its owner only, as are the files that SQLite makes beside it. It says itself what is wrong
            # with a path that cannot be made.
            with suppress(OSError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE))
        return super().get_new_connection(conn_params)

    def _start_transaction_under_autocommit(self) -> None:
        self._acquire()
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
        except BaseException:
            self._release()
            raise

    def _commit(self) -> None:
        # SQLite keeps the transaction if it cannot commit: Django rolls it back then.
        super()._commit()  # type: ignore[misc]
        self._release()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]
        finally:
            self._release()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]
        finally:
            self._release()

    def _execute_locked(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        if self._held is not None or self.in_atomic_block or not WRITE.match(str(sql)):
            return execute(sql, params, many, context)
        with self.write_lock():
            return execute(sql, params, many, context)

    @contextmanager
    def write_lock(self, *, first: bool = False) -> Iterator[None]:
        """Hold the lock during the block, for statements on the driver's connection.

        With `first`, a thread goes before those that wait; one thread at most may do so, or it would wait itself.
        """
        self._acquire(first=first)
        try:
            yield
        finally:
            self._release()

    def _acquire(self, *, first: bool = False) -> None:
        self.ensure_connection()
        queue, turn = self._queue, None
        with queue.mutex:
            if queue.is_held:
                turn = threading.Lock()
                turn.acquire()
                (queue.waiting.appendleft if first else queue.waiting.append)(turn)
            queue.is_held = True
        if turn is not None and not turn.acquire(timeout=self.settings_dict["OPTIONS"].get("timeout", DEFAULT_TIMEOUT)):
            with queue.mutex:
                # Otherwise it was handed over after the time-out.
                if turn in queue.waiting:
                    queue.waiting.remove(turn)
                    raise OperationalError("database is locked")
        self._held = queue

    def _release(self) -> None:
        queue, self._held = self._held, None
        if queue is not None:
            with queue.mutex:
                if queue.waiting:
                    queue.waiting.popleft().release()
                else:
                    queue.is_held = False
