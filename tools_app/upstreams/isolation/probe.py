"""Tells what a program of a stdio upstream can reach. A script of its own, run in the isolation of such a program.

    python -I probe.py TARGETS

TARGETS is a JSON list of a name, a kind of socket (`tcp`, `udp` or `unix`) and an address. The names of those that can
be reached are printed, one a line. Nothing is sent but one empty datagram for `udp`.
"""

import json
import socket
import sys
from typing import Any

SECONDS = 1.0


def reaches(kind: str, address: Any) -> bool:
    """Whether a connection to an address can be opened, or a datagram sent to it."""
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as opened:
            opened.settimeout(SECONDS)
            opened.connect(address if kind == "unix" else tuple(address))
            if kind == "udp":
                opened.send(b"")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    for name, kind, address in json.loads(sys.argv[1]):
        if reaches(kind, address):
            print(name)  # noqa: T201 - its output
