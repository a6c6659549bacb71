"""Tools that use what belongs to the client of a process: its standard input and output."""

import logging
import os
import subprocess
import sys
import time

from tests.processes.noisy import LINES
from tools_app.toolkit import ToolContext, tool


@tool
def loud() -> str:
    """Print in every way that there is."""
    print("NOISE of print")  # noqa: T201 - that is what it is for
    sys.stdout.write("NOISE of write\n")
    sys.stdout.flush()
    os.write(1, b"NOISE of a descriptor\n")
    subprocess.run(["echo", "NOISE of a program"], check=True)
    logging.getLogger("noisy").warning("NOISE of a log")
    return LINES


@tool
def nosy() -> str:
    """Read what the client says."""
    read = subprocess.run(["cat"], capture_output=True, check=True, timeout=60).stdout
    return f"read {len(read) + len(sys.stdin.read())} bytes"


@tool
def holds(context: ToolContext) -> str:
    """Run until it is stopped."""
    context.progress(1)
    context.sleep(600)
    return "held"


@tool
def deaf(context: ToolContext) -> str:
    """Run on, whoever stops it."""
    context.progress(1)
    time.sleep(300)
    return "slept"
