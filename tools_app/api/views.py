"""The health checks: for orchestrators and load balancers, so open to everybody and silent about the inside."""

from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tools_app.execution import readiness


class Open(APIView):
    """A view without credentials, and so without a look into the database for them."""

    authentication_classes = ()
    permission_classes = (AllowAny,)


class Live(Open):
    """`/healthz`: this process answers. It says nothing about what it depends on."""

    def get(self, request: Request) -> Response:
        """Always 200."""
        return Response({"status": "ok"})


class Ready(Open):
    """`/readyz`: this process can serve now."""

    def get(self, request: Request) -> Response:
        """200 when every part is `ok`, else 503, with the status of each part."""
        parts = readiness.statuses()
        is_ready = set(parts.values()) == {"ok"}
        return Response(
            {"status": "ok" if is_ready else "unavailable", "parts": parts}, status=200 if is_ready else 503
        )
