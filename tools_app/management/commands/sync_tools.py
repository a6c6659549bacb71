"""`manage.py sync_tools`: what the code of Python tools declares becomes their newest revision."""

from typing import Any

from django.core.management.base import BaseCommand

from tools_app.execution import authoring


class Command(BaseCommand):
    help = "Record a new revision of each Python tool whose code changed. Run it after a deployment; `up` does it too."

    def handle(self, **options: Any) -> None:
        changed = authoring.sync_code_tools()
        for tool in changed:
            self.stdout.write(f"{tool.tenant.slug}/{tool.name}: revision {tool.revision}")
        if not changed:
            self.stdout.write("Every tool is up to date.")
