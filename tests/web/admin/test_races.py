"""Changes in the admin that wait for another one, which then counts: what was checked before is checked again."""

from typing import Any

import pytest

from tests.worlds import World
from tools_app.alerts import destinations
from tools_app.models import AlertDestination, Change, Membership, Role


@pytest.mark.parametrize("view", ["delete", "changelist"])
def test_an_admin_who_became_the_last_one_meanwhile_stays(
    as_: Any, page: Any, acme: World, people: Any, while_waiting: Any, view: str
) -> None:
    """The two admins remove themselves at once."""
    admins = acme.tenant.memberships.filter(role=Role.ADMIN)
    mine, other = (admins.get(user=people[name]) for name in ("admin", "teammate"))
    while_waiting(other.delete)
    row, form = (mine, {}) if view == "delete" else (None, {"action": "delete_selected", "_selected_action": mine.pk})
    as_("admin").post(page("membership", view, row), {**form, "post": "yes"})
    assert admins.filter(pk=mine.pk).exists()


def forms(world: World, mine: Membership) -> dict[str, tuple[str, str, Any, dict[str, Any]]]:
    """Changes that an admin makes: the model, the page, its row and the form."""
    selected = {"action": "delete_selected", "_selected_action": [str(world.tool.pk)], "post": "yes"}
    return {
        "own role": ("membership", "change", mine, {"role": "admin"}),
        "new row": ("secret", "add", None, {"tenant": str(world.tenant.pk), "name": "late", "value": "hush"}),
        "saved row": ("toolset", "change", world.toolset, {"name": "late", "tools": "*"}),
        "deleted row": ("tool", "delete", world.tool, {"post": "yes"}),
        "deleted rows": ("tool", "changelist", None, selected),
        "button": ("apikey", "revoke_key", world.apikey, {"confirmed": "yes"}),
    }


@pytest.mark.parametrize("form", ["own role", "new row", "saved row", "deleted row", "deleted rows", "button"])
def test_an_admin_who_is_demoted_while_a_change_waits_is_refused(
    as_: Any, page: Any, acme: World, people: Any, while_waiting: Any, form: str
) -> None:
    mine = Membership.objects.get(user=people["admin"])
    model, view, row, sent = forms(acme, mine)[form]
    while_waiting(lambda: Membership.objects.filter(pk=mine.pk).update(role=Role.OPERATOR))
    assert as_("admin").post(page(model, view, row), sent).status_code == 403
    assert not Change.objects.filter(person_id=people["admin"].pk).exists()


def test_a_secret_that_was_made_meanwhile_goes_on_signing(as_: Any, page: Any, acme: World, while_waiting: Any) -> None:
    webhook = AlertDestination.objects.filter(pk=acme.alertdestination.pk)
    made: list[str] = []
    while_waiting(lambda: made.append(destinations.rotate_secret(webhook.get())))
    assert as_("admin").post(page("alertdestination", "rotate_secret", webhook.get())).status_code == 302
    newest, *older = destinations.signing_secrets(webhook.get())
    assert older == made
    assert newest not in made
