"""Sign-in of clients by OAuth 2.1: clients, connections, and what is issued to them.

A connection is what a person allowed one client in one tenant. It owns an API key that nobody holds: its names, limits,
expiry and revocation apply to the access tokens of the connection as they do to a key. Codes and tokens are stored as
digests only.
"""

import re

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from tools_app.core.ids import new_id
from tools_app.core.recorded import Recorded
from tools_app.core.validators import validate_names, validate_patterns
from tools_app.tenants.models import MAX_SLUG_LENGTH, ApiKey, Tenant

MAX_CLIENT_ID = 1000
MAX_URI = 2000
MAX_SCOPE = 1000
MAX_NETWORK = 50
# A request for refresh tokens.
OFFLINE = "offline_access"
SCOPE_NAME = re.compile(r"[a-z][a-z0-9._:-]{0,39}")
RESERVED_SCOPES = frozenset({OFFLINE, "openid", "profile", "email", "address", "phone"})
POLICY_HOST = re.compile(r"[a-z0-9*._-]+:?|\[[0-9a-f:.]+\]")


class ClientSource(models.TextChoices):
    """How the hub got to know a client."""

    DOCUMENT = "document", "Metadata document"
    DYNAMIC = "dynamic", "Dynamic registration"
    SERVICE = "service", "Service client of a tenant"
    WORKLOAD = "workload", "Token of an issuer"


