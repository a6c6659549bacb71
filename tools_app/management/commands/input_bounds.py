"""`manage.py input_bounds`: print the table of bounds, or write it into a page between its two markers."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tools_app.management.input_bounds import markdown

BEGIN, END = "<!-- bounds -->", "<!-- end of bounds -->"


class Command(BaseCommand):
    help = "Print the bounds of all input, as the table in docs/security.md."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--write", type=Path, metavar="PAGE", help="Update the table in this page instead.")

    def handle(self, *args: Any, write: Path | None, **options: Any) -> None:
        if write is None:
            self.stdout.write(markdown())
            return
        text = write.read_text(encoding="utf-8")
        if text.count(BEGIN) != 1 or text.count(END) != 1:
            raise CommandError(f"{write}: add the markers {BEGIN} and {END} around the table.")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        write.write_text(f"{before}{BEGIN}\n\n{markdown()}\n\n{END}{after}", encoding="utf-8")
