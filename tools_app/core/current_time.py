"""The current time in a condition of a query, so that the query can be built once and sent at any time."""

from datetime import timedelta
from typing import Any, Final

from django.db.models import DateTimeField, Expression
from django.utils import timezone

NO_TIME: Final = timedelta(0)


class CurrentTime(Expression):
    """The time of this process when the query is sent, and `later` than that."""

    output_field = DateTimeField()

    def __init__(self, later: timedelta = NO_TIME) -> None:
        super().__init__()
        self._later = later

    def as_sql(self, compiler: Any, connection: Any) -> Any:  # noqa: ARG002 - of the interface
        """Return a parameter with the time."""
        return "%s", [connection.ops.adapt_datetimefield_value(timezone.now() + self._later)]
