"""Access to the Celery broker in a thread pool, so that a hanging broker blocks nothing else.

Each thread keeps one connection. While the broker is known to be unavailable every request fails immediately.

kombu does not document `collect` of its connections, which closes a socket without the closing handshake of AMQP
(`tests/server/test_contracts.py`).
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, TypeVar

from celery import current_app
from kombu import Connection
from kombu.exceptions import KombuError

from tools_app.core.circuit_breaker import CircuitBreaker
from tools_app.core.process.runtime import Service

log = logging.getLogger(__name__)

T = TypeVar("T")

THREADS: Final = 4
# Maximum of queued requests: at the usual 500 per second and thread they wait for half a second.
MAX_WAITING: Final = 1000
# Timeouts of a request, and of a probe's connection. Less than STREAM_AFTER_SECONDS, after which a response
# can no longer be a 503.
REQUEST_SECONDS = 2.0
# A broker that keeps a thread for longer is unavailable. REQUEST_SECONDS includes the wait for a thread.
HANGING_SECONDS: Final = 1.5
CONNECT_SECONDS: Final = 2
# No queue has this name.
PROBED_QUEUE: Final = "mcphub.probe"


class BrokerUnavailable(Exception):
    """The broker did not complete a request in time, or is known to be unavailable."""


class Broker:
    """The broker client of a process. A request is a function of a connection and can raise the connection's errors."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="broker")
        self._thread_local = threading.local()
        self._lock = threading.Lock()
        self._waiting = 0
        # When the request of a thread began, by the thread's id.
        self._began: dict[int, float] = {}
        self.circuit = CircuitBreaker("The broker", connect, ", and background calls are rejected")

    def submit(self, request: Callable[[Connection], T]) -> "Future[T]":
        """Execute `request` in a thread. Raises BrokerUnavailable, directly or from the future."""
        self._check()
        with self._lock:
            if self._waiting >= MAX_WAITING:
                raise BrokerUnavailable(f"{MAX_WAITING} requests wait for the broker already")
            self._waiting += 1
        doing = self._threads.submit(copy_context().run, self._timed, request)
        doing.add_done_callback(self._done)
        return doing

    def call(self, request: Callable[[Connection], T]) -> T:
        """Execute `request` and wait for it, at most REQUEST_SECONDS. Raises BrokerUnavailable."""
        doing = self.submit(request)
        try:
            return doing.result(REQUEST_SECONDS)
        except TimeoutError:
            raise self._timed_out(doing) from None

    async def acall(self, request: Callable[[Connection], T]) -> T:
        """Execute `request` from an event loop. A request that times out may still complete later."""
        doing = self.submit(request)
        answer = asyncio.wrap_future(doing)
        # An error that comes after the timeout has no reader, and is not to be logged as forgotten.
        answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        bound = asyncio.timeout(REQUEST_SECONDS)
        try:
            async with bound:
                return await asyncio.shield(answer)
        except TimeoutError:
            if bound.expired():
                raise self._timed_out(doing) from None
            raise

    def close(self) -> None:
        """Accept no more requests. Queued requests are dropped."""
        self.circuit.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check(self) -> None:
        if self.circuit.is_open:
            raise BrokerUnavailable("the broker is away")

    def _done(self, _doing: "Future[Any]") -> None:
        with self._lock:
            self._waiting -= 1

    def _timed_out(self, doing: "Future[Any]") -> BrokerUnavailable:
        problem = BrokerUnavailable(f"no answer within {REQUEST_SECONDS:g} seconds")
        doing.cancel()
        # A request that waited for a thread indicates a busy process, not an unavailable broker.
        if any(time.monotonic() - began >= HANGING_SECONDS for began in tuple(self._began.values())):
            self.circuit.trip(problem)
        return problem

    def _timed(self, request: Callable[[Connection], T]) -> T:
        thread = threading.get_ident()
        self._began[thread] = time.monotonic()
        try:
            return self._do(request)
        finally:
            del self._began[thread]

    def _do(self, request: Callable[[Connection], T]) -> T:
        self._check()  # it may have become unavailable while this was queued
        link = self._link()
        was_connected = link.connected
        try:
            return request(link)
        except Exception as problem:
            away = isinstance(problem, (*link.connection_errors, KombuError, OSError))
            if not away and not isinstance(problem, link.channel_errors):
                raise
            self._thread_local.link = None
            _discard(link)
            if away and was_connected and not isinstance(problem.__cause__ or problem, TimeoutError):
                return self._do(request)  # an idle connection was closed; retry with a new one
            if away:
                self.circuit.trip(problem)
            raise BrokerUnavailable(str(problem)) from problem

    def _link(self) -> Connection:
        """Return the connection of this thread, opened on first use."""
        link: Connection | None = getattr(self._thread_local, "link", None)
        if link is None:
            link = self._thread_local.link = current_app.connection_for_write()
        return link


def connect() -> None:
    """Connect to the broker without retries and check that it accepts messages. Raises the broker's errors."""
    link = current_app.connection_for_write()
    try:
        link.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS)
        if link.transport.driver_type == "amqp":
            # During a memory or disk alarm RabbitMQ accepts connections but no messages. No queue takes this one.
            link.Producer(auto_declare=False).publish(
                b"", exchange="", routing_key=PROBED_QUEUE, confirm_timeout=CONNECT_SECONDS
            )
    except Exception:
        _discard(link)
        raise
    link.release()


def _discard(link: Connection) -> None:
    """Close a failed connection, without the closing handshake of AMQP, which may hang."""
    try:
        link.collect()
    except Exception as problem:  # noqa: BLE001 - it is thrown away in any case
        log.debug("A connection to the broker did not close cleanly: %s", problem)


# The broker client of this process.
current = Service(Broker, Broker.close)


def is_away() -> bool:
    """Whether the broker is known to be unavailable in this process."""
    broker = current.running()
    return broker is not None and broker.circuit.is_open
