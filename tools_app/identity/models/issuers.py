"""External issuers: identity providers of tenants, what their claims mean, and the people who came from them.

An issuer belongs to one tenant, whose admins set it up. So the accounts of its people belong to that tenant, and never
to somebody who already has an account.
"""

from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from tools_app.core.ids import new_id
from tools_app.core.recorded import Recorded
from tools_app.core.validators import ONE_LINE, validate_key_names, validate_names, validate_patterns
from tools_app.identity.models.oauth import OAuthClient
from tools_app.tenants.models import Role, Tenant

MAX_URL = 500
MAX_SUBJECT = 255
MAX_RECHECK_HOURS = 24 * 30
MIN_SIGN_IN_MINUTES = 5
MAX_SIGN_IN_MINUTES = 60 * 24 * 30
MAX_CLIENT_SECRET = 1000
# Characters of SAML metadata that is pasted, and of the certificates beside it.
MAX_METADATA = 128 * 1024
MAX_CERTIFICATES = 32 * 1024
MAX_RULES = 50
MAX_CLAIMS = 20
MAX_CLAIM_NAME = 200
RULE_FIELDS = {"claims", "role", "names", "methods"}


def validate_rules(value: object) -> None:
    """Raise ValidationError unless `value` is a list of rules on claims."""
    if not isinstance(value, list) or len(value) > MAX_RULES:
        raise ValidationError(f"Must be a JSON list of at most {MAX_RULES} rules.")
    for position, rule in enumerate(value):
        try:
            _validate_rule(rule)
        except ValidationError as problem:
            raise ValidationError(f"Rule {position + 1}: {problem.messages[0]}") from problem


def _validate_rule(rule: object) -> None:
    if not isinstance(rule, dict) or not rule.keys() <= RULE_FIELDS:
        raise ValidationError("Write an object with claims, and role, or names and methods.")
    claims = rule.get("claims", {})
    if not isinstance(claims, dict) or len(claims) > MAX_CLAIMS:
        raise ValidationError(f"claims is an object of at most {MAX_CLAIMS} claims with lists of patterns.")
    for name, patterns in claims.items():
        if not 0 < len(name) <= MAX_CLAIM_NAME:
            raise ValidationError(f"The name of a claim has 1 to {MAX_CLAIM_NAME} characters.")
        validate_key_names(patterns)
    if rule.get("role", Role.OPERATOR) not in Role.values:
        raise ValidationError(f"role is one of {', '.join(Role.values)}.")
    validate_names(rule.get("names", []))
    validate_patterns(rule.get("methods", []))


class IssuerUse(models.TextChoices):
    """Whose identities an issuer states."""

    PEOPLE = "people", "People sign in"
    WORKLOADS = "workloads", "Programs connect, without a stored secret"
    DIRECT = "direct", "Its tokens are used as they are, without an exchange"


class IssuerProtocol(models.TextChoices):
    """How an issuer states identities."""

    OIDC = "oidc", "OpenID Connect"
    SAML = "saml", "SAML 2.0"


