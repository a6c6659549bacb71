"""How many requests a person may send."""

from typing import Any

from django.conf import settings
from rest_framework.throttling import SimpleRateThrottle


class PerPerson(SimpleRateThrottle):
    """MCPHUB_API_PER_MINUTE requests of one person in a minute, however many tokens it has. 0: no limit.

    Each web process counts for itself.
    """

    def get_rate(self) -> str | None:
        """The rate, in the words of REST framework."""
        most = settings.MCPHUB_API_PER_MINUTE
        return f"{most}/min" if most else None

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        """What requests are counted under; None for those that are not."""
        return f"api-requests-{request.user.pk}" if request.user.pk else None
