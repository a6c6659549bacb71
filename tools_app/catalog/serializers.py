"""What is read and written of tools, resources, prompts, toolsets and secrets: over REST, and in a tenant's file."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from tools_app.catalog import authoring, toolsets
from tools_app.catalog.kinds.base import WRITTEN, all_kinds, kind_of
from tools_app.catalog.kinds.http.config import as_described, with_defaults
from tools_app.catalog.kinds.http.kind import HttpKind
from tools_app.catalog.kinds.http.references import secret_faults
from tools_app.catalog.kinds.python.kind import PythonKind, code_faults
from tools_app.catalog.kinds.upstream.kind import upstream_faults
from tools_app.catalog.validation.items import prompt_faults, resource_faults, tool_faults
from tools_app.catalog.validation.mime_types import mime_type_of
from tools_app.catalog.validation.resources import MAX_BYTES, MAX_CHARACTERS
from tools_app.catalog.validation.sizes import MAX_DESCRIPTION_LENGTH, MAX_SECRET_LENGTH
from tools_app.core.documents import Document
from tools_app.core.validators import ONE_LINE, validate_aliases, validate_patterns
from tools_app.models import (
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    Secret,
    Tenant,
    Tool,
    ToolRevision,
    Toolset,
)
from tools_app.web.api.fields import JsonObject, JsonObjects, Text, Texts, Whole
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import NamedRow, PersonField, Row, Strict, TenantField

CONFIG = " ".join(kind.config_help for kind in all_kinds().values() if kind.config_help)
HTTP_TOOL = OpenApiExample(
    "An HTTP request",
    request_only=True,
    value={
        "tenant": "demo",
        "name": "find_book",
        "kind": "http",
        "description": "Find a book by its title.",
        "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
        "config": {
            "method": "GET",
            "base_url": "https://books.example.com/v1",
            "path": "search",
            "query": {"q": "{title}"},
            "headers": {"Authorization": "Bearer {secret:BOOKS}"},
        },
    },
)
PYTHON_TOOL = OpenApiExample(
    "A Python function", request_only=True, value={"tenant": "demo", "name": "echo", "kind": "python"}
)


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


MESSAGES = OpenApiExample(
    "Messages",
    request_only=True,
    value={
        "tenant": "demo",
        "name": "weather",
        "kind": "template",
        "arguments": [{"name": "city", "required": True, "values": ["Bern", "Oslo"]}],
        "messages": [{"role": "user", "text": "What is the weather in {city}?"}],
    },
)


OF_AN_UPSTREAM = "an upstream offers this name. Give the row another name, or the upstream another prefix."

# The fields of a tenant's file besides the content of a row.
WRITTEN_RESOURCE = ("name", "title", "description", "mime_type", "enabled", "annotations", "icons")
WRITTEN_PROMPT = ("title", "description", "enabled", "icons", "arguments")
Faults = Mapping[str, Iterable[str]]


class CatalogRow(Row):
    """A row that a tenant offers to its clients. `key` is the field that identifies it, unique in a tenant."""

    key: ClassVar[str] = "name"

    description = Text(required=False, allow_blank=True, max_length=MAX_DESCRIPTION_LENGTH)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Validate the complete row. Raises ValidationError, and Conflict for a name that exists."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        if faults := self.faults(row, attrs):
            raise serializers.ValidationError({name: list(messages) for name, messages in faults.items()})
        return attrs

    def faults(self, row: Any, attrs: dict[str, Any]) -> Faults:
        """Return the errors of a drafted row by field. Raises Conflict for a name that exists."""
        row.clean()
        faults = self.kind_faults(row, attrs)
        others = type(row)._default_manager.filter(tenant=row.tenant, **{self.key: getattr(row, self.key)})
        if not faults and others.exclude(pk=row.pk).exists():
            raise Conflict({self.key: [f"This tenant already has one with this {self.key}."]})
        return faults

    def kind_faults(self, row: Any, attrs: dict[str, Any]) -> Faults:
        """Return the errors of a drafted row and of the request, as the kind of the row has them."""
        match row.kind:
            case ResourceKind.PYTHON:
                return code_faults(row, attrs, self.key, authoring.read_code)
            case ResourceKind.UPSTREAM:
                return upstream_faults(attrs, self.instance)
        return self.written_faults(row)

    def written_faults(self, row: Any) -> Faults:
        """Return the errors of a row written by an admin, by field."""
        raise NotImplementedError

    def write(self, row: Any) -> Any:
        """Save a validated row."""
        raise NotImplementedError

    def create(self, validated_data: dict[str, Any]) -> Any:
        """Save a new row."""
        return self.write(self.Meta.model(**validated_data))

    def update(self, instance: Any, validated_data: dict[str, Any]) -> Any:
        """Save the changed row."""
        for name, value in validated_data.items():
            setattr(instance, name, value)
        return self.write(instance)


@dataclass(frozen=True)
class Content:
    """The field of a tenant's file with the content of a row of one kind, which is in the column `column` of the row.

    `others` are the other fields that the row of a file may have. `expected` describes the value, which is a `type`;
    `read` makes the value of the column of it, and `told` the reverse.
    """

    field: str
    kind: str
    column: str
    type: type
    expected: str
    others: tuple[str, ...]
    read: Callable[[Any], Any] = lambda value: value
    told: Callable[[Any], Any] = lambda value: value


def function_of(*others: str) -> Content:
    """Return the content of a Python function, whose code declares everything but the other fields."""
    return Content(
        PythonKind.file_field,
        ResourceKind.PYTHON,
        "config",
        str,
        PythonKind.file_hint,
        others,
        lambda name: {"function": name},
        lambda config: config.get("function", ""),
    )


def request_of(*others: str) -> Content:
    """Return the content of an HTTP request."""
    field, hint = HttpKind.file_field, HttpKind.file_hint
    return Content(field, ResourceKind.HTTP, "config", dict, hint, others, with_defaults, as_described)


class CatalogDocument(Document):
    """A tool, resource or prompt in a tenant's file: it has one of the fields in `contents`, which decides its kind.

    What upstreams offer is no part of a file.
    """

    contents: ClassVar[tuple[Content, ...]]
    content: Content

    @classmethod
    def rows(cls, tenant: Tenant) -> Any:
        """Return the rows that are not of upstreams."""
        return super().rows(tenant).filter(kind__in=[content.kind for content in cls.contents])

    @classmethod
    def taken_names(cls, tenant: Tenant, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the names that upstreams offer."""
        kinds = [content.kind for content in cls.contents]
        rows = cls.Meta.model._default_manager.filter(tenant=tenant).exclude(kind__in=kinds)
        for name in rows.values_list(cls.key, flat=True):
            if name in names:
                yield name, OF_AN_UPSTREAM

    def described_row(self, row: Any) -> dict[str, Any]:
        """Return the fields that differ from their defaults, and the content last."""
        content = next(content for content in self.contents if content.kind == row.kind)
        values = {name: getattr(row, name) for name in content.others}
        usual = {name: value for name, value in values.items() if value != self.default_of(name)}
        return {**usual, content.field: self.told(row, content)}

    def told(self, row: Any, content: Content) -> Any:
        """Return the content of a row as a file has it."""
        return content.told(getattr(row, content.column))

    def described(self) -> dict[str, Any]:
        """Return what the file says of the row once it is saved."""
        return self.described_row(self.row)

    def place_of(self, field: str) -> tuple[str, ...]:
        """Return where a field is: the column of the content, and what is in it, is the field of the content."""
        first, _, rest = field.partition(".")
        if first != self.content.column:
            return (first,)
        return (self.content.field, rest) if rest else (self.content.field,)

    def run_validation(self: Any, data: Any) -> Any:
        """Return the validated values. Raises ValidationError."""
        found = [content for content in self.contents if content.field in data]
        if len(found) != 1:
            fields = ", ".join(content.field for content in self.contents)
            raise serializers.ValidationError({"non_field_errors": [f"must have exactly one of {fields}."]})
        self.content = content = found[0]
        known, value = (content.field, *content.others), data[content.field]
        errors = {name: [f"unknown field. Known fields: {', '.join(known)}."] for name in data if name not in known}
        if not isinstance(value, content.type):
            errors[content.field] = [content.expected]
        if errors:
            raise serializers.ValidationError(errors)
        others = {name: value for name, value in data.items() if name != content.field}
        return super().run_validation({**others, "kind": content.kind, content.column: content.read(value)})

    def faults(self: Any, row: Any, attrs: dict[str, Any]) -> Faults:  # noqa: ARG002 - the code is read when it is saved
        """Return the errors of a drafted row. The file as a whole has unique names, and a bound of their number."""
        faults: Faults = self.written_faults(row)
        return faults

    def note(self, plan: Any) -> None:
        """Note the secrets that the request needs."""
        for name in authoring.secrets_named_by(self.row):
            plan.missing_secrets.setdefault(name, []).append(f"{self.Meta.model._meta.verbose_name} {self.row_name}")

    def save(self: Any, **_values: Any) -> Any:
        """Save the row."""
        return self.write(self.row)

    def delete(self) -> None:
        """Delete the row. Recorded calls stay."""
        authoring.delete(self.instance)


