"""The Celery application: `celery -A mcphub worker` runs background tools."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcphub.settings")

app = Celery("mcphub")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["tools_app.execution"])
