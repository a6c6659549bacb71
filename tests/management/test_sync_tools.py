"""`manage.py sync_tools`, after a deployment."""

from io import StringIO

import pytest
from django.core.management import call_command

from tools_app.models import Tool, ToolRevision

pytestmark = pytest.mark.django_db


def synced() -> str:
    out = StringIO()
    call_command("sync_tools", stdout=out)
    return out.getvalue()


def test_code_that_did_not_change_makes_no_revision(offer):
    offer("echo")

    assert synced() == "Every tool is up to date.\n"


def test_code_that_changed_becomes_the_next_revision(offer):
    [tool] = offer("echo")
    Tool.objects.filter(pk=tool.pk).update(description="What an older release said.")
    ToolRevision.objects.filter(tool=tool).update(digest="of an older release")

    assert synced() == "acme/echo: revision 2\n"
    assert ToolRevision.objects.filter(tool=tool).count() == 2
