"""The project's command line, and the reporting of a failed start: one sentence, no traceback.

`manage.py`, `python -m mcphub`, `celery -A mcphub` and servers that load `mcphub.asgi` all use it: Python passes
uncaught exceptions to `sys.excepthook`.
"""

import os
import sys
from contextlib import suppress
from types import TracebackType

from mcphub.environment import TRUE


def main() -> None:
    """Run a management command, as `manage.py` does."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcphub.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - the hook has to stand before

    execute_from_command_line(sys.argv)


def explain_failures() -> None:
    """Install a hook that reports failures which the operator can fix in one sentence."""
    sys.excepthook = report_error


def report_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print a sentence if there is one for `error` and no traceback was requested, else the traceback."""
    sentence = None if wants_traceback() else _explained(error)
    if sentence is None:
        sys.__excepthook__(kind, error, traceback)
    else:
        sys.stderr.write(f"mcphub: {sentence}\n")
    if isinstance(error, BrokenPipeError):
        # Python would fail again when it flushes the output.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wants_traceback() -> bool:
    """Whether the command line (--traceback) or MCPHUB_DEBUG asks for a traceback."""
    return "--traceback" in sys.argv or os.environ.get("MCPHUB_DEBUG", "").lower() in TRUE


def _explained(error: BaseException) -> str | None:
    try:
        from tools_app.server.startup_errors import explain  # noqa: PLC0415 - only where something failed

        return explain(error)
    except Exception:  # noqa: BLE001 - the failure itself matters more
        return None
