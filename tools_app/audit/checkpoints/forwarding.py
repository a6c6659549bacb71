"""Forwarding of new checkpoints to another machine, by HTTP POST or to a syslog server (MCPHUB_AUDIT_CHECKPOINTS_URL).

Each message is a line of `export_checkpoints`, which contains its signature. A separate thread sends, so neither
calls nor signing wait. The newest MAX_WAITING undelivered lines are queued and retried.
"""

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from tools_app.audit.checkpoints import witness
from tools_app.core.http.addresses import ANYWHERE
from tools_app.core.http.client import Outbound, RequestPolicy, exchange, trusted_certificates
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.core.process.runtime import Service
from tools_app.core.process.threads import start_thread

log = logging.getLogger(__name__)

MAX_WAITING: Final = 100
SEND_SECONDS: Final = 5.0
FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0
MAX_ANSWER_BYTES: Final = 64 * 1024
SYSLOG_PORTS: Final = {"syslog": 514, "syslog+tls": 6514}
# Facility 13 (log audit), severity 5 (notice): RFC 5424, section 6.2.1.
SYSLOG_PRIORITY: Final = 13 * 8 + 5

Send = Callable[[str], None]


class NotDelivered(Exception):
    """A checkpoint did not reach the receiver. The message is the reason."""


class Forwarder:
    """Sends lines in order, in a separate thread."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING)
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._has_failed = False
        self._thread = start_thread("witness-forwarding", self._work)

    def take(self, line: str) -> None:
        """Queue a line to be sent. If the queue is full, the oldest line is dropped."""
        with self._changed:
            self._waiting.append(line)
            self._changed.notify()

    def close(self) -> None:
        """Try once more to send queued lines, and end. Bounded by SEND_SECONDS."""
        self._ending.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(SEND_SECONDS + 1)

    def _work(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while (line := self._next()) is not None:
            if self._delivered(line):
                pause = FIRST_RETRY_SECONDS
            elif self._ending.is_set():
                return
            else:
                self._ending.wait(pause)
                pause = min(pause * 2, LAST_RETRY_SECONDS)

    def _next(self) -> str | None:
        """Return the oldest queued line; None if the queue is empty and the forwarder is closed."""
        with self._changed:
            while not self._waiting and not self._ending.is_set():
                self._changed.wait()
            return self._waiting[0] if self._waiting else None

    def _delivered(self, line: str) -> bool:
        try:
            self._send(line)
        except Exception as problem:  # noqa: BLE001 - after any error, the next lines are sent
            if not self._has_failed:
                # The URL may contain a secret; only messages of NotDelivered are known not to.
                reason = str(problem) if isinstance(problem, NotDelivered) else type(problem).__name__
                log.warning(
                    "Checkpoints cannot be delivered to MCPHUB_AUDIT_CHECKPOINTS_URL and are retried: %s", reason
                )
            self._has_failed = True
            return False
        self._has_failed = False
        with self._changed:
            if self._waiting and self._waiting[0] == line:
                self._waiting.popleft()
        return True


def post(url: str, line: str) -> None:
    """Send a line as the body of a POST. Redirects are not followed. Raises NotDelivered."""
    try:
        request = Outbound("POST", parse_url(url), (("Content-Type", "application/json"),), line.encode())
        policy = RequestPolicy(ANYWHERE, SEND_SECONDS, MAX_ANSWER_BYTES)
        reply = asyncio.run(exchange(request, policy))
    except (RequestFailed, InvalidUrl) as problem:
        raise NotDelivered(str(problem)) from problem
    if not 200 <= reply.status < 300:  # noqa: PLR2004 - the successes of HTTP
        raise NotDelivered(f"the receiver answered {reply.status}")


def log_to_syslog(url: str, line: str) -> None:
    """Send a line as an RFC 5424 message over TCP, framed as in RFC 6587 section 3.4.1. Raises NotDelivered.

    `syslog+tls` uses TLS (RFC 5425): this machine must trust the server's certificate.
    """
    place = urlsplit(url)
    message = f"<{SYSLOG_PRIORITY}>1 - {socket.gethostname()[:255]} mcphub {os.getpid()} checkpoint - {line}".encode()
    try:
        host, port = place.hostname or "", place.port or SYSLOG_PORTS[place.scheme]
        with socket.create_connection((host, port), timeout=SEND_SECONDS) as connection:
            framed = b"%d " % len(message) + message
            if place.scheme == "syslog":
                connection.sendall(framed)
                return
            with trusted_certificates().wrap_socket(connection, server_hostname=host) as sealed:
                sealed.sendall(framed)
                with suppress(OSError):  # the line is delivered; errors while closing do not matter
                    sealed.unwrap()
    except OSError as problem:
        raise NotDelivered(str(problem)) from problem


def start() -> None:
    """Start forwarding the checkpoints of this process, if MCPHUB_AUDIT_CHECKPOINTS_URL is set."""
    url = settings.MCPHUB_AUDIT_CHECKPOINTS_URL
    if url:
        forwarder(url)


def _forward_to(url: str) -> Forwarder:
    sender = log_to_syslog if urlsplit(url).scheme in SYSLOG_PORTS else post
    started = Forwarder(lambda line: sender(url, line))
    witness.on_stored(started.take)
    return started


def _close(started: Forwarder) -> None:
    """Send the last checkpoints, after the recorder has stopped."""
    witness.on_stored(None)
    started.close()


# The forwarder of this process, to a URL.
forwarder = Service(_forward_to, _close)
