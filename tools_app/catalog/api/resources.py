"""Resources: texts, files and HTTP requests that an admin defines, and Python functions."""

import base64
import binascii
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from tools_app.catalog import authoring
from tools_app.catalog.api.catalog_items import Faults, OfferRow, OfferView
from tools_app.catalog.kinds.http.references import secret_faults
from tools_app.catalog.validation.items import resource_faults
from tools_app.catalog.validation.resources import MAX_BYTES, MAX_CHARACTERS
from tools_app.core.relations import OctetLength
from tools_app.models import Resource, ResourceKind
from tools_app.web.api.fields import Choice, JsonObject, JsonObjects, Text
from tools_app.web.api.serializers import TenantField
from tools_app.web.api.viewsets import OfferQuery

TEXT = OpenApiExample(
    "A text",
    request_only=True,
    value={
        "tenant": "demo",
        "uri": "docs://guide",
        "name": "Guide",
        "kind": "text",
        "mime_type": "text/markdown",
        "text": "# How we work",
    },
)

BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


@extend_schema_field({"type": "string", "contentEncoding": "base64", "pattern": BASE64})
class Bytes(Text):
    """A base64-encoded value."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the bytes. Raises ValidationError."""
        try:
            return base64.b64decode(super().to_internal_value(data), validate=True)
        except (ValueError, binascii.Error) as problem:
            raise serializers.ValidationError("Must be base64.") from problem


@extend_schema_serializer(examples=[TEXT])
class ResourceRow(OfferRow):
    """A resource that clients can read, or a resource template: a URI with a `{name}` in it."""

    named_by = "uri"

    tenant = TenantField()
    name = Text(max_length=200, required=False, help_text="Declared by the code of a Python function.")
    icons = JsonObjects(required=False, help_text="Objects with src, mimeType and sizes.")
    config = JsonObject(
        required=False, help_text="For an HTTP request: the config of an HTTP tool, whose secrets must exist."
    )
    text = Text(required=False, allow_blank=True, max_length=MAX_CHARACTERS, help_text="What clients read, for a text.")
    blob = Bytes(
        required=False,
        write_only=True,
        max_length=4 * (MAX_BYTES // 3 + 1),
        help_text="Contents of a file. They replace the stored contents.",
    )
    size = serializers.SerializerMethodField(help_text="Size of the text or file in bytes.")

    class Meta:
        model = Resource
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "uri",
            "name",
            "kind",
            "enabled",
            "title",
            "description",
            "mime_type",
            "annotations",
            "icons",
            "text",
            "blob",
            "size",
            "config",
            "timeout_seconds",
            "created_at",
            "updated_at",
        )
        fixed = ("tenant", "kind")

    def get_size(self, resource: Resource) -> int:
        """Return the size in bytes that a client reads; 0 if it is not known in advance."""
        stored: int | None = vars(resource).get("stored_bytes")
        return len(resource.text.encode()) or len(resource.blob) if stored is None else stored

    def adopt(self, row: Resource) -> None:
        """Copy what the code declares."""
        authoring.update_resource_from_code(row)

    def faults(self, row: Resource) -> Faults:
        """Return the problems of a resource written by an admin. Missing secrets that it names already are none."""
        found = resource_faults(row)
        if not found and row.kind == ResourceKind.HTTP:
            before = self.instance.config if self.instance is not None else None
            found = secret_faults(row.tenant, row.config, before)
        return {"blob" if name == "file" else name: messages for name, messages in found.items()}


class ListedResourceRow(ResourceRow):
    """A resource without its text, which a list leaves out: `size` is its length."""

    class Meta(ResourceRow.Meta):
        fields = tuple(name for name in ResourceRow.Meta.fields if name not in {"text", "blob"})


class ResourcesQuery(OfferQuery):
    """Filter by tenant, name, kind, and whether the resource is enabled."""

    searched = ("uri", "name", "title", "description")

    kind = Choice(ResourceKind.choices, required=False, help_text="Source of the contents.")


class Resources(OfferView):
    """The resources of tenants: texts, files, HTTP requests and Python functions that clients read by a URI."""

    queryset = Resource.objects.select_related("tenant")
    serializer_class = ResourceRow
    query_class = ResourcesQuery

    def get_serializer_class(self) -> type[ResourceRow]:
        """Use the serializer with the text for a single resource."""
        return ListedResourceRow if self.action == "list" else ResourceRow

    def get_queryset(self) -> QuerySet[Resource]:
        """Leave out the text in lists: it may be long."""
        rows: QuerySet[Resource] = super().get_queryset()
        if self.action != "list":
            return rows
        return rows.defer("text", "blob").annotate(stored_bytes=OctetLength("text") + OctetLength("blob"))

    def save(self, row: Resource) -> Resource:
        """Save the resource."""
        return authoring.save_resource(row)
