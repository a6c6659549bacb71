"""Views of an operator's Django app, on Django's own tables."""

from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import filters, pagination, parsers, serializers, throttling, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

UPLOAD = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}, "required": ["file"]}
received_requests: list[Any] = []


class Place(serializers.Serializer[Any]):
    city = serializers.CharField(max_length=10)


class GroupSerializer(serializers.ModelSerializer[Group]):
    class Meta:
        model = Group
        fields = ("id", "name")


class Order(serializers.Serializer[Any]):
    amount = serializers.IntegerField(min_value=1)
    places = Place(many=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["amount"] > 100:
            raise ValidationError("The order is too large.")
        return attrs


class StaffWrites(BasePermission):
    message = "Only staff may change groups."

    def has_permission(self, request: Request, view: object) -> bool:
        return request.method in SAFE_METHODS or bool(request.user.is_staff)


class Often(throttling.UserRateThrottle):
    rate = "2/day"


class Pages(pagination.PageNumberPagination):
    page_size = 2


class GroupViewSet(viewsets.ModelViewSet[Group]):
    """Groups that the person is a member of."""

    serializer_class = GroupSerializer
    permission_classes = (StaffWrites,)
    pagination_class = Pages
    filter_backends = (filters.SearchFilter, filters.OrderingFilter)
    search_fields = ("name",)
    queryset = Group.objects.order_by("name")

    def get_queryset(self) -> Any:
        received_requests.append(self.request)
        return super().get_queryset().filter(user=self.request.user)

    @action(detail=False, methods=["post"], serializer_class=Order, permission_classes=())
    def order(self, request: Request) -> Response:
        """Order something."""
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(serializer.data, status=201)

    @action(detail=False, throttle_classes=[Often])
    def rare(self, request: Request) -> Response:
        """Get something that is rarely needed."""
        return Response({"by": request.user.get_username()})

    @extend_schema(parameters=[OpenApiParameter("kind", str)], responses=None)
    @action(detail=False)
    def answer(self, request: Request) -> Any:
        """Respond in one of many ways."""
        return ANSWERS[request.query_params.get("kind", "")]()

    @extend_schema(request={"multipart/form-data": UPLOAD}, responses=None)
    @action(detail=False, methods=["post"], parser_classes=[parsers.MultiPartParser])
    def upload(self, request: Request) -> Response:
        """Take a file."""
        return Response({"size": request.FILES["file"].size, "name": request.FILES["file"].name})


def _endless() -> Iterator[bytes]:
    while True:
        yield b"x" * 100_000


async def _later() -> Any:
    yield b"x"


def _fail(problem: Exception) -> Any:
    raise problem


ANSWERS = {
    "": lambda: Response(status=204),
    "pdf": lambda: HttpResponse(b"%PDF", content_type="application/pdf"),
    "file": lambda: FileResponse(iter([b"a", b"b"]), content_type="text/plain"),
    "endless": lambda: StreamingHttpResponse(_endless()),
    "events": lambda: StreamingHttpResponse(_endless(), content_type="text/event-stream; charset=utf-8"),
    "async": lambda: StreamingHttpResponse(_later()),
    "redirect": lambda: HttpResponse(status=302, headers={"Location": "https://example.com/?token=x"}),
    "broken": lambda: _fail(RuntimeError("the reason, for the log only")),
    "unwell": lambda: Response({"detail": "for the log only"}, status=503),
    "busy": lambda: HttpResponse(status=429, headers={"Retry-After": "Mon, 23 Nov 2026 20:00:00 GMT"}),
    "forbidden": lambda: _fail(PermissionDenied()),
    "html": lambda: HttpResponse("<b>no</b>", status=404),
    "many": lambda: Response({f"f{at}": ["wrong"] for at in range(200)}, status=400),
    "deep": lambda: Response(_nested(40), status=400),
}


def _nested(depth: int) -> Any:
    return {"a": _nested(depth - 1)} if depth else "b"


def colleagues(person: User, tenant: str) -> Any:
    """The people who share a tenant with a person, for staff."""
    chosen = {"memberships__tenant__slug": tenant} if person.is_staff else {"pk": person.pk}
    return User.objects.filter(**chosen)
