"""Resources: texts, files and HTTP requests that an admin defines, and Python functions."""

import base64
import binascii
from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from tools_app.api.v1.fields import Choice, JsonObject, JsonObjects, Text
from tools_app.api.v1.offers import Faults, OfferRow, OfferView
from tools_app.api.v1.rows import TenantField
from tools_app.api.v1.scoped import OfferQuery
from tools_app.execution import authoring
from tools_app.execution.checks.offers import resource_faults
from tools_app.models import Resource, ResourceKind

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
    """Bytes, in base64."""

    def to_internal_value(self, data: Any) -> Any:
        """The bytes. Raises ValidationError."""
        try:
            return base64.b64decode(super().to_internal_value(data), validate=True)
        except (ValueError, binascii.Error) as problem:
            raise serializers.ValidationError("Write the file in base64.") from problem


@extend_schema_serializer(examples=[TEXT])
class ResourceRow(OfferRow):
    """Something that clients may read, or a template for many: a URI with a `{name}` in it."""

    named_by = "uri"

    tenant = TenantField()
    name = Text(max_length=200, required=False, help_text="The code of a Python function declares it.")
    icons = JsonObjects(required=False, help_text="Objects of src, mimeType and sizes.")
    config = JsonObject(required=False, help_text="Of an HTTP request, as that of an HTTP tool.")
    blob = Bytes(required=False, write_only=True, help_text="The contents of a file, which replace what is stored.")
    size = serializers.SerializerMethodField(help_text="Bytes of the text or the file.")

    class Meta:
        model = Resource
        fields = (
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
        """How many bytes a client reads; 0 where that is not known before."""
        return len(resource.text.encode()) or len(resource.blob)

    def adopt(self, row: Resource) -> None:
        """Copy what the code declares."""
        authoring.adopt_resource(row)

    def faults(self, row: Resource) -> Faults:
        """What is wrong with a resource that is written by an admin."""
        found = resource_faults(row)
        return {"blob" if name == "file" else name: messages for name, messages in found.items()}


class ResourcesQuery(OfferQuery):
    """By tenant, name, kind, and whether it is switched on."""

    searched = ("uri", "name", "title", "description")

    kind = Choice(ResourceKind.choices, required=False, help_text="Where its contents come from.")


class Resources(OfferView):
    """The resources of tenants: texts, files, HTTP requests and Python functions that clients read by a URI."""

    queryset = Resource.objects.select_related("tenant")
    serializer_class = ResourceRow
    query_class = ResourcesQuery

    def save(self, row: Resource) -> Resource:
        """Write the resource."""
        return authoring.save_resource(row)
