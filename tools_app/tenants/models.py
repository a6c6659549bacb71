"""Tenants, their members and API keys, invitations, and the personal tokens of people."""

from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from tools_app.core.ids import new_id
from tools_app.core.recorded import Recorded
from tools_app.core.text_lists import NameListField, TextListField
from tools_app.core.validators import validate_key_names, validate_networks, validate_patterns

MAX_SLUG_LENGTH = 63
TENANT_SLUG = RegexValidator(
    r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z", "Use lower-case letters, digits and inner hyphens."
)


class RateLimited(Recorded):
    """Limits on the rate of calls; empty is no limit, zero allows none."""

    calls_per_second = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no limit.")
    calls_per_minute = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no limit.")
    calls_per_day = models.PositiveIntegerField(
        null=True, blank=True, help_text="Empty: no limit. A day is the last 24 hours."
    )

    class Meta:
        abstract = True


class CallerLimited(RateLimited):
    """Limits of a caller: the rates of calls, and those of all requests, calls included."""

    requests_per_second = models.PositiveIntegerField(
        null=True, blank=True, help_text="All requests, including lists and pings. Empty: no limit."
    )
    requests_per_day = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no limit.")
    open_streams = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Event streams and WebSockets that are open at the same time. Empty: no limit.",
    )

    class Meta:
        abstract = True


class Presentation(models.TextChoices):
    """How tools are listed: all of them, or tools that search and call the others. AUTO: by the cost of the list."""

    FULL = "full", "List all tools"
    SEARCH = "search", "Search tools"
    AUTO = "auto", "Search when the list is long"


class Tenant(CallerLimited):
    """One customer of the hub. Its rows are invisible to every other tenant."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.CharField(
        max_length=MAX_SLUG_LENGTH,
        unique=True,
        validators=[TENANT_SLUG],
        help_text="Part of the URL of the tenant's endpoint: /t/SLUG/mcp. It cannot be changed later.",
    )
    name = models.CharField(max_length=200)
    is_active = models.BooleanField(
        "active", default=True, help_text="If off, all API keys of this tenant are rejected."
    )
    allow_query_key = models.BooleanField(
        "API keys in URLs",
        default=False,
        help_text="Accept keys in ?api_key= too. URLs are stored in logs and histories: prefer a header.",
    )
    allowed_networks = TextListField(
        validators=[validate_networks],
        help_text="Private networks that HTTP tools can call, such as 10.1.0.0/16. Only superusers change them.",
    )
    redacted_keys = TextListField(
        validators=[validate_key_names],
        help_text="Additional key names whose values the audit log redacts, such as ssn.",
    )
    calls_in_flight = models.PositiveIntegerField(
        "calls at once", null=True, blank=True, help_text="Calls that run at the same time. Empty: no limit."
    )
    most_sessions = models.PositiveIntegerField(
        "open sessions",
        null=True,
        blank=True,
        help_text="For clients with protocol versions up to 2025-11-25. Empty: the maximum of the hub.",
    )
    keep_days = models.PositiveIntegerField(
        "days to keep calls",
        null=True,
        blank=True,
        help_text="Older calls are deleted, with their arguments, results and events. 0: never. Empty: the hub default"
        " (MCPHUB_KEEP_DAYS). Only superusers change it.",
    )
    is_public = models.BooleanField(
        "public",
        default=False,
        help_text="Anyone can call this tenant at /t/SLUG/mcp without an API key. These calls are recorded as"
        " anonymous.",
    )
    public_tools = NameListField(
        "public tools, resources and prompts",
        help_text="Names or URIs that anonymous callers can use. * matches anything: search_*. tool=echo is exactly the"
        " tool echo, and so are prompt= and resource=. Only superusers change them.",
    )
    public_calls_per_minute = models.PositiveIntegerField(default=60, help_text="For each IP address.")
    requires_second_factor = models.BooleanField(
        "require a second factor",
        default=False,
        help_text="Members who log in with a password need an authenticator app or a security key, too.",
    )
    presentation = models.CharField(
        "tools are listed",
        max_length=6,
        choices=Presentation,
        default=Presentation.FULL.value,
        help_text="With search, clients get find_tools, describe_tool and call_tool in place of a long list. A key can "
        "have its own setting.",
    )
    search_above_tokens = models.PositiveIntegerField(
        default=20_000, help_text="The estimated cost of a list in tokens from which on it is long."
    )
    catalog_version = models.PositiveBigIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """A member's role: an admin changes the tenant, an auditor reads all of it, an operator sees which calls were made.

    Of a call, an operator sees who, when, how long and how it ended; never its arguments, events and result.
    """

    ADMIN = "admin", "Admin"
    AUDITOR = "auditor", "Auditor"
    OPERATOR = "operator", "Operator"


ROLES = (
    "Admins can change everything of the tenant. Auditors can read everything. Operators can read the catalog, and who"
    " called what, when and with which outcome, but no arguments, events and results."
)


class Membership(Recorded):
    """A person's role in one tenant."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, help_text=ROLES)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "user"]
        verbose_name = "member"
        constraints = [models.UniqueConstraint(fields=["user", "tenant"], name="one_role_per_member")]

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant}"


