"""The OpenAPI document, and a page to browse and try it, for people who may use the API."""

from functools import cache
from typing import Any

from csp.constants import SELF
from csp.decorators import csp_replace
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import method_decorator
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import NotAuthenticated
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.web.api.views import BaseApiView


class Document(BaseApiView, SpectacularAPIView):
    """The OpenAPI document as JSON, the same for everybody."""

    renderer_classes = [OpenApiJsonRenderer]

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **options: Any) -> Response:
        """Return the document."""
        return Response(_document())


@cache
def _document() -> dict[str, Any]:
    """Generate the document, once: it takes a good part of a second."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    return dict(generator.get_schema(request=None, public=True))


# Swagger UI compiles no code in the browser, unlike the pages of the admin.
@method_decorator(csp_replace({"script-src": [SELF]}), name="dispatch")
class Browser(BaseApiView, SpectacularSwaggerSplitView):
    """A page that lists every operation and lets a person try it."""

    renderer_classes = [TemplateHTMLRenderer]
    content_negotiation_class = DefaultContentNegotiation
    template_name = "web/api/docs.html"
    url_name = "api-schema"
    title = "mcphub REST API"

    def dispatch(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
        """Return the page; a person who is not logged in is redirected to the login."""
        try:
            answer: HttpResponseBase = super().dispatch(request, *args, **options)
        except NotAuthenticated:
            return redirect_to_login(request.get_full_path())
        return answer

    def handle_exception(self, exc: Exception) -> Any:
        """Pass NotAuthenticated on to `dispatch`."""
        if isinstance(exc, NotAuthenticated):
            raise exc
        return super().handle_exception(exc)
