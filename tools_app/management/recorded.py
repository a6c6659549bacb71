"""The base of commands that change what people set up."""

from typing import Any

from django.core.management.base import BaseCommand

from tools_app.audit import changes


class RecordedCommand(BaseCommand):
    """What this command changes is recorded as done by whoever runs it, as the operating system calls them."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command as that actor."""
        with changes.acting(changes.at_command_line()):
            return super().execute(*args, **options)
