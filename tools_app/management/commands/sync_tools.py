"""`manage.py sync_tools`: what the code of tools, resources and prompts declares becomes what their rows say."""

from typing import Any

from tools_app.execution import authoring
from tools_app.management.recorded import RecordedCommand
from tools_app.models import Tool


class Command(RecordedCommand):
    help = (
        "Take over what changed in the code of tools, resources and prompts. Run it after a deployment; `up` does too."
    )

    def handle(self, **options: Any) -> None:
        changed = authoring.sync_code()
        for row in changed:
            said = f"revision {row.revision}" if isinstance(row, Tool) else "up to date"
            self.stdout.write(f"{row.tenant.slug}/{row}: {said}")
        if not changed:
            self.stdout.write("Everything is up to date.")
