"""Work in a forked child of this process."""

import os
import signal
import threading
from collections.abc import Callable

WAIT_SECONDS = 10.0


def exit_code_of_child(work: Callable[[], bool]) -> int:
    """Return 0 if `work` returns True in a forked child, 1 if not, and -SIGKILL if it takes over WAIT_SECONDS."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    end = threading.Timer(WAIT_SECONDS, os.kill, (child, signal.SIGKILL))
    end.start()
    _, status = os.waitpid(child, 0)
    end.cancel()
    return os.waitstatus_to_exitcode(status)
