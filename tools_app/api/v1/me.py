"""Who is logged in."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.rows import Row, TenantField
from tools_app.api.v1.scoped import ApiView
from tools_app.models import Membership, PersonalToken


class RoleOfMine(Row):
    """A role in a tenant."""

    tenant = TenantField(read_only=True)

    class Meta:
        model = Membership
        fields = ("tenant", "role")
        read_only_fields = fields


class Myself(serializers.Serializer):
    """The person behind the request."""

    username = serializers.CharField()
    email = serializers.CharField(allow_blank=True)
    is_superuser = serializers.BooleanField(help_text="Superusers run the whole hub.")
    login = serializers.ChoiceField([("session", "A browser's session"), ("token", "A personal token")])
    roles = RoleOfMine(many=True)


class Me(ApiView):
    """Who is logged in, and with which roles."""

    queryset = Membership.objects.all()
    serializer_class = Myself
    plural = singular = "me"

    @extend_schema(operation_id="me_retrieve", summary="Who am I?", responses=Myself)
    def retrieve(self, request: Request, *_args: Any, **_options: Any) -> Response:
        """The person behind the request and its roles."""
        person = request.user
        said = {
            "username": person.get_username(),
            "email": person.email,
            "is_superuser": self.reach.everything,
            "login": "token" if isinstance(request.auth, PersonalToken) else "session",
            "roles": Membership.objects.filter(user=person).select_related("tenant").order_by("tenant__slug")[:1000],
        }
        return Response(Myself(said, context=self.get_serializer_context()).data)