@extend_schema_serializer(examples=[HTTP_TOOL, PYTHON_TOOL])
class ToolRow(CatalogRow):
    """A tool as its tenant offers it now. For a Python function, the code declares its description and schemas."""

    tenant = TenantField()
    input_schema = JsonObject(required=False, help_text="JSON Schema of the arguments.")
    output_schema = JsonObject(required=False, allow_null=True, help_text="JSON Schema of the structured result.")
    icons = JsonObjects(required=False, help_text="Objects with src, mimeType and sizes.")
    config = JsonObject(required=False, help_text=CONFIG)
    aliases = Texts(
        required=False, validators=[validate_aliases], help_text="Other words by which find_tools finds the tool."
    )

    class Meta:
        model = Tool
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "name",
            "kind",
            "enabled",
            "title",
            "description",
            "input_schema",
            "output_schema",
            "annotations",
            "icons",
            "config",
            "background",
            "task",
            "timeout_seconds",
            "calls_per_second",
            "calls_per_minute",
            "calls_per_day",
            "calls_in_flight",
            "aliases",
            "pinned",
            "result_mask",
            "result_items",
            "result_bytes",
            "revision",
            "created_at",
            "updated_at",
        )
        fixed: tuple[str, ...] = ("tenant", "kind")

    def kind_faults(self, row: Tool, attrs: dict[str, Any]) -> Faults:
        """Return the errors of a tool and of the request, as its kind has them."""
        return kind_of(row.kind).request_faults(row, attrs, self.instance) or tool_faults(row)

    def write(self, row: Tool) -> Tool:
        """Save a tool, with a new revision if its definition changed."""
        user = self.context["by"] if "by" in self.context else self.context["request"].user
        return authoring.save_tool(row, user if isinstance(user, User) else None)


