"""`/metrics`: the metrics of this host's processes, and a few of the whole hub, for Prometheus.

For bearers of MCPHUB_METRICS_TOKEN and for superusers. All others get 404 if no token is set.
"""

import hmac

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from tools_app.core.telemetry.exposition import CONTENT_TYPE, exposed
from tools_app.runtime import hub_stats, metrics_publisher


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics in Prometheus's text format. 401 without the token that is set, 404 if none is."""
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    token = settings.MCPHUB_METRICS_TOKEN
    has_token = scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), token.encode())
    if not (token and has_token) and not (request.user.is_active and request.user.is_superuser):
        if not token:
            raise Http404
        return HttpResponse(
            "A valid token is required.\n", status=401, headers={"WWW-Authenticate": 'Bearer realm="metrics"'}
        )
    text = exposed([*metrics_publisher.gathered(), hub_stats.snapshot()], {"tenant": hub_stats.tenant_names()})
    return HttpResponse(text, content_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})
