"""`/metrics`: the numbers of this host's processes, and a few of the whole hub, for Prometheus.

For whoever carries MCPHUB_METRICS_TOKEN, and for superusers. To everybody else it does not exist if no token is set.
"""

import hmac

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from tools_app.execution import hub_numbers, measures
from tools_app.telemetry.exposition import CONTENT_TYPE, exposed


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """The text that Prometheus reads. 401 without the token that is set, 404 if none is."""
    if not (_carries_token(request) or _is_superuser(request)):
        if not settings.MCPHUB_METRICS_TOKEN:
            raise Http404
        return HttpResponse("A token is needed.\n", status=401, headers={"WWW-Authenticate": 'Bearer realm="metrics"'})
    text = exposed([*measures.gathered(), hub_numbers.snapshot()], {"tenant": hub_numbers.tenant_names()})
    return HttpResponse(text, content_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})


def _carries_token(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    wanted = settings.MCPHUB_METRICS_TOKEN
    return bool(wanted) and scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), wanted.encode())


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_superuser
