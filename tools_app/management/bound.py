"""One row of the table of bounds."""

import msgspec
from django.conf import settings


class Bound(msgspec.Struct, frozen=True):
    """One row: the input, its limit, and the response to input beyond it.

    `status` is the HTTP status in a handshake session and `code` the JSON-RPC error; None where there is none. `note`
    describes further effects, or all effects where nothing is refused.
    """

    input: str
    limit: str
    status: int | None = None
    code: int | None = None
    note: str = ""

    @property
    def answer(self) -> str:
        """Return the response to input beyond the limit, in words."""
        status = str(self.status) if self.status else ""
        code = f"`{self.code}`" if self.code else ""
        return ", ".join(part for part in (status, code, self.note) if part)


def of_setting(name: str, unit: str) -> str:
    """Return a bound that a setting sets, with its name."""
    return f"{getattr(settings, name)} {unit} (`{name}`)"
