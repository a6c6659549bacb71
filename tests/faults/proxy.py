"""A TCP proxy in front of a server that a test may not stop: it passes bytes on, hangs, or refuses."""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

WAIT_SECONDS = 10.0
CHUNK = 2**16


@dataclass
class Proxy:
    """Passes connections to `host:port` on, until it is told to hang or to refuse."""

    host: str
    port: int
    listening: int = 0
    _listener: socket.socket | None = None
    _passing: threading.Event = field(default_factory=threading.Event)
    _pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)

    def start(self) -> None:
        """Listen, on the same port each time, and pass on."""
        self._passing.set()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.listening))
        self.listening = self._listener.getsockname()[1]
        self._listener.listen(128)
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def hang(self) -> None:
        """Take connections and bytes, and pass nothing on."""
        self._passing.clear()

    def go_on(self) -> None:
        """Pass on again, also what came meanwhile."""
        self._passing.set()

    def refuse(self) -> None:
        """Break every connection and take no new one."""
        self._passing.set()
        if self._listener is not None:
            # The thread that accepts would keep the port otherwise.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection((self.host, self.port), WAIT_SECONDS)
            except OSError:
                return
            server.settimeout(None)
            self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=[source, target], daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._passing.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
