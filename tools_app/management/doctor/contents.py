"""What the hub offers, and to whom: tools without code, keys that expired, records that nobody vouches for."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from django.contrib.auth import get_user_model
from django.utils import timezone

from tools_app.auth import vault
from tools_app.auth.keys import expiring_soon
from tools_app.execution import authoring
from tools_app.execution.kinds import python
from tools_app.management.doctor.findings import Finding, judged, ok
from tools_app.models import ApiKey, Call, Checkpoint, Secret, Tenant, Tool, ToolKind

MOST_NAMED = 5
OLD_CHECKPOINT = timedelta(minutes=15)


def tools() -> Iterator[Finding]:
    """Tools that no installed app registers."""
    registered = python.all_registered()
    rows = Tool.objects.filter(kind=ToolKind.PYTHON, enabled=True, tenant__is_active=True).select_related("tenant")
    lost = [f"{row.tenant.slug}/{row.name}" for row in rows if row.config.get("function", "") not in registered]
    yield judged(
        "tools",
        f"no installed app registers {_named(lost)}" if lost else "the code of all of them is there",
        "Install the app and name it in MCPHUB_APPS, or disable these tools in the admin.",
        bad=bool(lost),
    )


def secrets() -> Iterator[Finding]:
    """Secrets of tenants that this secret key does not open."""
    closed = [f"{secret.tenant.slug}/{secret.name}" for secret in _secrets() if not _opens(secret)]
    yield judged(
        "secrets",
        f"sealed under another key: {_named(closed)}" if closed else "all can be opened",
        "Name the key they were sealed under in MCPHUB_SECRET_KEY_FALLBACKS, or write them anew in the admin.",
        bad=bool(closed),
    )


def keys() -> Iterator[Finding]:
    """API keys that expired, or will soon."""
    now = timezone.now()
    live = ApiKey.objects.filter(revoked_at=None, tenant__is_active=True).select_related("tenant")
    for about, rows, mend in (
        (
            "expired keys",
            live.filter(expires_at__lte=now, replaced_by=None),
            "Issue new keys, and revoke these in the admin.",
        ),
        (
            "expiring keys",
            expiring_soon(live),
            "Rotate them in the admin or with manage.py rotate_key before they expire.",
        ),
    ):
        names = [f"{row.tenant.slug}/{row.name}" for row in rows]
        yield judged(about, _named(names) if names else "none", mend, doubtful=bool(names))


def people() -> Iterator[Finding]:
    """Whether anybody can sign in and see everything."""
    count = get_user_model().objects.filter(is_superuser=True, is_active=True).count()
    yield judged("admins", f"{count} superusers", "Make one: python manage.py createsuperuser.", doubtful=count == 0)
    public = list(Tenant.objects.filter(is_active=True, is_public=True).values_list("slug", flat=True))
    yield ok("public tenants", _named(public) if public else "none")


def checkpoints() -> Iterator[Finding]:
    """Whether somebody signs for the newest records."""
    signed = Checkpoint.objects.order_by("-made_at").values_list("made_at", flat=True).first()
    newest = Call.objects.order_by("-id").values_list("finished_at", flat=True).first()
    if newest is None:
        yield ok("checkpoints", "nothing is recorded yet")
        return
    behind = newest - signed if signed else timedelta.max
    yield judged(
        "checkpoints",
        f"the last was signed at {signed:%Y-%m-%d %H:%M} UTC" if signed else "no record was ever signed for",
        "See the log of the hub's processes: until they sign, nobody can prove that records were not altered.",
        doubtful=behind > OLD_CHECKPOINT,
    )


def _secrets() -> Iterator[Secret]:
    return Secret.objects.select_related("tenant").iterator()


def _opens(secret: Secret) -> bool:
    try:
        authoring.open_secret(secret)
    except vault.Unsealable:
        return False
    return True


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
