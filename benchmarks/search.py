"""How long the audit list takes at the server, in a database that `python -m benchmarks.seed_calls` has filled.

`manage.py shell -c "from benchmarks import search; search.report()"`. It logs in a superuser and an auditor of its own,
which are gone afterwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import monotonic
from typing import Final

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings, setup_test_environment
from django.urls import reverse

from tools_app.models import Membership, Role, Tenant

READS: Final = 5
SEARCHES: Final = (
    "",
    "period=24h",
    "outcome=tool_error",
    "outcome=lost,timeout",
    "tool=reindex",
    "tool=results*&client=cursor",
    "duration_min=5000",
    "size_min=9000&period=30d",
    "address=10.3.*&period=60d",
    "key=anonymous",
    "text=troms%C3%B8&outcome=timeout",
    "text=nowhere",
)


def report() -> None:
    """Print the median and the longest time of each search, how many queries it takes, and how far it came."""
    setup_test_environment()
    with _people() as people, override_settings(WHITENOISE_USE_FINDERS=False):
        for person in people:
            for search in SEARCHES:
                print(f"{person.username:14} {search or '-':36} {_figures(person, search)}", flush=True)


def _figures(person: User, search: str) -> str:
    client, times = Client(), []
    client.force_login(person)
    address = f"{reverse('admin:tools_app_call_changelist')}?{search}"
    for _ in range(READS):
        with CaptureQueriesContext(connection) as queries:
            started_at = monotonic()
            response = client.get(address)
            times.append((monotonic() - started_at) * 1000)
    results = response.context["found"]
    suffix = "" if results.complete else ", so far"
    timing = f"{median(times):5.0f} ms (at most {max(times):.0f})"
    return f"{timing}, {len(queries)} queries, {len(results.calls)} found of {results.searched:,}{suffix}"


@contextmanager
def _people() -> Iterator[list[User]]:
    """A superuser, an auditor of one tenant, and one of five."""
    tenants = list(Tenant.objects.filter(slug__startswith="seed-")[:5])
    people = [User.objects.create_superuser("bench-root")]
    for count in (1, 5):
        auditor = User.objects.create_user(f"bench-{count}")
        for tenant in tenants[:count]:
            Membership.objects.create(user=auditor, tenant=tenant, role=Role.AUDITOR)
        people.append(auditor)
    try:
        yield people
    finally:
        User.objects.filter(pk__in=[person.pk for person in people]).delete()
