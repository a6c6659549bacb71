"""External issuers of identities that a tenant trusts, the rules on their claims, and the people whom they know."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from tools_app.models.ids import new_id
from tools_app.models.recorded import Recorded
from tools_app.models.tenants import Role, Tenant
from tools_app.models.validators import validate_patterns

MAX_ISSUER_URL = 500
MAX_SUBJECT = 255


class IssuerUse(models.TextChoices):
    """What the tokens of an issuer are accepted for."""

    SIGN_IN = "sign_in", "People sign in (OpenID Connect)"
    ASSERTION = "assertion", "Clients exchange an identity assertion (ID-JAG)"
    WORKLOAD = "workload", "Workloads exchange their token"


class Issuer(Recorded):
    """An issuer that a tenant trusts: the company's directory, GitHub Actions, a Kubernetes cluster."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="issuers")
    name = models.CharField(max_length=100)
    url = models.CharField(
        "issuer URL",
        max_length=MAX_ISSUER_URL,
        help_text="Exactly as in the issuer's tokens (iss), e.g. https://token.actions.githubusercontent.com.",
    )
    uses = models.JSONField(default=list, help_text="What its tokens are accepted for.")
    audience = models.CharField(
        max_length=MAX_ISSUER_URL,
        blank=True,
        help_text="The audience (aud) of workloads' tokens. Empty: the URL of this hub.",
    )
    algorithms = models.JSONField(default=list, blank=True, help_text="Empty: RS256 and ES256.")
    client_id = models.CharField(
        "client ID", max_length=255, blank=True, help_text="Of this hub at the issuer, for people who sign in."
    )
    ciphertext = models.BinaryField(default=bytes, editable=False)
    scopes = models.CharField(max_length=255, blank=True, default="openid email profile")
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "url"], name="issuer_once_per_tenant")]

    def __str__(self) -> str:
        return self.name


class ClaimRule(Recorded):
    """What the bearer of certain claims gets: the first rule that fits counts. No rule fits: nothing."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="rules")
    position = models.PositiveIntegerField(default=0, help_text="Rules are tried in ascending order.")
    conditions = models.JSONField(
        default=dict,
        blank=True,
        help_text="Claims and the patterns that their values must match, as a JSON object, e.g. "
        '{"repository": ["acme/*"], "groups": ["mcp-users"]}. Empty: everybody.',
    )
    role = models.CharField(
        max_length=10, choices=Role, blank=True, help_text="The role of people who sign in. Empty for workloads."
    )
    tool_patterns = models.JSONField(
        "names",
        default=list,
        blank=True,
        validators=[validate_patterns],
        help_text="Tools, prompts and resources that a workload may use, as a JSON list of patterns. Empty: all.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["issuer", "position", "id"]

    def __str__(self) -> str:
        return f"{self.issuer} {self.position}"

    @property
    def tenant_id(self) -> object:
        """The tenant of the issuer."""
        return self.issuer.tenant_id


class Identity(models.Model):
    """A person as an issuer knows them: (iss, sub), which never changes, unlike a name or an address."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="identities")
    subject = models.CharField(max_length=MAX_SUBJECT)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["issuer", "subject"]
        verbose_name_plural = "identities"
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once_per_issuer")]

    def __str__(self) -> str:
        return f"{self.person} at {self.issuer}"
