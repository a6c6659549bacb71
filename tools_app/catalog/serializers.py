"""What is read and written of tools, resources, prompts, toolsets and secrets: over REST, and in a tenant's file."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from tools_app.catalog import authoring, toolsets
from tools_app.catalog.kinds.http import runner as http
from tools_app.catalog.kinds.openapi.sources.plan import GENERATED, OVERRIDABLE
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.models import TOOL_SETTINGS
from tools_app.catalog.validation.items import prompt_faults, resource_faults, tool_faults
from tools_app.catalog.validation.mime_types import mime_type_of
from tools_app.catalog.validation.references import secret_faults
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
    ToolKind,
    ToolRevision,
    Toolset,
)
from tools_app.web.api.fields import JsonObject, JsonObjects, Text, Texts, Whole
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import NamedRow, PersonField, Row, Strict, TenantField

CONFIG = (
    'For a Python function: `{"function": NAME}`. Of an HTTP request: `method`, `base_url`, `path`, `query`, `headers`,'
    " `body_mode` (none, arguments, template), `body`, `max_response_bytes`, `follow_redirects`; `{name}` stands for an"
    " argument, `{secret:NAME}` for a secret, which must exist. Of an API operation: read-only, as imported from its"
    " API source."
)
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


# The kinds that tools, resources and prompts have in common.
PYTHON, UPSTREAM = ToolKind.PYTHON.value, ToolKind.UPSTREAM.value
IN_CODE = "Declared by the function's code. Remove this field."
UNKNOWN_FUNCTION = {"config": ['Must be {"function": "NAME"} with the name of a registered function.']}
UPSTREAM_ADDS = "Add the upstream, and accept what it offers."
IN_UPSTREAM = "Defined by the upstream. Remove this field."
# What may be set for a row of an upstream.
UPSTREAM_SETTINGS = frozenset({*TOOL_SETTINGS, "timeout_seconds"})
OF_AN_UPSTREAM = "an upstream offers this name. Give the row another name, or the upstream another prefix."

# The fields of a tenant's file besides the content of a row.
WRITTEN_TOOL = (
    "title",
    "description",
    "input_schema",
    "output_schema",
    "annotations",
    "icons",
    "background",
    "task",
    "timeout_seconds",
    *TOOL_SETTINGS,
)
WRITTEN_RESOURCE = ("name", "title", "description", "mime_type", "enabled", "annotations", "icons")
WRITTEN_PROMPT = ("title", "description", "enabled", "icons", "arguments")
# What an operation has in a file besides the fields of `OperationConfig`.
OPERATION_FIELDS = ("source", "key", "overridden")

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
        match row.kind:
            case ToolKind.PYTHON:
                faults = self._code_faults(row, attrs)
            case ToolKind.UPSTREAM:
                faults = self._upstream_faults(attrs)
            case _:
                faults = self.written_faults(row)
        others = type(row)._default_manager.filter(tenant=row.tenant, **{self.key: getattr(row, self.key)})
        if not faults and others.exclude(pk=row.pk).exists():
            raise Conflict({self.key: [f"This tenant already has one with this {self.key}."]})
        return faults

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

    def _upstream_faults(self, attrs: dict[str, Any]) -> Faults:
        """Return the errors of a row of an upstream: it is not created here, and its definition is accepted there."""
        if self.instance is None:
            return {"kind": [UPSTREAM_ADDS]}
        return {
            name: [IN_UPSTREAM]
            for name, value in attrs.items()
            if name not in UPSTREAM_SETTINGS and getattr(self.instance, name) != value
        }

    def _code_faults(self, row: Any, attrs: dict[str, Any]) -> Faults:
        """Return the errors of a row from code: an unknown function, and values that the code decides."""
        if not row.config:
            row.config = attrs["config"] = {"function": getattr(row, self.key)}
        if not isinstance(row.config.get("function", ""), str):
            return UNKNOWN_FUNCTION
        try:
            authoring.read_code(row)
        except python.UnknownFunction:
            return UNKNOWN_FUNCTION
        return {name: [IN_CODE] for name, value in attrs.items() if getattr(row, name) != value}


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


def full_request(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a request with all its fields, as a tool's form stores it; an invalid one is returned unchanged."""
    try:
        full: Mapping[str, Any] = msgspec.to_builtins(http.parse_config(config))
    except http.ConfigProblem:
        return config
    return full


