"""What a process does beside calls: its heartbeat, and in another thread the sweep and the writing of what was noted.

Whose heart stands still is taken for dead, with all its calls. So nothing may hold it up: a Redis that hangs holds up
other chores for seconds.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from django.db import close_old_connections, connection
from django.utils import timezone

from tools_app.audit import denials, evidence, figures_kept
from tools_app.audit.retention_daily import Daily
from tools_app.auth import sessions, usage
from tools_app.execution import limiting, measures, requeue, sweeper
from tools_app.models import CallAnswer, CallInput, SessionMessage
from tools_app.telemetry import snapshots

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
CLOSE_SECONDS = 5.0
# A client's answer is taken within moments, or the call that asked has ended.
INPUTS_LIVE = timedelta(hours=1)

Chore = tuple[float, Callable[[], object]]


def heartbeat(kind: str) -> list[Chore]:
    """What may not wait for anything but the database, and every how many seconds."""
    return [
        (0.25, sweeper.stop_cancelled),
        (1.0, lambda: sweeper.beat(kind)),
    ]


def chores() -> list[Chore]:
    """What else is to be done."""
    return [
        (1.0, sweeper.Sweeper().sweep),
        (1.0, requeue.Requeuer().look),
        (5.0, limiting.renew),
        (5.0, usage.write),
        (snapshots.EVERY_SECONDS, measures.publish),
        (5.0, denials.flush),
        (evidence.EVERY_SECONDS, evidence.notary.sign),
        (30.0, sessions.end_idle),
        (60.0, drop_old_answers),
        (figures_kept.MERGE_SECONDS, figures_kept.merge),
    ]


def drop_old_answers() -> None:
    """Delete what nobody took in time: answers, the clients' to calls too, and messages to streams that are gone."""
    CallAnswer.objects.filter(expires_at__lt=timezone.now()).delete()
    for passing in (CallInput, SessionMessage):
        passing.objects.filter(created_at__lt=timezone.now() - INPUTS_LIVE).delete()


class Housekeeper:
    """The two threads. A chore that fails is logged and tried again at its next turn."""

    def __init__(self, kind: str) -> None:
        self._pruning = Daily()
        self._stopping = threading.Event()
        self._heart = self._thread("heart", heartbeat(kind), lambda: None)
        self._house = self._thread("housekeeping", [*chores(), (60.0, self._pruning.look)], self._farewell)

    def stop(self) -> None:
        """Write what was only noted, take leave, and end the threads."""
        self._stopping.set()
        self._house.join(CLOSE_SECONDS)

    def _thread(self, name: str, chores: list[Chore], at_last: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=self._work, args=[chores, at_last], name=name, daemon=True)
        thread.start()
        return thread

    def _work(self, chores: list[Chore], at_last: Callable[[], object]) -> None:
        due = [0.0] * len(chores)
        while not self._stopping.wait(TICK_SECONDS):
            _do_what_is_due(chores, due)
        at_last()
        _do(connection.close)

    def _farewell(self) -> None:
        with suppress(Exception):
            usage.write()
            denials.flush(at_once=True)
        # A heart that still beats would bring back what takes leave.
        self._heart.join(CLOSE_SECONDS)
        with suppress(Exception):
            sweeper.leave()
        self._pruning.stop()


def _do_what_is_due(chores: list[Chore], due: list[float]) -> None:
    _do(close_old_connections)
    now = monotonic()
    for turn, (every, chore) in enumerate(chores):
        if now >= due[turn]:
            due[turn] = now + every
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
