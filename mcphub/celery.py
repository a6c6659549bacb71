"""The Celery application: `celery -A mcphub worker` runs background tools.

The hub's own transport in memory replaces kombu's, which polls.
"""

import logging
import os
from typing import Any

from celery import Celery
from celery.signals import celeryd_init, setup_logging
from kombu.transport import TRANSPORT_ALIASES

from mcphub import startup

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcphub.settings")

TRANSPORT_ALIASES["memory"] = "tools_app.calls.background.embedded_broker:Transport"

app = Celery("mcphub")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["tools_app.runtime"])


@setup_logging.connect
def keep_our_logging(loglevel: int | str | None = None, **_options: Any) -> None:
    """Keep Celery from adding log handlers, so that every line passes through the formatter that removes secrets.

    `--loglevel` can make the worker more verbose than MCPHUB_LOG_LEVEL, not less.
    """
    wanted = logging.getLevelName(loglevel) if isinstance(loglevel, str) else loglevel
    root = logging.getLogger()
    if isinstance(wanted, int) and wanted < root.level:
        root.setLevel(wanted)


@celeryd_init.connect
def check_before_start(**_options: Any) -> None:
    """Exit with a one-line message if the worker cannot work. The worker inside `up` does not send this signal."""
    from tools_app.server import startup_checks  # noqa: PLC0415 - Django has to be set up

    try:
        startup_checks.check_worker()
    except Exception as problem:  # noqa: BLE001 - Celery would log it and go on
        startup.report_error(type(problem), problem, problem.__traceback__)
        raise SystemExit(1) from None
