"""The command `sync_tools`."""

from io import StringIO

import pytest
from django.core.management import call_command

from tools_app.catalog import authoring
from tools_app.models import Prompt, Resource, Tool, ToolRevision
from tools_app.toolkit import prompt, resource

pytestmark = pytest.mark.django_db


def synced() -> str:
    out = StringIO()
    call_command("sync_tools", stdout=out)
    return out.getvalue()


def test_code_that_did_not_change_makes_no_revision(offer):
    offer("echo")

    assert synced() == "Everything is up to date.\n"


def test_code_that_changed_becomes_the_next_revision(offer):
    [tool] = offer("echo")
    Tool.objects.filter(pk=tool.pk).update(description="What an older release said.")
    ToolRevision.objects.filter(tool=tool).update(digest="of an older release")

    assert synced() == "acme/echo: revision 2\n"
    assert ToolRevision.objects.filter(tool=tool).count() == 2


@pytest.fixture
def declared(offer_resources, offer_prompts, registries):
    """A resource and a prompt as their code declares them."""

    @resource("docs://a", title="A page")
    def page() -> str:
        """Read a page."""
        return ""

    @prompt(title="Ask")
    def ask(city: str) -> str:
        """Ask about a city."""
        return city

    offer_resources("docs://a")
    offer_prompts("ask")


@pytest.mark.usefixtures("declared")
def test_resources_and_prompts_take_over_what_their_code_declares():
    Resource.objects.update(title="As it was once")
    Prompt.objects.update(arguments=[])

    assert synced() == "acme/docs://a: up to date\nacme/ask: up to date\n"
    assert Resource.objects.get().title == "A page"
    assert Prompt.objects.get().arguments[0]["name"] == "city"
    assert synced() == "Everything is up to date.\n"


@pytest.fixture(params=[Tool, Resource, Prompt])
def outdated(request, offer, declared):
    """The only row of a model, whose code declares something else."""
    offer("echo")
    ToolRevision.objects.filter(number=1 if request.param is Tool else 0).update(digest="of an older release")
    request.param.objects.update(title="As it was once")
    return request.param.objects.all()


def test_what_was_disabled_meanwhile_stays_disabled(outdated, while_waiting):
    while_waiting(lambda: authoring.set_enabled(outdated.get(), enabled=False))

    synced()

    assert not outdated.get().enabled
    assert outdated.get().title != "As it was once"


def test_what_was_deleted_meanwhile_is_not_restored(outdated, while_waiting):
    while_waiting(lambda: authoring.delete(outdated.get()))

    synced()

    assert not outdated.exists()
