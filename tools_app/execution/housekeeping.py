"""What a process does beside calls, in one thread: its heartbeat, the sweep, and the writing of what was only noted."""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from django.db import close_old_connections, connection
from django.utils import timezone

from tools_app.audit import denials
from tools_app.auth import sessions, usage
from tools_app.execution import sweeper
from tools_app.models import CallAnswer, CallInput, SessionMessage

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
CLOSE_SECONDS = 5.0
# A client's answer is taken within moments, or the call that asked has ended.
INPUTS_LIVE = timedelta(hours=1)

Chore = tuple[float, Callable[[], object]]


def chores(kind: str) -> list[Chore]:
    """What is to be done, and every how many seconds."""
    return [
        (0.25, sweeper.stop_cancelled),
        (1.0, lambda: sweeper.beat(kind)),
        (1.0, sweeper.Sweeper().sweep),
        (5.0, usage.write),
        (5.0, denials.flush),
        (30.0, sessions.end_idle),
        (60.0, drop_old_answers),
    ]


def drop_old_answers() -> None:
    """Delete what nobody took in time: answers, the clients' to calls too, and messages to streams that are gone."""
    CallAnswer.objects.filter(expires_at__lt=timezone.now()).delete()
    for passing in (CallInput, SessionMessage):
        passing.objects.filter(created_at__lt=timezone.now() - INPUTS_LIVE).delete()


class Housekeeper:
    """The thread. A chore that fails is logged and tried again at its next turn."""

    def __init__(self, kind: str) -> None:
        self._chores = chores(kind)
        self._due = [0.0] * len(self._chores)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="housekeeping", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what was only noted, take leave, and end the thread."""
        self._stopping.set()
        self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            self._do_what_is_due()
        with suppress(Exception):
            usage.write()
            denials.flush(at_once=True)
            sweeper.leave()
        _do(connection.close)

    def _do_what_is_due(self) -> None:
        _do(close_old_connections)
        now = monotonic()
        for turn, (every, chore) in enumerate(self._chores):
            if now >= self._due[turn]:
                self._due[turn] = now + every
                _do(chore)


def _do(chore: Callable[[], object]) -> None:
    try:
        chore()
    except Exception as problem:  # noqa: BLE001 - the database may be away for a while
        log.warning("Housekeeping waits: %s", problem)


_keepers: dict[int, Housekeeper] = {}
_starting = threading.Lock()


def start(kind: str) -> None:
    """Keep house in this process, from the first call on."""
    with _starting:
        if os.getpid() not in _keepers:
            _keepers[os.getpid()] = Housekeeper(kind)


def stop() -> None:
    """Stop this process's housekeeping."""
    with _starting:
        keeper = _keepers.pop(os.getpid(), None)
    if keeper is not None:
        keeper.stop()
