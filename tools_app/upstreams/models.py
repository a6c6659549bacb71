"""Upstream MCP servers of a tenant: what they offer, which definitions an admin accepted, and credentials for them."""

from hashlib import sha256

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tools_app.catalog.models import Prompt, Resource, Tool
from tools_app.catalog.versioned import Versioned
from tools_app.core.ids import new_id
from tools_app.core.recorded import Recorded
from tools_app.tenants.models import ApiKey, Tenant

UPSTREAM_NAME = RegexValidator(r"^[A-Za-z0-9_.-]{1,64}\Z", "Use letters, digits, underscore, hyphen and dot.")
SECRET_REFERENCE = RegexValidator(r"^[A-Za-z0-9_-]{1,64}\Z", "Enter the name of a secret.")
PREFIX = RegexValidator(r"^[A-Za-z0-9_.-]{1,32}\Z", "Use letters, digits, underscore, hyphen and dot.")


class UpstreamTransport(models.TextChoices):
    """How the hub reaches an upstream."""

    HTTP = "http", "Streamable HTTP"
    SSE = "sse", "HTTP+SSE (2024-11-05)"
    STDIO = "stdio", "Command (stdio)"


class UpstreamEra(models.TextChoices):
    """Which revisions the hub speaks with an upstream."""

    AUTO = "auto", "Detect"
    MODERN = "modern", "From 2026-07-28"
    HANDSHAKE = "handshake", "Up to 2025-11-25"


class CredentialKind(models.TextChoices):
    """What a credential of an upstream is."""

    HEADER = "header", "Value of a header"
    OAUTH = "oauth", "Sign-in (OAuth)"


class CredentialOwner(models.TextChoices):
    """Whose credential the calls of an upstream use."""

    TENANT = "tenant", "The tenant's"
    KEY = "key", "That of the API key"
    PERSON = "person", "That of the person"


