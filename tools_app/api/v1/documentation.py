"""The OpenAPI document, and a page to browse and try it. For those who may enter the API."""

from functools import cache
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import NotAuthenticated
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.entrance import Entrance


class Document(Entrance, SpectacularAPIView):
    """The OpenAPI document, as JSON: the same for everybody."""

    renderer_classes = [OpenApiJsonRenderer]

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **options: Any) -> Response:
        """The document."""
        return Response(_document())


@cache
def _document() -> dict[str, Any]:
    """Written once: it takes a good part of a second."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    return dict(generator.get_schema(request=None, public=True))


class Browser(Entrance, SpectacularSwaggerSplitView):
    """A page that shows every operation and lets a person try it."""

    renderer_classes = [TemplateHTMLRenderer]
    content_negotiation_class = DefaultContentNegotiation
    template_name = "api/docs.html"
    url_name = "api-schema"
    title = "mcphub REST API"

    def dispatch(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
        """The page; nobody in particular is sent to the login first."""
        try:
            answer: HttpResponseBase = super().dispatch(request, *args, **options)
        except NotAuthenticated:
            return redirect_to_login(request.get_full_path())
        return answer

    def handle_exception(self, exc: Exception) -> Any:
        """Let `dispatch` see that nobody is logged in."""
        if isinstance(exc, NotAuthenticated):
            raise exc
        return super().handle_exception(exc)