def tool_contents() -> tuple[Content, ...]:
    """Return how the kinds of tools describe their configurations."""
    return tuple(
        Content(kind.file_field, name, "config", kind.file_type, kind.file_hint, kind.file_settings, kind.file_config)
        for name, kind in all_kinds().items()
        if kind.file_field
    )


class ToolDocument(CatalogDocument, ToolRow):
    """A tool in a tenant's file. An operation has its imported request, so a file works without the document."""

    contents = tool_contents()

    class Meta(ToolRow.Meta):
        fields = ("kind", "config", *WRITTEN)
        fixed: tuple[str, ...] = ()

    @classmethod
    def rows(cls, tenant: Tenant) -> Any:
        """Return the tools with their API sources."""
        return super().rows(tenant).select_related("source")

    def told(self, row: Tool, _content: Content) -> Any:
        """Return the configuration as its kind describes it."""
        return kind_of(row.kind).to_file(row)

    def drafted(self, attrs: Mapping[str, Any]) -> Tool:
        """Return the tool, with what its kind reads of the file besides its configuration."""
        row: Tool = super().drafted(attrs)
        value = self.initial_data[self.content.field]
        kind_of(row.kind).from_file(row, value, self.context["rows"]["api_sources"])
        return row

    def written_faults(self, row: Tool) -> Faults:
        """Return the errors of a tool. Its secrets may be set later: the preview names those that are missing."""
        return tool_faults(row)


