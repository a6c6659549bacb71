"""The Celery application: `celery -A mcphub worker` runs background tools."""

import logging
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcphub.settings")

TRANSPORT_ALIASES["memory"] = "tools_app.execution.embedded_broker:Transport"

app = Celery("mcphub")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["tools_app.execution"])


@setup_logging.connect
def keep_our_logging(loglevel: int | str | None = None, **_options: Any) -> None:
    """Let every line pass through the hub's formatter, which keeps secrets out: Celery would add handlers of its own.

    `--loglevel` can make the worker say more than MCPHUB_LOG_LEVEL does, and not less.
    """
    wanted = logging.getLevelName(loglevel) if isinstance(loglevel, str) else loglevel
    root = logging.getLogger()
    if isinstance(wanted, int) and wanted < root.level:
        root.setLevel(wanted)