def short_request(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a request without fields that have their defaults; an invalid one is returned unchanged."""
    full, plain = full_request(config), msgspec.to_builtins(http.HttpConfig())
    kept = ("method", "base_url")
    return {name: value for name, value in full.items() if name in kept or name not in plain or value != plain[name]}


def function_of(*others: str) -> Content:
    """Return the content of a Python function, whose code declares everything but the other fields."""
    return Content(
        "function",
        PYTHON,
        "config",
        str,
        "must be the name of a registered function.",
        others,
        lambda name: {"function": name},
        lambda config: config.get("function", ""),
    )


def request_of(*others: str) -> Content:
    """Return the content of an HTTP request."""
    expected = "must be an object with method, base_url, path and the other fields of the request."
    return Content("request", ToolKind.HTTP, "config", dict, expected, others, full_request, short_request)


class CatalogDocument(Document):
    """A tool, resource or prompt in a tenant's file: it has one of the fields in `contents`, which decides its kind.

    What upstreams offer is no part of a file.
    """

    contents: ClassVar[tuple[Content, ...]]
    content: Content

    @classmethod
    def rows(cls, tenant: Tenant) -> Any:
        """Return the rows that are not of upstreams."""
        return super().rows(tenant).exclude(kind=UPSTREAM)

    @classmethod
    def taken_names(cls, tenant: Tenant, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the names that upstreams offer."""
        rows = cls.Meta.model._default_manager.filter(tenant=tenant, kind=UPSTREAM)
        for name in rows.values_list(cls.key, flat=True):
            if name in names:
                yield name, OF_AN_UPSTREAM

    def described_row(self, row: Any) -> dict[str, Any]:
        """Return the fields that differ from their defaults, and the content last."""
        content = next(content for content in self.contents if content.kind == row.kind)
        values = {name: getattr(row, name) for name in content.others}
        usual = {name: value for name, value in values.items() if value != self.default_of(name)}
        return {**usual, content.field: content.told(getattr(row, content.column))}

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

    def written_faults(self, row: Tool) -> Faults:
        """Return the errors of a tool. Missing secrets that an HTTP tool names already are none.

        The request of an operation of an API source is fixed.
        """
        before = self.instance.config if self.instance is not None else None
        if row.kind == ToolKind.OPERATION:
            if before is not None and row.config != before:
                return {"config": ["The document of the API source describes the request. Remove this field."]}
            return tool_faults(row)
        return tool_faults(row) or secret_faults(row.tenant, row.config, before)

    def write(self, row: Tool) -> Tool:
        """Save a tool, with a new revision if its definition changed."""
        user = self.context["by"] if "by" in self.context else self.context["request"].user
        return authoring.save_tool(row, user if isinstance(user, User) else None)


class ToolDocument(CatalogDocument, ToolRow):
    """A tool in a tenant's file. An operation has its imported request, so a file works without the document."""

    contents = (
        function_of(*TOOL_SETTINGS),
        request_of(*WRITTEN_TOOL),
        Content(
            "operation",
            ToolKind.OPERATION,
            "config",
            dict,
            "must be an object with source, key, overridden, method, path and the other fields of the request.",
            WRITTEN_TOOL,
            lambda value: {name: held for name, held in value.items() if name not in OPERATION_FIELDS},
        ),
    )

    class Meta(ToolRow.Meta):
        fields = ("kind", "config", *WRITTEN_TOOL)
        fixed: tuple[str, ...] = ()

    @classmethod
    def rows(cls, tenant: Tenant) -> Any:
        """Return the tools with their API sources."""
        return super().rows(tenant).select_related("source")

    def described_row(self, row: Tool) -> dict[str, Any]:
        """Return the fields, and the operation with its source and what was overridden."""
        described = super().described_row(row)
        if row.kind == ToolKind.OPERATION:
            overridden = [name for name in OVERRIDABLE if getattr(row, name) != row.generated.get(name)]
            described["operation"] = {
                "source": row.source.name if row.source else "",
                "key": row.operation,
                **({"overridden": overridden} if overridden else {}),
                **row.config,
            }
        return described

    def drafted(self, attrs: Mapping[str, Any]) -> Tool:
        """Return the tool. What a file says is overridden stays so.

        The value that the document made of it is kept if it is known.
        """
        row: Tool = super().drafted(attrs)
        before, row.source, row.operation, row.generated = row.generated, None, "", {}
        if row.kind == ToolKind.OPERATION:
            source, key, overridden = (self.initial_data["operation"].get(name) for name in OPERATION_FIELDS)
            row.source = self.context["rows"]["api_sources"].get(source) if isinstance(source, str) else None
            row.operation = key if isinstance(key, str) else ""
            row.generated = {name: getattr(row, name) for name in GENERATED}
            for name in OVERRIDABLE:
                if isinstance(overridden, list) and name in overridden:
                    row.generated[name] = before.get(name) if before.get(name) != row.generated[name] else None
            row.generated["enabled"] = before.get("enabled", False)
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
        except (ValueError, binascii.Error) as problem:
            raise serializers.ValidationError("Must be base64.") from problem


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

    name = Text(max_length=200)
    blob = Blob(max_length=MAX_BYTES)

    class Meta(ResourceRow.Meta):
        fields = ("kind", "text", "blob", "config", *WRITTEN_RESOURCE, "timeout_seconds")
        fixed: tuple[str, ...] = ()

    def drafted(self, attrs: Mapping[str, Any]) -> Resource:
        """Return the resource; a file without a MIME type gets one."""
        row: Resource = super().drafted(attrs)
        row.mime_type = mime_type_of(row)
        return row

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
