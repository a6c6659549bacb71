"""Addresses of the REST API, `/api/v1/`."""

from typing import Any

from django.http import Http404
from django.urls import URLPattern, URLResolver, path, re_path
from rest_framework.request import Request
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView

from tools_app.api.v1.calls import Calls
from tools_app.api.v1.changes import Changes
from tools_app.api.v1.documentation import Browser, Document
from tools_app.api.v1.entrance import Entrance
from tools_app.api.v1.exports import Exports
from tools_app.api.v1.figures import Figures
from tools_app.api.v1.invitations import Invitations
from tools_app.api.v1.keys import Keys
from tools_app.api.v1.me import Me
from tools_app.api.v1.members import Members
from tools_app.api.v1.prompts import Prompts
from tools_app.api.v1.resources import Resources
from tools_app.api.v1.running import RunningCalls
from tools_app.api.v1.scoped import ApiView
from tools_app.api.v1.secrets import Secrets
from tools_app.api.v1.sessions import Sessions
from tools_app.api.v1.tenants import Tenants
from tools_app.api.v1.tokens import Tokens
from tools_app.api.v1.tools import Tools

AGGREGATES: dict[str, type[ApiView]] = {
    "tenants": Tenants,
    "tools": Tools,
    "resources": Resources,
    "prompts": Prompts,
    "secrets": Secrets,
    "keys": Keys,
    "members": Members,
    "invitations": Invitations,
    "sessions": Sessions,
    "calls": Calls,
    "running-calls": RunningCalls,
    "changes": Changes,
    "exports": Exports,
    "tokens": Tokens,
}


class Nothing(Entrance, APIView):
    """Every other address."""

    def initial(self, request: Request, *args: Any, **options: Any) -> None:
        """Raise Http404 for those who may enter."""
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
    # An address without its last slash, too: to send a POST elsewhere would lose its body.
    re_path("", Nothing.as_view(), name="api-nothing"),
]