class ApiKey(CallerLimited):
    """A credential of one tenant. Only a digest is stored: the key itself is shown once, at creation."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    tool_patterns = NameListField(
        "names",
        help_text="Names or URIs of the tools, prompts and resources that the key can use. * matches anything:"
        " search_*, docs://handbook/*. tool=search is exactly the tool search, and so are prompt= and resource=."
        " Empty: all, including those added later.",
    )
    methods = TextListField(
        validators=[validate_patterns],
        help_text="MCP methods that the key can call: tools/list, tools/*, resources/*, prompts/*, tasks/*,"
        " subscriptions/*. Empty: all.",
    )
    networks = TextListField(
        validators=[validate_networks],
        help_text="Networks from which the key can be used: 203.0.113.0/24, 203.0.113.7, 2001:db8::/32. Behind a proxy,"
        " set MCPHUB_TRUSTED_PROXIES. Empty: any.",
    )
    acts_for_creator = models.BooleanField(
        "acts for me",
        default=False,
        help_text="Tools of Django apps that need a person run for who creates the key, and upstream servers are called"
        " with that person's own credentials for them, also for other holders of the key. This cannot be changed later."
        " Without it, such tools are not offered to the key.",
    )
    # Not PROTECT: a tenant is deleted with its keys and toolsets.
    toolset = models.ForeignKey(
        "Toolset",
        null=True,
        blank=True,
        on_delete=models.RESTRICT,
        related_name="keys",
        help_text="Of the tools that the names permit, only those of this toolset. Empty: all of them.",
    )
    presentation = models.CharField(
        "tools are listed",
        max_length=6,
        choices=Presentation,
        blank=True,
        default="",
        help_text="Empty: as the tenant is set.",
    )
    replaced_by = models.ForeignKey(
        "self", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="replaces"
    )

    class Meta:
        ordering = ["tenant", "name"]
        verbose_name = "API key"
        verbose_name_plural = "API keys"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def clean(self) -> None:
        """Reject the toolset of another tenant. Raises ValidationError."""
        if self.toolset is not None and self.tenant_id not in (None, self.toolset.tenant_id):
            raise ValidationError({"toolset": "Choose a toolset of the key's tenant."})


INVITATION_DAYS = 7


def _in_some_days() -> datetime:
    return timezone.now() + timedelta(days=INVITATION_DAYS)


class Invitation(Recorded):
    """A link that makes the person who opens it a member. Only a digest of its token is stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(
        "e-mail",
        help_text="The address to invite. A user whose account has another address must confirm the invitation.",
    )
    role = models.CharField(max_length=10, choices=Role, help_text=ROLES)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(default=_in_some_days)
    accepted_at = models.DateTimeField(null=True, editable=False)
    accepted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    revoked_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.email} to {self.tenant}"


class PersonalToken(Recorded):
    """A person's credential for the REST API. Only a digest is stored: the token itself is shown once."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    revoked_at = models.DateTimeField(null=True, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "personal token"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
