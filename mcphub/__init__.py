"""The project: settings, URLs and the entry points of the server and of Celery."""

from mcphub.celery import app as celery_app
from mcphub.startup import explain_failures

explain_failures()

__all__ = ["celery_app"]
