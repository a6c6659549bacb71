"""Health checks for orchestrators and load balancers: open to everybody, without internal details."""

from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tools_app.runtime import readiness


class Open(APIView):
    """A view without authentication, and so without a database query for it."""

    authentication_classes = ()
    permission_classes = (AllowAny,)


class Live(Open):
    """`/healthz`: this process responds. Does not check its dependencies."""

    def get(self, request: Request) -> Response:
        """Return 200."""
        return Response({"status": "ok"})


class Ready(Open):
    """`/readyz`: this process can serve requests."""

    def get(self, request: Request) -> Response:
        """Return 200 when every part is `ok`, else 503, with the status of each part."""
        parts = readiness.statuses()
        is_ready = set(parts.values()) == {"ok"}
        return Response(
            {"status": "ok" if is_ready else "unavailable", "parts": parts}, status=200 if is_ready else 503
        )