class Issuer(Recorded):
    """An OpenID Connect provider or another issuer of signed tokens, with its place in one tenant."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="issuers")
    name = models.CharField(max_length=100, validators=[ONE_LINE], help_text="Shown on the sign-in page.")
    use = models.CharField(max_length=10, choices=IssuerUse, default=IssuerUse.PEOPLE)
    protocol = models.CharField(
        max_length=10, choices=IssuerProtocol, default=IssuerProtocol.OIDC, help_text="SAML 2.0 is for people only."
    )
    issuer = models.CharField(
        "issuer URL",
        max_length=MAX_URL,
        help_text="As in its tokens, such as https://login.microsoftonline.com/TENANT/v2.0. Its configuration is read "
        "from /.well-known/openid-configuration below it. SAML: the entity ID of the identity provider.",
    )
    client_id = models.CharField(
        "client ID", max_length=200, blank=True, help_text="Of the application that is registered for this hub."
    )
    ciphertext = models.BinaryField(null=True, editable=False)
    audience = models.CharField(
        max_length=MAX_URL,
        blank=True,
        help_text="What tokens of workloads, and those that are used as they are, have to be for. Empty: for workloads "
        "this hub's own address, otherwise the tenant's endpoint.",
    )
    accepts_assertions = models.BooleanField(
        "signs clients in, too",
        default=False,
        help_text="Applications that the company manages connect with an identity assertion (ID-JAG) of this issuer, "
        "without asking the person.",
    )
    recheck_hours = models.PositiveIntegerField(
        "access without a check (hours)",
        default=24,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_RECHECK_HOURS)],
        help_text="People are checked with the issuer twice an hour, where it issues refresh tokens. Where it does "
        "not, or cannot be reached, their access ends after this time until they sign in again.",
    )
    sign_in_minutes = models.PositiveIntegerField(
        "sign in again after (minutes)",
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_SIGN_IN_MINUTES), MaxValueValidator(MAX_SIGN_IN_MINUTES)],
        help_text="After this time, people and the clients that they connected have no access until they sign in with "
        "the issuer again. Empty: no such end. With SAML and no directory (SCIM), an hour at most in any case.",
    )
    rules = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_rules],
        help_text="What claims of its tokens mean, as a JSON list. The first rule whose claims all fit counts; without "
        'one, nobody gets in. For people: [{"claims": {"groups": ["mcp-admins"]}, "role": "admin"}]. For others: '
        '[{"claims": {"repository": ["acme/*"]}, "names": ["report_*"], "methods": ["tools/*"]}].',
    )
    directory_claim = models.CharField(
        "claim of the directory's external ID",
        max_length=MAX_CLAIM_NAME,
        default="sub",
        validators=[ONE_LINE],
        help_text="The claim that has the externalId by which the directory (SCIM) knows a person: sub, or oid for "
        "Microsoft Entra ID.",
    )
    directory_only = models.BooleanField(
        "only people of the directory",
        default=False,
        help_text="On: only those sign in whom the directory (SCIM) has provisioned.",
    )
    metadata_url = models.CharField(
        "metadata URL", max_length=MAX_URL, blank=True, help_text="Where the identity provider publishes its metadata."
    )
    metadata = models.TextField(
        "metadata (XML)",
        blank=True,
        max_length=MAX_METADATA,
        validators=[MaxLengthValidator(MAX_METADATA)],
        help_text="For an identity provider without a metadata URL: the XML that it shows or lets you download.",
    )
    certificates = models.TextField(
        "more certificates",
        blank=True,
        max_length=MAX_CERTIFICATES,
        validators=[MaxLengthValidator(MAX_CERTIFICATES)],
        help_text="In PEM, one after the other: those that sign beside the ones in the metadata, such as the next one.",
    )
    subject_attribute = models.CharField(
        max_length=MAX_CLAIM_NAME,
        blank=True,
        help_text="The attribute that never changes for a person. Empty: the NameID, which must not be transient.",
    )
    email_attribute = models.CharField(max_length=MAX_CLAIM_NAME, default="email", blank=True)
    groups_attribute = models.CharField(
        max_length=MAX_CLAIM_NAME,
        default="groups",
        blank=True,
        help_text="Rules see its values as the claim groups, and every attribute by its own name.",
    )
    allows_unasked = models.BooleanField(
        "sign-in may begin at the identity provider",
        default=False,
        help_text="Off: only answers to a request of this hub count, in the browser that made it. On: somebody can be "
        "signed in with an account of another person by a page that they open.",
    )
    is_active = models.BooleanField(
        "active", default=True, help_text="Off: nobody signs in, and everybody who did loses access."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        verbose_name = "issuer"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "issuer", "use"],
                name="issuer_once_per_tenant",
                violation_error_message="This issuer is set up already. Change it instead.",
            ),
            models.UniqueConstraint(
                fields=["tenant", "name"],
                name="issuer_name_once_per_tenant",
                violation_error_message="Another issuer has this name.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Check what belongs together. Raises ValidationError."""
        rules = [rule for rule in self.rules if isinstance(rule, dict)] if isinstance(self.rules, list) else []
        if self.protocol == IssuerProtocol.SAML:
            self._check_saml()
        elif self.use == IssuerUse.PEOPLE and self.is_active and not self.client_id:
            raise ValidationError({"client_id": "Enter the client ID that the provider gave for this hub."})
        if self.use == IssuerUse.PEOPLE and any("role" not in rule for rule in rules):
            raise ValidationError({"rules": "Each rule for people needs a role."})
        if self.use == IssuerUse.WORKLOADS and self.directory_only:
            raise ValidationError({"directory_only": "Directories have people. Programs have no directory."})
        if self.use == IssuerUse.WORKLOADS and any(not rule.get("claims") for rule in rules):
            raise ValidationError({"rules": "Each rule for workloads needs claims: public issuers serve everybody."})
        if self.use == IssuerUse.DIRECT and any(not rule.get("claims") or "role" in rule for rule in rules):
            raise ValidationError(
                {"rules": "Each rule for tokens needs claims, and names or methods in place of a role: people sign in."}
            )

    def _check_saml(self) -> None:
        if self.use != IssuerUse.PEOPLE:
            raise ValidationError({"protocol": "SAML is for people. Programs use tokens: choose OpenID Connect."})
        if self.accepts_assertions:
            raise ValidationError({"accepts_assertions": "Identity assertions are of OpenID Connect. Turn it off."})
        if self.metadata_url and self.metadata:
            raise ValidationError({"metadata": "Enter the metadata URL or the XML, not both."})
        if self.is_active and not (self.metadata_url or self.metadata):
            raise ValidationError({"metadata_url": "Enter the metadata URL of the provider, or paste its XML."})


# What an admin writes, in forms and in the API. `secret` is the client secret, which is stored encrypted.
WRITTEN_FIELDS = (*(field.name for field in Issuer._meta.concrete_fields if field.editable), "secret")


