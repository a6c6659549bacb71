"""The patterns of hosts in client policies: what is wrong with one, for the admin, the REST API and files alike."""

import re
from typing import Final

from django.core.exceptions import ValidationError

from tools_app.models import ClientPolicy, Tenant

MAX_POLICIES: Final = 200
_PATTERN: Final = re.compile(r"[a-z0-9*._-]+:?|\[[0-9a-f:.]+\]")


def normalized(host: str) -> str:
    """Return a pattern in the spelling of `identity.oauth.policy.host_of`. Raises ValidationError if it has none."""
    host = host.strip().lower()
    if not host.endswith(("..", ":")):
        host = host.removesuffix(".")
    if not _PATTERN.fullmatch(host):
        raise ValidationError(
            "Write a host such as claude.ai, *.example.com or localhost, the scheme of an application such as cursor:, "
            "or * for every client."
        )
    return host


def check_room(tenant: Tenant) -> None:
    """Raise ValidationError if a tenant has as many policies as it may have."""
    if ClientPolicy.objects.filter(tenant=tenant).count() >= MAX_POLICIES:
        raise ValidationError(f"A tenant has at most {MAX_POLICIES} client policies. Use * in a host.")