class RevisionRow(Row):
    """One version of a tool's definition."""

    created_by = PersonField(allow_null=True)

    class Meta:
        model = ToolRevision
        fields = ("number", "definition", "created_at", "created_by")
        read_only_fields = fields


class Restoring(Strict):
    """The revision to restore."""

    revision = Whole(min_value=1, help_text="Number of the revision.")


@extend_schema_field({"type": "string", "contentEncoding": "base64", "pattern": BASE64})
class Bytes(Text):
    """A base64-encoded value."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the bytes. Raises ValidationError."""
        try:
            return base64.b64decode(super().to_internal_value(data), validate=True)
        except (ValueError, binascii.Error) as error:
            raise serializers.ValidationError("Must be base64.") from error


@extend_schema_serializer(examples=[TEXT])
class ResourceRow(CatalogRow):
    """A resource that clients can read, or a resource template: a URI with a `{name}` in it."""

    key = "uri"

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
        fixed: tuple[str, ...] = ("tenant", "kind")

    def get_size(self, resource: Resource) -> int:
        """Return the size in bytes that a client reads; 0 if it is not known in advance."""
        stored: int | None = vars(resource).get("stored_bytes")
        return len(resource.text.encode()) or len(resource.blob) if stored is None else stored

    def written_faults(self, row: Resource) -> Faults:
        """Return the errors of a resource. Missing secrets that it names already are none."""
        found = resource_faults(row)
        if not found and row.kind == ResourceKind.HTTP:
            before = self.instance.config if self.instance is not None else None
            found = secret_faults(row.tenant, row.config, before)
        return {"blob" if name == "file" else name: messages for name, messages in found.items()}

    def write(self, row: Resource) -> Resource:
        """Save a resource."""
        return authoring.save_resource(row)


class Blob(Text):
    """The contents of a file, which YAML has as bytes."""

    def run_validation(self, data: Any = b"") -> Any:
        """Return the bytes, which are not searched for characters. Raises ValidationError."""
        if len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        return data


class ResourceDocument(CatalogDocument, ResourceRow):
    """A resource in a tenant's file."""

    contents = (
        function_of("enabled"),
        Content("text", ResourceKind.TEXT, "text", str, "must be a string.", WRITTEN_RESOURCE),
        Content(
            "file", ResourceKind.FILE, "blob", bytes, "must be base64 after !!binary.", WRITTEN_RESOURCE, told=bytes
        ),
        request_of(*WRITTEN_RESOURCE, "timeout_seconds"),
    )

    key = "uri"

    name = Text(max_length=200, required=False)
    blob = Blob(max_length=MAX_BYTES)

    class Meta(ResourceRow.Meta):
        fields = ("kind", "text", "blob", "config", *WRITTEN_RESOURCE, "timeout_seconds")
        fixed: tuple[str, ...] = ()

    def drafted(self, attrs: Mapping[str, Any]) -> Resource:
        """Return the resource; a file without a MIME type gets one."""
        row: Resource = super().drafted(attrs)
        row.mime_type = mime_type_of(row)
        return row

    def faults(self, row: Resource, attrs: dict[str, Any]) -> Faults:
        """Return the errors of a resource. The code of a function declares its name."""
        if row.kind != ResourceKind.PYTHON and "name" not in attrs:
            return {"name": ["This field is required."]}
        return super().faults(row, attrs)

    def written_faults(self, row: Resource) -> Faults:
        """Return the errors of a resource. Its secrets may be set later: the preview names those that are missing."""
        return resource_faults(row)


class ListedResourceRow(ResourceRow):
    """A resource without its text, which a list leaves out: `size` is its length."""

    class Meta(ResourceRow.Meta):
        fields = tuple(name for name in ResourceRow.Meta.fields if name not in {"text", "blob"})


