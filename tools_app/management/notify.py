"""What systemd is told about this process, where it asks for that (sd_notify(3)): ready, reloading, stopping."""

import os
import socket
import time

VARIABLE = "NOTIFY_SOCKET"


def ready() -> None:
    """It answers, after a start or a reload."""
    _tell("READY=1")


def reloading() -> None:
    """It replaces its processes, and says `ready` again when that is done."""
    _tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def stopping() -> None:
    """It has begun to stop."""
    _tell("STOPPING=1")


def _tell(state: str) -> None:
    address = os.environ.get(VARIABLE, "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
        # "@" begins an abstract address, which the kernel writes with a zero byte.
        teller.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
