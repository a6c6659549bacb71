"""A tenant's catalog: tools with their immutable revisions, toolsets, resources, prompts, and the secrets they use."""

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from tools_app.catalog.kinds import registry
from tools_app.catalog.versioned import Versioned
from tools_app.core.field_mask import MAX_MASK_LENGTH
from tools_app.core.ids import new_id
from tools_app.core.validators import ONE_LINE, validate_aliases, validate_mask, validate_patterns
from tools_app.tenants.models import RateLimited, Tenant

TOOL_NAME = RegexValidator(
    r"^[A-Za-z0-9_.-]{1,128}\Z", "Use letters, digits, underscore, hyphen and dot, at most 128 characters."
)
PROMPT_NAME = RegexValidator(
    r"^[A-Za-z0-9_./-]{1,128}\Z", "Use letters, digits, underscore, hyphen, dot and slash, at most 128 characters."
)
RESOURCE_URI = RegexValidator(
    r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"\\^`]+\Z", "Write a URI, as in docs://guide, or a template, as in docs://{page}."
)
SECRET_NAME = RegexValidator(r"^[A-Za-z0-9_-]{1,64}\Z", "Use letters, digits, underscore and hyphen.")


# A shorter bound would leave nothing of a result but the sentence that it was cut.
MIN_RESULT_BYTES = 100
MAX_SHAPING = 2**31 - 1


# What an admin sets of a tool of every kind: limits, how a search finds it, and the shaping of results.
LIMITS = ("calls_per_second", "calls_per_minute", "calls_per_day", "calls_in_flight")
TOOL_SETTINGS = ("enabled", *LIMITS, "aliases", "pinned", "result_mask", "result_items", "result_bytes")


class TaskSupport(models.TextChoices):
    """Whether a call may return a task, which its client polls (extension io.modelcontextprotocol/tasks)."""

    NEVER = "never", "Never"
    OPTIONAL = "optional", "When it takes long"
    REQUIRED = "required", "Always"


class Tool(Versioned, RateLimited):
    """A tool as its tenant offers it now (tools, §Data Types of the specification).

    `kind` is one of `catalog.kinds.registry`, and describes `config`.

    `operation` is the method and path in the source's document, and "" for a copy that no refresh changes. `generated`
    is what the document made of the tool when it was last imported: a field that differs from it was overridden.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="tools")
    name = models.CharField(max_length=128, validators=[TOOL_NAME])
    kind = models.CharField(max_length=10, choices=registry.CHOICES)
    enabled = models.BooleanField(default=True)
    title = models.CharField(max_length=200, blank=True)
    description = models.TextField(blank=True)
    input_schema = models.JSONField(default=dict, blank=True)
    output_schema = models.JSONField(null=True, blank=True)
    annotations = models.JSONField(
        default=dict, blank=True, help_text="readOnlyHint, destructiveHint, idempotentHint, openWorldHint."
    )
    config = models.JSONField(default=dict, blank=True)
    source = models.ForeignKey(
        "ApiSource", null=True, blank=True, editable=False, on_delete=models.CASCADE, related_name="tools"
    )
    operation = models.CharField(max_length=255, blank=True, editable=False)
    generated = models.JSONField(default=dict, blank=True, editable=False)
    background = models.BooleanField(default=False, help_text="Run it in a Celery worker and stream its progress.")
    task = models.CharField(
        max_length=10,
        choices=TaskSupport,
        default=TaskSupport.NEVER,
        help_text="Whether clients that know tasks get one: never, when the call takes long, or always.",
    )
    icons = models.JSONField(default=list, blank=True, help_text="A JSON list of {src, mimeType, sizes}.")
    timeout_seconds = models.FloatField(default=60.0, validators=[MinValueValidator(0.1), MaxValueValidator(86_400.0)])
    calls_in_flight = models.PositiveIntegerField(
        "calls at once", null=True, blank=True, help_text="In all processes together. Empty: no limit."
    )
    aliases = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_aliases],
        help_text='Other words for the tool, by which a search finds it, as a JSON list, e.g. ["bug report"].',
    )
    pinned = models.BooleanField(
        "always listed", default=False, help_text="Listed beside the search tools where tools are searched."
    )
    result_mask = models.CharField(
        "field mask",
        max_length=MAX_MASK_LENGTH,
        blank=True,
        validators=[validate_mask],
        help_text="A JMESPath expression that selects what clients receive of a JSON result, e.g. items[*].{id: id}.",
    )
    result_items = models.PositiveIntegerField(
        "items of an array",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_SHAPING)],
        help_text="At most so many items of each array of a JSON result. Empty: all.",
    )
    result_bytes = models.PositiveIntegerField(
        "bytes of a result",
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_RESULT_BYTES), MaxValueValidator(MAX_SHAPING)],
        help_text="At most so many bytes of the content. A longer text is cut. Empty: no limit.",
    )
    revision = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="tool_name_once_per_tenant"),
            models.UniqueConstraint(
                fields=["source", "operation"], condition=~models.Q(operation=""), name="tool_once_per_operation"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ToolRevision(models.Model):
    """One version of a tool's definition. Immutable."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    definition = models.JSONField()
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["tool", "-number"]
        constraints = [models.UniqueConstraint(fields=["tool", "number"], name="revision_number_once_per_tool")]

    def __str__(self) -> str:
        return f"{self.tool} r{self.number}"


