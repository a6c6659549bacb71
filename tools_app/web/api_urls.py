"""URLs of the REST API, `/api/v1/`."""

from typing import Any

from django.http import Http404
from django.urls import URLPattern, URLResolver, path, re_path
from rest_framework.request import Request
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView

from tools_app.alerts.api import AlertDeliveries, AlertDestinations, AlertRules, Alerts
from tools_app.audit.api.changes import Changes
from tools_app.audit.api.exports import Exports
from tools_app.audit.api.stats import Figures
from tools_app.calls.api.calls import Calls, RunningCalls
from tools_app.calls.api.sessions import Sessions
from tools_app.catalog.api import Prompts, Resources, Secrets, Tools, Toolsets
from tools_app.catalog.kinds.openapi.api import ApiSources
from tools_app.identity.api import (
    ClientPolicies,
    Clients,
    Connections,
    Issuers,
    Me,
    Scopes,
    ServiceClients,
    SignIns,
    Tokens,
)
from tools_app.tenants.api import Invitations, Keys, Members, Tenants
from tools_app.upstreams.api import UpstreamCredentials, UpstreamItems, Upstreams
from tools_app.web.api.documentation import Browser, Document
from tools_app.web.api.views import BaseApiView
from tools_app.web.api.viewsets import ApiView

AGGREGATES: dict[str, type[ApiView]] = {
    "tenants": Tenants,
    "tools": Tools,
    "resources": Resources,
    "prompts": Prompts,
    "secrets": Secrets,
    "api-sources": ApiSources,
    "toolsets": Toolsets,
    "upstreams": Upstreams,
    "upstream-items": UpstreamItems,
    "upstream-credentials": UpstreamCredentials,
    "keys": Keys,
    "connections": Connections,
    "clients": Clients,
    "service-clients": ServiceClients,
    "client-policies": ClientPolicies,
    "scopes": Scopes,
    "sign-ins": SignIns,
    "issuers": Issuers,
    "members": Members,
    "invitations": Invitations,
    "sessions": Sessions,
    "calls": Calls,
    "running-calls": RunningCalls,
    "changes": Changes,
    "exports": Exports,
    "tokens": Tokens,
    "alert-rules": AlertRules,
    "alert-destinations": AlertDestinations,
    "alerts": Alerts,
    "alert-deliveries": AlertDeliveries,
}


class NotFoundView(BaseApiView, APIView):
    """The view for every other URL."""

    def initial(self, request: Request, *args: Any, **options: Any) -> None:
        """Raise Http404 for people who may use the API."""
        super().initial(request, *args, **options)
        raise Http404


router = SimpleRouter()
for _name, _view in AGGREGATES.items():
    router.register(_name, _view, basename=f"api-{_name}")

urlpatterns: list[URLPattern | URLResolver] = [
    path("me/", Me.as_view({"get": "retrieve"}), name="api-me"),
    path("figures/", Figures.as_view({"get": "retrieve"}), name="api-figures"),
    path("schema/", Document.as_view(), name="api-schema"),
    path("docs/", Browser.as_view(), name="api-docs"),
    *router.urls,
    # Also without the final slash: redirecting a POST would lose its body.
    re_path("", NotFoundView.as_view(), name="api-nothing"),
]