class Upstream(Versioned):
    """An MCP server whose tools, resources and prompts a tenant offers as its own.

    `headers` and `environment` are objects of texts, in which `{secret:NAME}` stands for a secret of the tenant.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="upstreams")
    name = models.CharField(max_length=64, validators=[UPSTREAM_NAME])
    prefix = models.CharField(
        max_length=32,
        blank=True,
        validators=[PREFIX],
        help_text="The hub offers the upstream's tool search as PREFIX_search. Empty: under its own name.",
    )
    transport = models.CharField(max_length=10, choices=UpstreamTransport, default=UpstreamTransport.HTTP)
    url = models.CharField("URL", max_length=2000, blank=True, help_text="The upstream's endpoint.")
    command = models.JSONField(
        default=list, blank=True, help_text="For stdio: the program and its arguments, as a JSON list."
    )
    approved = models.JSONField(
        default=dict,
        editable=False,
        help_text="What the operator approved by adding it at the command line: a command, or the digest of a URL and "
        "the private networks that it led to. It counts as long as the command or URL is the same.",
    )
    era = models.CharField("revisions", max_length=10, choices=UpstreamEra, default=UpstreamEra.AUTO)
    headers = models.JSONField(
        default=dict,
        blank=True,
        help_text='Sent with each request, as JSON, e.g. {"Authorization": "Bearer {secret:NAME}"}.',
    )
    credential = models.CharField(
        max_length=10,
        choices=CredentialKind,
        blank=True,
        default="",
        help_text="What calls need besides the headers above. It is entered under Connections, and kept encrypted.",
    )
    credential_owner = models.CharField(
        "whose credential",
        max_length=10,
        choices=CredentialOwner,
        default=CredentialOwner.TENANT,
        help_text="Whose credential a call uses. The tenant's is also used to list what the upstream offers.",
    )
    credential_header = models.CharField(
        max_length=100, default="Authorization", help_text="For the value of a header: the name of the header."
    )
    oauth_client_id = models.CharField(
        "OAuth client ID",
        max_length=2000,
        blank=True,
        default="",
        help_text="For a sign-in at a server with which the hub cannot register itself.",
    )
    oauth_client_secret = models.CharField(
        "OAuth client secret",
        max_length=64,
        blank=True,
        default="",
        validators=[SECRET_REFERENCE],
        help_text="The name of the secret of this tenant that contains it. Empty: a client without a secret.",
    )
    oauth_issuer = models.CharField(
        "OAuth issuer",
        max_length=2000,
        blank=True,
        default="",
        help_text="Where that client is registered, e.g. https://login.example.com. The secret is sent to no other "
        "authorization server.",
    )
    oauth_scopes = models.CharField(
        "OAuth scopes", max_length=1000, blank=True, default="", help_text="Empty: those that the upstream asks for."
    )
    environment = models.JSONField(
        default=dict,
        blank=True,
        help_text='For stdio: environment variables, as JSON, e.g. {"TOKEN": "{secret:NAME}"}.',
    )
    enabled = models.BooleanField(default=True)
    timeout_seconds = models.FloatField(
        default=60.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(86_400.0)],
        help_text="The timeout of calls, for tools that are accepted from now on.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="upstream_name_once_per_tenant")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_command_approved(self) -> bool:
        """Whether the operator approved the command as it is."""
        return bool(self.command) and self.approved.get("command") == self.command

    @property
    def approved_networks(self) -> list[str]:
        """Private networks (CIDR) that the operator allowed for the URL as it is."""
        return self.approved.get("networks", []) if self.approved.get("url") == self.url_digest else []

    @property
    def url_digest(self) -> str:
        """The SHA-256 of the URL, which may contain a credential."""
        return sha256(self.url.encode()).hexdigest()


class UpstreamStatus(models.Model):
    """What the last connection to an upstream showed. Written by the hub, so no change of the catalog."""

    upstream = models.OneToOneField(Upstream, on_delete=models.CASCADE, primary_key=True, related_name="status")
    checked_at = models.DateTimeField(default=timezone.now)
    reached_at = models.DateTimeField(null=True)
    refused_until = models.DateTimeField(null=True, help_text="Until when calls are refused after failures.")
    problem = models.TextField(blank=True)
    era = models.CharField(max_length=10, blank=True)
    version = models.CharField(max_length=20, blank=True)
    server_name = models.CharField(max_length=200, blank=True)
    server_version = models.CharField(max_length=200, blank=True)
    makes_tasks = models.BooleanField(default=False, help_text="Whether it may answer calls with tasks (2026-07-28).")
    left_out = models.JSONField(
        default=list, help_text="What it lists that cannot be offered: the kind, the name and the reason of each."
    )

    def __str__(self) -> str:
        return f"{self.upstream}: {self.problem or 'OK'}"


class ItemKind(models.TextChoices):
    """What an upstream offers."""

    TOOL = "tool", "Tool"
    RESOURCE = "resource", "Resource"
    TEMPLATE = "template", "Resource template"
    PROMPT = "prompt", "Prompt"


class ItemState(models.TextChoices):
    """What became of an offer: only an accepted one is called."""

    NEW = "new", "New"
    ACCEPTED = "accepted", "Accepted"
    CHANGED = "changed", "Changed"
    REMOVED = "removed", "Removed"


class UpstreamItem(Versioned):
    """A tool, resource or prompt of an upstream. `name` is its name or URI there.

    `accepted` is the definition that an admin accepted, whole, with annotations and `_meta`, and `digest` its SHA-256.
    `proposed` is what the upstream lists now, if it differs or nothing was accepted yet.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="upstream_items")
    upstream = models.ForeignKey(Upstream, on_delete=models.CASCADE, related_name="items")
    kind = models.CharField(max_length=10, choices=ItemKind)
    name = models.CharField(max_length=500)
    state = models.CharField(max_length=10, choices=ItemState, default=ItemState.NEW)
    accepted = models.JSONField(null=True, blank=True)
    digest = models.CharField(max_length=64, blank=True)
    proposed = models.JSONField(null=True, blank=True)
    warnings = models.JSONField(default=list, blank=True)
    tool = models.OneToOneField(Tool, null=True, on_delete=models.SET_NULL, related_name="upstream_item")
    resource = models.OneToOneField(Resource, null=True, on_delete=models.SET_NULL, related_name="upstream_item")
    prompt = models.OneToOneField(Prompt, null=True, on_delete=models.SET_NULL, related_name="upstream_item")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["upstream", "kind", "name"]
        constraints = [
            models.UniqueConstraint(fields=["upstream", "kind", "name"], name="item_once_per_upstream"),
        ]

    def __str__(self) -> str:
        return self.name


class ParkedStatus(models.TextChoices):
    """Who is to act on a parked call."""

    ASKING = "asking", "Waiting for its client"
    ANSWERED = "answered", "Running on"
    ENDED = "ended", "Ended"