class ResourceKind(models.TextChoices):
    """The source of a resource's contents."""

    PYTHON = "python", "Python function"
    TEXT = "text", "Text"
    FILE = "file", "File"
    HTTP = "http", "HTTP request"
    UPSTREAM = "upstream", "Upstream MCP server"


class Resource(Versioned):
    """A resource that clients can read (resources, §Resource), or a resource template (§Resource Templates).

    A `uri` with a `{name}` in it is a template. `config` depends on the kind: `{"function": "<registered name>"}` for
    Python, the fields of `catalog.kinds.http.config.HttpConfig` for HTTP.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="resources")
    uri = models.CharField("URI", max_length=500, validators=[RESOURCE_URI])
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=10, choices=ResourceKind)
    enabled = models.BooleanField(default=True)
    title = models.CharField(max_length=200, blank=True)
    description = models.TextField(blank=True)
    mime_type = models.CharField("MIME type", max_length=200, blank=True)
    annotations = models.JSONField(default=dict, blank=True, help_text="audience, priority, lastModified.")
    icons = models.JSONField(default=list, blank=True, help_text="A JSON list of {src, mimeType, sizes}.")
    text = models.TextField(blank=True, help_text="What clients read, for a text.")
    blob = models.BinaryField(default=bytes, editable=False)
    config = models.JSONField(default=dict, blank=True)
    timeout_seconds = models.FloatField(default=30.0, validators=[MinValueValidator(0.1), MaxValueValidator(3600.0)])
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "uri"]
        constraints = [models.UniqueConstraint(fields=["tenant", "uri"], name="resource_uri_once_per_tenant")]

    def __str__(self) -> str:
        return self.uri

    @property
    def is_template(self) -> bool:
        """Whether its URI is a template."""
        return "{" in self.uri


class PromptKind(models.TextChoices):
    """The source of a prompt's messages."""

    PYTHON = "python", "Python function"
    TEMPLATE = "template", "Messages with placeholders"
    UPSTREAM = "upstream", "Upstream MCP server"


class Prompt(Versioned):
    """A prompt that clients offer to their users (prompts, §Prompt).

    `arguments` is a list of `{"name", "description", "required", "values"}`, where `values` are suggestions for
    completion; `messages` is a list of `{"role", "text"}` whose text may contain `{name}` for an argument. For Python,
    both come from the code, and `config` is `{"function": "<registered name>"}`.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="prompts")
    name = models.CharField(max_length=128, validators=[PROMPT_NAME])
    kind = models.CharField(max_length=10, choices=PromptKind)
    enabled = models.BooleanField(default=True)
    title = models.CharField(max_length=200, blank=True)
    description = models.TextField(blank=True)
    icons = models.JSONField(default=list, blank=True, help_text="A JSON list of {src, mimeType, sizes}.")
    arguments = models.JSONField(default=list, blank=True)
    messages = models.JSONField(default=list, blank=True)
    config = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="prompt_name_once_per_tenant")]

    def __str__(self) -> str:
        return self.name


class Secret(Versioned):
    """A named value that HTTP tools insert into their requests. Written by admins, shown on no page."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=64, validators=[SECRET_NAME])
    ciphertext = models.BinaryField(editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="secret_name_once_per_tenant")]

    def __str__(self) -> str:
        return self.name


MAX_TOOLSETS = 100


class Toolset(Versioned):
    """Names of tools and patterns of names. A key with a toolset uses of its tools only those that match."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="toolsets")
    name = models.CharField(max_length=80, validators=[ONE_LINE])
    description = models.CharField(max_length=500, blank=True)
    tools = models.JSONField(
        default=list,
        validators=[validate_patterns],
        help_text="Names of tools, or patterns such as report_*, as a JSON list.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="toolset_name_once_per_tenant")]

    def __str__(self) -> str:
        return self.name
