"""The base class of commands that change configuration, and what commands share."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tools_app.audit.changes import changes
from tools_app.core import schema_state
from tools_app.models import Tenant


class RecordedCommand(BaseCommand):
    """A command whose changes are recorded with the operating system user as actor."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command as that actor. Raises CommandError if the database is newer than this code."""
        if too_new := schema_state.newer_migrations():
            raise CommandError(too_new)
        with changes.recording_as(changes.at_command_line()):
            return super().execute(*args, **options)


def tenant_with(slug: str) -> Tenant:
    """Return the tenant with this slug. Raises CommandError if there is none."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise CommandError(f"Unknown tenant: {slug!r}.")
    return tenant
