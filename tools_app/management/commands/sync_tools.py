"""`manage.py sync_tools`: update the rows of tools, resources and prompts to the declarations of their code."""

from typing import Any

from tools_app.catalog import authoring
from tools_app.management.base import RecordedCommand
from tools_app.models import Tool


class Command(RecordedCommand):
    help = "Update tools, resources and prompts from their code. Run it after a deployment. `up` runs it too."

    def handle(self, **options: Any) -> None:
        changed = authoring.sync_code()
        for row in changed:
            state = f"revision {row.revision}" if isinstance(row, Tool) else "up to date"
            self.stdout.write(f"{row.tenant.slug}/{row}: {state}")
        if not changed:
            self.stdout.write("Everything is up to date.")
