"""The beginning of an export: its row, and the record that somebody takes calls out of the hub."""

from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from tools_app.audit import changes
from tools_app.audit.search.query import CallQuery
from tools_app.audit.search.scope import Scope, scope_of
from tools_app.audit.search.walking import expected
from tools_app.models import Action, Export, ExportFormat

# Of more tenants than these at once, an export is recorded as the hub's.
MOST_RECORDED: Final = 50


def start(query: CallQuery, person: User, form: ExportFormat, *, with_payloads: bool) -> Export:
    """An export that is ready to be downloaded. Raises TextRefused where the person may not search for the text.

    It is about the calls up to now, however often it is downloaded.
    """
    query = query.at(timezone.now())
    scope = scope_of(query, person)
    export = Export(
        person=person,
        query=query.to_string(),
        format=form,
        with_payloads=with_payloads,
        expected=expected(query, scope),
    )
    with transaction.atomic():
        export.save()
        record(export, scope)
    return export


def record(export: Export, scope: Scope) -> None:
    """Write down that calls are exported, for each tenant whose calls they are, in the transaction that is open."""
    tenants = scope.tenants if scope.tenants and len(scope.tenants) <= MOST_RECORDED else (None,)
    after = {"query": export.query, "format": export.format, "with_payloads": export.with_payloads}
    for tenant_id in tenants:
        changes.record(Action.EXPORTED, export, after=after, tenant_id=tenant_id, name="Calls")