@extend_schema_serializer(examples=[MESSAGES])
class PromptRow(CatalogRow):
    """A prompt that clients offer to their users."""

    tenant = TenantField()
    icons = JsonObjects(required=False, help_text="Objects with src, mimeType and sizes.")
    arguments = JsonObjects(required=False, help_text="Objects with name, description, required and values.")
    messages = JsonObjects(
        required=False, help_text="Objects with role (user or assistant) and text. `{name}` is replaced by an argument."
    )
    config = JsonObject(required=False, help_text='For a Python function: `{"function": NAME}`.')

    class Meta:
        model = Prompt
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "name",
            "kind",
            "enabled",
            "title",
            "description",
            "icons",
            "arguments",
            "messages",
            "config",
            "created_at",
            "updated_at",
        )
        fixed: tuple[str, ...] = ("tenant", "kind")

    def written_faults(self, row: Prompt) -> Faults:
        """Return the errors of messages written by an admin."""
        return prompt_faults(row)

    def write(self, row: Prompt) -> Prompt:
        """Save a prompt."""
        return authoring.save_prompt(row)


class PromptDocument(CatalogDocument, PromptRow):
    """A prompt in a tenant's file."""

    contents = (
        function_of("enabled"),
        Content(
            "messages",
            PromptKind.TEMPLATE,
            "messages",
            list,
            "must be a list of messages with role and text.",
            WRITTEN_PROMPT,
        ),
    )

    class Meta(PromptRow.Meta):
        fields = ("kind", "messages", "config", *WRITTEN_PROMPT)
        fixed: tuple[str, ...] = ()


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A toolset", request_only=True, value={"tenant": "demo", "name": "Reading", "tools": ["search_*", "echo"]}
        )
    ]
)
class ToolsetRow(NamedRow):
    """A toolset. A key with it uses, of the tools that the key permits, only those that match."""

    tenant = TenantField()
    name = Text(max_length=80, validators=[ONE_LINE], help_text="By which keys refer to it.")
    tools = Texts(
        validators=[validate_patterns], help_text="Names of tools, and patterns such as report_*. At least one."
    )

    class Meta:
        model = Toolset
        fields: tuple[str, ...] = ("id", "tenant", "name", "description", "tools", "created_at")
        fixed: tuple[str, ...] = ("tenant",)
        named, kind, checked = "name", "toolset with", "tools"

    def check(self, row: Toolset) -> None:
        """Reject an empty set. Raises ValidationError."""
        toolsets.check_tools(row.tools)

    def check_room(self, tenant: Tenant) -> None:
        """Reject one set too many. Raises ValidationError."""
        toolsets.check_room(tenant)


class ToolsetDocument(Document, ToolsetRow):
    """A toolset in a tenant's file."""

    class Meta(ToolsetRow.Meta):
        fields = ("description", "tools")
        fixed: tuple[str, ...] = ()

    def check_room(self, tenant: Tenant) -> None:
        """The file as a whole has a bound."""

    def why_not_deleted(self) -> str:
        """Return who uses the toolset."""
        return toolsets.why_not_deleted(self.instance)


class SecretRow(Row):
    """A secret without its value."""

    tenant = TenantField()
    value = Text(
        write_only=True,
        max_length=MAX_SECRET_LENGTH,
        help_text="Replaces the stored value. It cannot be read back.",
    )

    class Meta:
        model = Secret
        fields = ("id", "tenant", "name", "value", "created_at", "updated_at")
        fixed: tuple[str, ...] = ("tenant", "name")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject a name that is taken. Raises ValidationError."""
        attrs = super().validate(attrs)
        self.drafted(attrs).clean()
        if self.instance is None and Secret.objects.filter(tenant=attrs["tenant"], name=attrs["name"]).exists():
            raise Conflict({"name": ["This tenant already has a secret with this name. Change that one."]})
        return attrs

    def create(self, validated_data: dict[str, Any]) -> Secret:
        """Store the value."""
        return authoring.set_secret(validated_data["tenant"], validated_data["name"], validated_data["value"])

    def update(self, instance: Secret, validated_data: dict[str, Any]) -> Secret:
        """Store the new value, if there is one."""
        if "value" not in validated_data:
            return instance
        return authoring.set_secret(instance.tenant, instance.name, validated_data["value"])
