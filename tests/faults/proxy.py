"""A TCP proxy for a server that tests cannot stop. It forwards, hangs or refuses."""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

WAIT_SECONDS = 10.0
CHUNK = 2**16


@dataclass
class Proxy:
    """Forwards connections to `host:port` until `hang` or `refuse` is called."""

    host: str
    port: int
    listening_port: int = 0
    _listener: socket.socket | None = None
    _forwarding: threading.Event = field(default_factory=threading.Event)
    _pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)

    def start(self) -> None:
        """Listen, on the same port each time, and forward."""
        self._forwarding.set()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.listening_port))
        self.listening_port = self._listener.getsockname()[1]
        self._listener.listen(128)
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def hang(self) -> None:
        """Accept connections and bytes, and forward nothing."""
        self._forwarding.clear()

    def resume(self) -> None:
        """Forward again, also the bytes received meanwhile."""
        self._forwarding.set()

    def refuse(self) -> None:
        """Break every connection and accept no new one."""
        self._forwarding.set()
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
                threading.Thread(target=self._forward, args=[source, target], daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._forwarding.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