class ParkedCall(models.Model):
    """A running call of an upstream that asked its client, which answers with another request (from 2026-07-28).

    The process `owner` has the connection, and passes the answers on. `output` is what it has to tell the request with
    the answers: events, then further questions or the outcome. Both directions are encrypted.

    `attender` is the id of the record by which the outcome is recorded: the call with the answers, or the row's own id
    if no call fetches it any more; then `owner` records it. A row is deleted once that record exists, and never before.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    upstream_id = models.UUIDField(help_text="The upstream that runs it.")
    api_key_id = models.UUIDField(null=True, help_text="The API key of its client.")
    call_id = models.UUIDField(help_text="The recorded call that was parked.")
    owner = models.UUIDField(help_text="The process that holds it, or records its end.")
    attender = models.UUIDField(null=True, help_text="The record of its outcome.")
    round = models.PositiveIntegerField(default=1, help_text="Grows with each set of questions.")
    writes = models.PositiveIntegerField(default=0, help_text="Grows with each output.")
    status = models.CharField(max_length=10, choices=ParkedStatus, default=ParkedStatus.ASKING)
    answers = models.BinaryField(null=True)
    output = models.BinaryField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.call_id} {self.status}"


class UpstreamTask(models.Model):
    """A task that an upstream runs for a call. It outlives the process that waits for it.

    If `owner` dies, another process waits for the task in its place where the call is a task of the hub, and otherwise
    cancels it at the upstream.
    """

    call_id = models.UUIDField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    upstream_id = models.UUIDField(help_text="The upstream that runs it.")
    owner = models.UUIDField(help_text="The process that waits for it.")
    sealed = models.BinaryField(help_text="What is needed to ask for it, encrypted.")
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return str(self.call_id)


MAX_ORIGIN = 300
MAX_SCOPES = 1000
MAX_ISSUER = 2000


class UpstreamCredential(Recorded):
    """A header's value or OAuth tokens for one upstream. Without a key and a person, it is the tenant's own.

    `ciphertext` is bound to the upstream, the owner and `origin`: it is sent nowhere else, also if an admin changes the
    URL of the upstream.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="upstream_credentials")
    upstream = models.ForeignKey(Upstream, on_delete=models.CASCADE, related_name="credentials")
    key = models.ForeignKey(ApiKey, null=True, on_delete=models.CASCADE, related_name="upstream_credentials")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="upstream_credentials"
    )
    kind = models.CharField(max_length=10, choices=CredentialKind)
    origin = models.CharField(max_length=MAX_ORIGIN, help_text="The scheme, host and port that it is sent to.")
    ciphertext = models.BinaryField(editable=False)
    scopes = models.CharField(max_length=MAX_SCOPES, blank=True, help_text="What was granted, as far as it is known.")
    wanted_scopes = models.CharField(
        max_length=MAX_SCOPES, blank=True, help_text="What the upstream asked for when it refused a call."
    )
    expires_at = models.DateTimeField(null=True, help_text="Empty: unknown, or never.")
    refresh_at = models.DateTimeField(null=True, help_text="When the hub refreshes it. Empty: it cannot.")
    claimed_until = models.DateTimeField(
        null=True, editable=False, help_text="Until when a process that began to refresh it is waited for."
    )
    failures = models.PositiveIntegerField(default=0, help_text="Failed refreshes in a row.")
    problem = models.CharField(max_length=500, blank=True, help_text="Why it was refused or could not be refreshed.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["upstream", "created_at"]
        indexes = [
            models.Index(fields=["refresh_at"], name="credential_to_refresh", condition=Q(refresh_at__isnull=False))
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["upstream"], condition=Q(key=None, person=None), name="one_credential_per_tenant"
            ),
            models.UniqueConstraint(fields=["upstream", "key"], name="one_credential_per_key"),
            models.UniqueConstraint(fields=["upstream", "person"], name="one_credential_per_person"),
            models.CheckConstraint(condition=Q(key=None) | Q(person=None), name="credential_of_one_owner"),
        ]

    @property
    def is_claimed(self) -> bool:
        """Whether a process refreshes it now."""
        return self.claimed_until is not None and self.claimed_until > timezone.now()

    def __str__(self) -> str:
        return f"{self.upstream} of {self.owner_name}"

    @property
    def owner_name(self) -> str:
        """Whose it is, for people."""
        if self.key is not None:
            return f"key {self.key.name}"
        return self.person.get_username() if self.person is not None else "the tenant"


class UpstreamRegistration(models.Model):
    """The hub as a client of an upstream's authorization server, by dynamic registration. Used again."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    upstream = models.ForeignKey(Upstream, on_delete=models.CASCADE, related_name="registrations")
    issuer = models.CharField(max_length=MAX_ISSUER)
    redirect_uri = models.CharField(max_length=MAX_ORIGIN)
    ciphertext = models.BinaryField(editable=False, help_text="The client's id, secret and authentication method.")
    expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["upstream", "issuer", "redirect_uri"], name="one_registration_per_issuer")
        ]

    def __str__(self) -> str:
        return f"{self.upstream} at {self.issuer}"
