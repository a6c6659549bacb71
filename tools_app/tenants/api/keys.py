"""API keys of MCP clients: issued, shown once, rotated, revoked."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.core.validators import validate_names, validate_networks, validate_patterns
from tools_app.models import ApiKey, Toolset
from tools_app.tenants import key_changes, keys
from tools_app.web.api.fields import Choice, Text, Texts, Whole
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import PersonField, Row, Strict, TenantField
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import Created, IsTenantAdmin, ListMixin, Retrieved, ScopedView, SearchQuery, Updated

STATES = (("active", "Active"), ("expired", "Expired"), ("revoked", "Revoked"))
MAX_OVERLAP = int(keys.MAX_OVERLAP.total_seconds())
DAY = 24 * 3600


class KeyRow(Row):
    """An API key, without the key itself."""

    tenant = TenantField()
    status = serializers.SerializerMethodField(help_text="Whether the key is accepted now.")
    created_by = PersonField(allow_null=True)
    tool_patterns = Texts(
        required=False,
        validators=[validate_names],
        help_text="Names, URIs and patterns that the key can use, e.g. search_*, or tool=search for exactly this tool. "
        "Empty: all.",
    )
    methods = Texts(
        required=False,
        validators=[validate_patterns],
        help_text="Methods that the key can call, e.g. tools/*. Empty: all.",
    )
    networks = Texts(
        required=False,
        validators=[validate_networks],
        help_text="Networks (CIDR) from which the key can be used. Empty: any.",
    )
    toolset = Text(
        required=False,
        allow_null=True,
        max_length=80,
        help_text="Name of the toolset that restricts the tools of the key further. Null: none.",
    )
    replaced_by = serializers.UUIDField(source="replaced_by_id", read_only=True, allow_null=True)

    class Meta:
        model = ApiKey
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "name",
            "prefix",
            "status",
            "expires_at",
            "tool_patterns",
            "methods",
            "networks",
            "acts_for_creator",
            *keys.LISTING,
            *keys.LIMITS,
            "created_at",
            "created_by",
            "last_used_at",
            "revoked_at",
            "replaced_by",
        )
        read_only_fields: tuple[str, ...] = ("prefix", "last_used_at", "revoked_at")
        fixed: tuple[str, ...] = ("tenant", "acts_for_creator")
        extra_kwargs = {
            "acts_for_creator": {
                "help_text": "Whether tools that need a person run for who creates the key. "
                "Without it, such tools are not offered to the key. Set when the key is created."
            }
        }

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace the name of a toolset of the key's tenant by the toolset, and check who changes the key.

        Raises ValidationError.
        """
        attrs = super().validate(attrs)
        if (name := attrs.get("toolset")) is not None:
            tenant = attrs["tenant"] if self.instance is None else self.instance.tenant
            found = Toolset.objects.filter(tenant=tenant, name=name).first()
            if found is None:
                raise serializers.ValidationError({"toolset": ["This tenant has no toolset with this name."]})
            attrs["toolset"] = found
        if self.instance is not None:
            changed = [name for name, value in attrs.items() if getattr(self.instance, name) != value]
            keys.check_editor(self.instance, self.context["request"].user, changed)
        return attrs

    @extend_schema_field(Choice(STATES))
    def get_status(self, key: ApiKey) -> str:
        """Active, expired or revoked."""
        if key.revoked_at:
            return "revoked"
        return "expired" if key.expires_at and key.expires_at <= timezone.now() else "active"


@extend_schema_serializer(
    examples=[OpenApiExample("A key", request_only=True, value={"tenant": "demo", "name": "Ann's laptop"})]
)
class IssuedKeyRow(KeyRow):
    """A new API key, with the key itself, which is shown only once."""

    key = serializers.CharField(read_only=True, help_text="The API key. It is not shown again.")

    class Meta(KeyRow.Meta):
        fields = (*KeyRow.Meta.fields, "key")


class Rotation(Strict):
    """Parameters of a rotation."""

    overlap_seconds = Whole(
        required=False,
        default=DAY,
        min_value=0,
        max_value=MAX_OVERLAP,
        help_text="How long the old key stays valid beside the new one.",
    )


class KeysQuery(SearchQuery):
    """Filter by tenant, name and status."""

    searched = ("name", "prefix")

    status = Choice(STATES, required=False, help_text="Whether the key is accepted now.")

    def filter_queryset(self, rows: QuerySet[ApiKey], filters: dict[str, Any]) -> QuerySet[ApiKey]:
        """Return those of `rows` that match the validated parameters."""
        match filters.pop("status", None):
            case "active":
                rows = keys.valid_keys(rows)
            case "expired":
                rows = rows.filter(expires_at__lte=timezone.now(), revoked_at=None)
            case "revoked":
                rows = rows.exclude(revoked_at=None)
        return super().filter_queryset(rows, filters)


class Keys(ListMixin, Retrieved, Created, Updated, ScopedView):
    """The API keys of MCP clients. A key is revoked, never deleted: its sessions and calls refer to it."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = keys.without_connections(ApiKey.objects.select_related("tenant", "created_by", "toolset"))
    serializer_class = KeyRow
    query_class = KeysQuery
    plural, singular = "API keys", "API key"

    @extend_schema(request=KeyRow, responses={201: IssuedKeyRow}, summary="Issue API key")
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Create a key. The response holds the key itself, which is shown only once."""
        return super().create(request, *args, **options)

    def get_serializer_class(self) -> type[KeyRow]:
        """Use the serializer with the key for responses that show it."""
        return IssuedKeyRow if self.action == "create" else KeyRow

    def add(self, wanted: serializers.BaseSerializer) -> ApiKey:
        """Issue the key."""
        values = wanted.validated_data
        row, key = keys.issue(
            values["tenant"],
            values["name"],
            expires_at=values.get("expires_at"),
            created_by=self._person,
            acts_for_creator=values.get("acts_for_creator", False),
            **{name: values.get(name, ()) for name in keys.SCOPES},
            toolset=values.get("toolset"),
            presentation=values.get("presentation", ""),
            limits=values,
        )
        return _with_key(row, key)

    @extend_schema(
        operation_id="keys_rotate", summary="Rotate API key", request=Rotation, responses={201: IssuedKeyRow}
    )
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Create a key that replaces this one, with all its settings; both are valid during the overlap."""
        wanted = Rotation(data=request.data)
        wanted.is_valid(raise_exception=True)
        overlap = timedelta(seconds=wanted.validated_data["overlap_seconds"])
        try:
            new, key = key_changes.rotate(self.get_object(), overlap, self._person)
        except keys.NotRotatable as problem:
            raise Conflict(str(problem)) from problem
        shown = IssuedKeyRow(_with_key(new, key), context=self.get_serializer_context())
        return Response(shown.data, status=201)

    @extend_schema(operation_id="keys_revoke", summary="Revoke API key", request=None, responses={200: KeyRow})
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Revoke the key. All processes apply it within a second. Revoking again changes nothing."""
        row = self.get_object()
        key_changes.revoke(row)
        return Response(self.get_serializer(row).data)

    @property
    def _person(self) -> User | None:
        person = self.request.user
        return person if isinstance(person, User) else None


def _with_key(row: ApiKey, key: str) -> ApiKey:
    """Return the row with the key, for the response that shows it."""
    vars(row)["key"] = key
    return row