class UsedAssertion(models.Model):
    """An ID that counts once, as a digest, until it has expired.

    It is of an assertion that an issuer or a client signed, of a request that a SAML provider answered, or, without
    either, the code of a person's second factor.
    """

    digest = models.CharField(primary_key=True, max_length=64)
    issuer = models.ForeignKey(Issuer, null=True, on_delete=models.CASCADE, related_name="+", db_index=False)
    client = models.ForeignKey(OAuthClient, null=True, on_delete=models.CASCADE, related_name="+", db_index=False)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = [
            models.Index(fields=["issuer", "expires_at"], name="assertion_by_issuer"),
            models.Index(fields=["client", "expires_at"], name="assertion_by_client"),
        ]

    def __str__(self) -> str:
        return f"used until {self.expires_at}"


class Identity(models.Model):
    """A person as an issuer knows them. Their account was made for it, and their role follows its rules."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="identities")
    subject = models.CharField(
        max_length=MAX_SUBJECT,
        blank=True,
        help_text="Empty: the directory provisioned the person, who has not signed in.",
    )
    person = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identity")
    claims = models.JSONField(default=dict, help_text="What the issuer last said of the person.")
    ciphertext = models.BinaryField(null=True, help_text="The sealed refresh token of the issuer.")
    created_at = models.DateTimeField(default=timezone.now)
    verified_at = models.DateTimeField(default=timezone.now, help_text="When the issuer last vouched for the person.")
    checked_at = models.DateTimeField(default=timezone.now, help_text="When the issuer was last asked.", db_index=True)
    signed_in_at = models.DateTimeField(
        default=timezone.now, help_text="When the person last came from the issuer, or with an assertion of it."
    )
    session_ends_at = models.DateTimeField(
        null=True, help_text="When the session of the last sign-in ends at the issuer, if it said so (SAML)."
    )
    ended_at = models.DateTimeField(null=True, help_text="When the issuer no longer vouched for the person.")

    class Meta:
        verbose_name_plural = "identities"
        constraints = [
            models.UniqueConstraint(
                fields=["issuer", "subject"], condition=~models.Q(subject=""), name="identity_once_per_issuer"
            )
        ]

    def __str__(self) -> str:
        return f"{self.person} by {self.issuer}"


MAX_VALUE = 254
MAX_EMAILS = 10


class Directory(models.Model):
    """The access of a company's directory to its issuer: one token, of which only a digest is stored."""

    issuer = models.OneToOneField(Issuer, primary_key=True, on_delete=models.CASCADE, related_name="directory")
    prefix = models.CharField(max_length=20)
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "directories"

    def __str__(self) -> str:
        return f"directory of {self.issuer}"


class DirectoryUser(models.Model):
    """A person as the directory describes them (RFC 7643, section 4.1)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="directory_users")
    identity = models.OneToOneField(Identity, on_delete=models.CASCADE, related_name="directory_user")
    user_name = models.CharField(max_length=MAX_VALUE)
    user_name_key = models.CharField(max_length=MAX_VALUE, help_text="The user name as it is compared.")
    external_id = models.CharField(max_length=MAX_VALUE, blank=True)
    active = models.BooleanField(default=True)
    resource = models.JSONField(default=dict, help_text="The other attributes, as the directory gave them.")
    # Each on a line of its own, also the first and the last: RFC 7643 compares e-mails without case.
    emails_key = models.TextField(blank=True, help_text="The e-mails as they are compared.")
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["issuer", "created_at", "id"], name="directory_user_by_age")]
        constraints = [
            models.UniqueConstraint(fields=["issuer", "user_name_key"], name="directory_user_name_once"),
            models.UniqueConstraint(
                fields=["issuer", "external_id"],
                condition=~models.Q(external_id=""),
                name="directory_user_external_id_once",
            ),
        ]

    def __str__(self) -> str:
        return self.user_name

    @property
    def tenant_id(self) -> UUID:
        """The tenant of the issuer, under which changes are recorded."""
        return self.issuer.tenant_id


class DirectoryGroup(models.Model):
    """A group of the directory with the people in it (RFC 7643, section 4.2)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="directory_groups")
    display_name = models.CharField(max_length=MAX_VALUE)
    # Directories have groups of the same name.
    display_name_key = models.CharField(max_length=MAX_VALUE, help_text="The name as it is compared.")
    external_id = models.CharField(max_length=MAX_VALUE, blank=True)
    members = models.ManyToManyField(DirectoryUser, related_name="groups")
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["issuer", "display_name_key"], name="directory_group_by_name")]
        constraints = [
            models.UniqueConstraint(
                fields=["issuer", "external_id"],
                condition=~models.Q(external_id=""),
                name="directory_group_external_id_once",
            ),
        ]

    def __str__(self) -> str:
        return self.display_name

    @property
    def tenant_id(self) -> UUID:
        """The tenant of the issuer, under which changes are recorded."""
        return self.issuer.tenant_id