class OAuthClient(Recorded):
    """An application that may ask for access.

    DOCUMENT: its id is the URL of its metadata, so its host is verified. DYNAMIC: it registered itself, and its name is
    what it says (RFC 7591). SERVICE: an admin of a tenant made it, and no person is asked for consent.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    client_id = models.CharField("client ID", max_length=MAX_CLIENT_ID, unique=True, editable=False)
    source = models.CharField(max_length=10, choices=ClientSource, editable=False)
    name = models.CharField(max_length=200, editable=False)
    redirect_uris = models.JSONField("redirect URIs", default=list, editable=False)
    grant_types = models.JSONField(default=list, editable=False, help_text="What it may ask for tokens with.")
    auth_method = models.CharField("authentication", max_length=30, default="none", editable=False)
    auth_methods = models.JSONField(
        "ways to authenticate",
        default=list,
        editable=False,
        help_text="Those that its metadata document names, the one that it prefers first. Empty: the one above.",
    )
    secret_digest = models.CharField(max_length=64, blank=True, editable=False)
    jwks_uri = models.CharField("JWKS URL", max_length=MAX_URI, blank=True, editable=False)
    jwks = models.JSONField(null=True, editable=False, help_text="The public keys of a client that signs assertions.")
    keys_fetched_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    fetched_at = models.DateTimeField(null=True, editable=False, help_text="When its metadata document was read.")
    last_used_at = models.DateTimeField(null=True, editable=False)
    blocked_at = models.DateTimeField(null=True, editable=False)
    network = models.CharField(
        max_length=MAX_NETWORK, blank=True, editable=False, help_text="From where it registered itself."
    )

    class Meta:
        ordering = ["name", "client_id"]
        verbose_name = "client"
        indexes = [models.Index(fields=["source", "created_at"], name="client_by_age")]

    def __str__(self) -> str:
        return self.name


class Connection(Recorded):
    """What a client may do in a tenant. It ends when its key expires or is revoked, or its person leaves.

    A service client has a connection without a person.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="connections")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="connections"
    )
    client = models.ForeignKey(OAuthClient, on_delete=models.CASCADE, related_name="connections")
    key = models.OneToOneField(ApiKey, on_delete=models.CASCADE, related_name="connection")
    scope = models.CharField(max_length=MAX_SCOPE, help_text="The scopes that the person allowed.")
    redirect_uri = models.CharField("redirect URI", max_length=MAX_URI, help_text="Where the last code was sent.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    consented_at = models.DateTimeField(default=timezone.now)
    asserted_until = models.DateTimeField(
        null=True,
        editable=False,
        help_text="The end of the key that the last assertion of the company set. Another end is a choice of somebody.",
    )

    class Meta:
        ordering = ["-consented_at"]
        indexes = [models.Index(fields=["tenant", "-consented_at"], name="connection_by_tenant")]
        constraints = [models.UniqueConstraint(fields=["tenant", "person", "client"], name="one_connection_per_client")]

    def __str__(self) -> str:
        return f"{self.client} for {self.person}" if self.person else str(self.client)


class ServiceClient(ApiKey):
    """A client that acts for itself and not for a person: the key of its connection, under which its calls are."""

    class Meta:
        proxy = True

    def __str__(self) -> str:
        return self.name


class TenantScope(Recorded):
    """A scope that a tenant names: the names and methods that an access token with it may use."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="scopes")
    name = models.CharField(
        max_length=40, help_text="What a client asks for, such as reports or crm:read: lower case, digits and . _ : -"
    )
    description = models.CharField(
        max_length=200, blank=True, help_text="What the consent page says of it, such as: Read the sales reports."
    )
    tool_patterns = models.JSONField(
        "names",
        default=list,
        blank=True,
        validators=[validate_names],
        help_text="Tools, prompts and resources, e.g. report_* or tool=report_sales. Empty: all.",
    )
    methods = models.JSONField(
        default=list, blank=True, validators=[validate_patterns], help_text="Methods, e.g. tools/call. Empty: all."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        verbose_name = "scope"
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="one_scope_of_a_name")]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Check the name, unless there is none: that is said by its field. Raises ValidationError."""
        if self.name and not SCOPE_NAME.fullmatch(self.name):
            raise ValidationError(
                {
                    "name": "Write 1 to 40 characters: a lower-case letter first, then letters, digits and . _ : - "
                    "such as reports."
                }
            )
        if self.name in RESERVED_SCOPES or self.name.startswith("mcp:"):
            raise ValidationError({"name": f"{self.name} is reserved. Choose another name."})


class ClientDecision(models.TextChoices):
    """What a tenant decides about clients of a host."""

    ALLOW = "allow", "Members may connect it"
    ASK = "ask", "An admin has to allow it first"
    DENY = "deny", "Nobody may connect it"


class ClientPolicy(Recorded):
    """A tenant's decision about the clients of a host. Without one, members may connect every client."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="client_policies")
    host = models.CharField(
        max_length=255,
        help_text="The verified host of a client, or where it returns to: claude.ai, *.example.com, localhost, "
        "cursor:. * is every client.",
    )
    decision = models.CharField(max_length=10, choices=ClientDecision)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "host"]
        verbose_name_plural = "client policies"
        constraints = [models.UniqueConstraint(fields=["tenant", "host"], name="one_policy_per_host")]

    def __str__(self) -> str:
        return f"{self.host}: {self.get_decision_display()}"

    def clean(self) -> None:
        """Write the host as `identity.oauth.policies.host_of` does. Raises ValidationError.

        That there is none is said by its field.
        """
        if not self.host:
            return
        host = self.host.strip().lower()
        self.host = host if host.endswith(("..", ":")) else host.removesuffix(".")
        if not POLICY_HOST.fullmatch(self.host):
            raise ValidationError(
                {
                    "host": "Write a host such as claude.ai, *.example.com or localhost, the scheme of an application "
                    "such as cursor:, or * for every client."
                }
            )


class Issued(models.Model):
    """A code or token: `family` is what one code began, and ends together."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    digest = models.CharField(max_length=80, unique=True)
    connection = models.ForeignKey(Connection, on_delete=models.CASCADE, related_name="+")
    family = models.UUIDField(db_index=True)
    scope = models.CharField(max_length=MAX_SCOPE)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        abstract = True


class AuthorizationCode(Issued):
    """A code that a client exchanges for tokens, once (RFC 6749, section 4.1)."""

    redirect_uri = models.CharField(max_length=MAX_URI)
    code_challenge = models.CharField(max_length=128)
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"code of {self.family}"


class AccessToken(Issued):
    """A token that a client sends with each request."""

    def __str__(self) -> str:
        return f"access token of {self.family}"


class RefreshToken(Issued):
    """A token that is exchanged for a new pair of tokens. After its rotation it is kept to notice a replay."""

    rotated_at = models.DateTimeField(null=True)
    is_bound = models.BooleanField(
        default=False, help_text="Its client authenticated itself when it was issued, and has to when it is used."
    )

    def __str__(self) -> str:
        return f"refresh token of {self.family}"


class DeviceCode(models.Model):
    """A request of a device without a browser, which a person allows or refuses elsewhere (RFC 8628).

    The digest is that of the code that the device holds, and `user_digest` that of the one that it shows. It is allowed
    once it has a connection.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    digest = models.CharField(max_length=64, unique=True)
    user_digest = models.CharField(max_length=64, unique=True)
    client = models.ForeignKey(OAuthClient, on_delete=models.CASCADE, related_name="+")
    tenant_slug = models.CharField(max_length=MAX_SLUG_LENGTH, blank=True)
    scope = models.CharField(max_length=MAX_SCOPE)
    interval = models.PositiveSmallIntegerField()
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    network = models.CharField(max_length=MAX_NETWORK, blank=True, help_text="From where the device asked.")
    polled_at = models.DateTimeField(null=True)
    entered_at = models.DateTimeField(null=True, help_text="When a person entered the code that it shows.")
    connection = models.ForeignKey(Connection, null=True, on_delete=models.CASCADE, related_name="+")
    refused_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"request of {self.client}"


class SignInStep(models.TextChoices):
    """One step of a sign-in."""

    CHALLENGED = "challenged", "Sent to sign in"
    CLIENT_SEEN = "client_seen", "Client registered"
    ASKED = "asked", "Access requested"
    ALLOWED = "allowed", "Allowed"
    DENIED = "denied", "Refused by the person"
    ISSUED = "issued", "Tokens issued"
    REFRESHED = "refreshed", "Tokens renewed"
    REPLAYED = "replayed", "Used twice"
    REVOKED = "revoked", "Ended"
    REJECTED = "rejected", "Rejected"
    SIGNED_IN = "signed_in", "Signed in"
    LEFT = "left", "Access withdrawn"


class SignInEvent(models.Model):
    """One step of one sign-in, with its reason where it failed. Insert-only, pruned by age."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    at = models.DateTimeField(default=timezone.now, db_default=Now(), db_index=True)
    step = models.CharField(max_length=12, choices=SignInStep)
    reason = models.CharField(max_length=500, blank=True)
    tenant = models.ForeignKey(
        Tenant, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    connection_id = models.UUIDField(null=True)
    attempt = models.UUIDField(
        null=True, db_index=True, help_text="The same for all steps of one attempt to sign in, as far as is known."
    )
    client_id = models.CharField("client ID", max_length=MAX_CLIENT_ID, blank=True)
    client_name = models.CharField(max_length=200, blank=True)
    person_name = models.CharField(max_length=150, blank=True)
    host = models.CharField(max_length=255, blank=True, help_text="What a client policy names the client by.")
    remote_address = models.CharField(max_length=45, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name = "sign-in"
        indexes = [models.Index(fields=["tenant", "-at"], name="sign_in_by_tenant")]

    def __str__(self) -> str:
        return f"{self.client_name}: {self.get_step_display()}" if self.client_name else self.get_step_display()
