"""Credentials for upstream MCP servers: of a tenant, of one of its API keys, or of a person."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tools_app.models.ids import new_id
from tools_app.models.recorded import Recorded
from tools_app.models.tenants import ApiKey, Tenant
from tools_app.models.upstreams import CredentialKind, Upstream

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
