"""What is read and written of issuers, clients, connections, scopes and tokens: over REST, and in a tenant's file."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied

from tools_app.core.documents import Document
from tools_app.core.validators import validate_names, validate_patterns
from tools_app.identity import personal_tokens
from tools_app.identity.issuers import setup, tokens
from tools_app.identity.models.issuers import MAX_CLIENT_SECRET, WRITTEN_FIELDS, validate_rules
from tools_app.identity.oauth import clients, key_sets, policies, scopes, service_clients
from tools_app.identity.people import directory
from tools_app.models import (
    ClientPolicy,
    Connection,
    Issuer,
    IssuerProtocol,
    IssuerUse,
    Membership,
    OAuthClient,
    PersonalToken,
    ServiceClient,
    SignInEvent,
    Tenant,
    TenantScope,
    Toolset,
)
from tools_app.tenants.keys import LIMITS, SETTINGS
from tools_app.tenants.serializers import KeyRow
from tools_app.web.api.fields import JsonObject, JsonObjects, Text, Texts
from tools_app.web.api.serializers import NamedRow, Row, Strict, TenantField, TenantOfRecord

IT_SIGNS_NOT = "This client has a secret and no keys. Create another service client that signs."
SEVERAL = "several service clients have this name. Rename all but one in the admin first."
NEEDS_SESSION = "A token cannot create tokens. Create them in the admin, or here with a browser session."


# --- Clients and connections --------------------------------------------------------------------------------------


class ClientRow(Row):
    """An application that asked for access."""

    verified_host = serializers.SerializerMethodField(help_text="Empty: the client proved none.")
    redirect_uris = Texts(read_only=True)
    grant_types = Texts(read_only=True, help_text="What it may ask for tokens with.")
    auth_methods = serializers.SerializerMethodField(help_text="How it may authenticate.")

    class Meta:
        model = OAuthClient
        fields: tuple[str, ...] = (
            "id",
            "client_id",
            "name",
            "source",
            "verified_host",
            "redirect_uris",
            "grant_types",
            "auth_method",
            "auth_methods",
            "created_at",
            "fetched_at",
            "last_used_at",
            "blocked_at",
        )
        read_only_fields = fields

    def get_verified_host(self, row: OAuthClient) -> str:
        """Return the host of the client's metadata document."""
        return clients.host_of(row)

    def get_auth_methods(self, row: OAuthClient) -> list[str]:
        """Return the ways in which the client may authenticate."""
        return clients.methods_of(row)


class ConnectionRow(Row):
    """What a client may do in a tenant: what a person allowed, or that of a service client."""

    tenant = TenantOfRecord()
    client = serializers.CharField(source="client.name", read_only=True, help_text="The client's name.")
    client_id = serializers.CharField(source="client.client_id", read_only=True)
    verified_host = serializers.SerializerMethodField(help_text="Empty: the client proved none.")
    person = serializers.CharField(
        source="person.username", read_only=True, allow_null=True, help_text="Null: a service client."
    )
    key = serializers.UUIDField(
        source="key_id", read_only=True, help_text="The key under which its calls are recorded."
    )
    names = Texts(
        source="key.tool_patterns",
        read_only=True,
        help_text="Tools, prompts and resources that it may use. Empty: all.",
    )
    methods = Texts(source="key.methods", read_only=True, help_text="Empty: all.")
    toolset = serializers.CharField(
        source="key.toolset.name", read_only=True, allow_null=True, help_text="Its toolset. Null: none."
    )
    presentation = serializers.CharField(
        source="key.presentation", read_only=True, help_text="How its tools are listed. Empty: as the tenant is set."
    )
    limits = serializers.SerializerMethodField(help_text="The limits that are set.")
    expires_at = serializers.DateTimeField(source="key.expires_at", read_only=True, allow_null=True)
    revoked_at = serializers.DateTimeField(source="key.revoked_at", read_only=True, allow_null=True)
    last_used_at = serializers.DateTimeField(source="key.last_used_at", read_only=True, allow_null=True)

    class Meta:
        model = Connection
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "client",
            "client_id",
            "verified_host",
            "person",
            "key",
            "names",
            "methods",
            "toolset",
            "presentation",
            "limits",
            "scope",
            "consented_at",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        )
        read_only_fields = fields

    def get_limits(self, row: Connection) -> dict[str, int]:
        """Return the limits of the key."""
        return {name: value for name in LIMITS if (value := getattr(row.key, name)) is not None}

    def get_verified_host(self, row: Connection) -> str:
        """Return the host of the client's metadata document."""
        return clients.host_of(row.client)


class AccessRow(KeyRow):
    """What a connection may use: the fields of its key that an admin changes."""

    class Meta(KeyRow.Meta):
        fields = ("expires_at", *SETTINGS)
        read_only_fields: tuple[str, ...] = ()
        fixed: tuple[str, ...] = ()

    tenant = None  # type: ignore[assignment] # a connection stays in its tenant
    status = created_by = replaced_by = None  # type: ignore[assignment] # and these are facts


class SignInRow(Row):
    """One step of a sign-in."""

    tenant = TenantOfRecord()

    class Meta:
        model = SignInEvent
        fields: tuple[str, ...] = (
            "id",
            "at",
            "step",
            "reason",
            "tenant",
            "connection_id",
            "attempt",
            "client_id",
            "client_name",
            "person_name",
            "host",
            "remote_address",
        )
        read_only_fields = fields


# --- Client policies and scopes -----------------------------------------------------------------------------------


class ClientPolicyRow(NamedRow):
    """A decision about the clients of a host."""

    tenant = TenantField()

    class Meta:
        model = ClientPolicy
        fields: tuple[str, ...] = ("id", "tenant", "host", "decision", "created_at")
        fixed: tuple[str, ...] = ("tenant",)
        named, kind, checked = "host", "policy for", "host"

    def check(self, row: ClientPolicy) -> None:
        """Normalize the host. Raises django.core.exceptions.ValidationError."""
        row.clean()

    def check_room(self, tenant: Tenant) -> None:
        """Reject a policy too many. Raises django.core.exceptions.ValidationError."""
        policies.check_room(tenant)


class ClientPolicyDocument(Document, ClientPolicyRow):
    """A policy in a tenant's file, by its host."""

    key = "host"
    tenant = None  # type: ignore[assignment]

    class Meta(ClientPolicyRow.Meta):
        fields = ("decision",)
        fixed = ()

    def check(self, row: ClientPolicy) -> None:
        """Reject a host in another spelling. Raises django.core.exceptions.ValidationError."""
        super().check(row)
        if row.host != self.context["name"]:
            raise ValidationError(f"Write this host as {row.host}.")

    def check_room(self, tenant: Tenant) -> None:
        """The file as a whole has a bound."""


class ScopeRow(NamedRow):
    """A scope of a tenant."""

    tenant = TenantField()
    tool_patterns = Texts(
        required=False,
        validators=[validate_names],
        help_text=TenantScope._meta.get_field("tool_patterns").help_text,
    )
    methods = Texts(
        required=False,
        validators=[validate_patterns],
        help_text=TenantScope._meta.get_field("methods").help_text,
    )

    class Meta:
        model = TenantScope
        fields: tuple[str, ...] = ("id", "tenant", "name", "description", "tool_patterns", "methods", "created_at")
        fixed: tuple[str, ...] = ("tenant",)
        named, kind, checked = "name", "scope with", "name"

    def check(self, row: TenantScope) -> None:
        """Reject an invalid or reserved name. Raises django.core.exceptions.ValidationError."""
        row.clean()

    def check_room(self, tenant: Tenant) -> None:
        """Reject a scope too many. Raises django.core.exceptions.ValidationError."""
        scopes.check_room(tenant)


class TenantScopeDocument(Document, ScopeRow):
    """A scope in a tenant's file."""

    tenant = None  # type: ignore[assignment]

    class Meta(ScopeRow.Meta):
        fields = ("description", "tool_patterns", "methods")
        fixed = ()

    def check_room(self, tenant: Tenant) -> None:
        """The file as a whole has a bound."""


# --- Issuers ------------------------------------------------------------------------------------------------------


class DirectoryState(serializers.Serializer):
    """The access of a company's directory (SCIM), without its token."""

    url = serializers.CharField(help_text="The base URL (tenant URL) of the directory.")
    connected = serializers.BooleanField(help_text="Whether there is a token.")
    token_prefix = serializers.CharField(allow_blank=True)
    token_created_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="The last request, to the minute.")
    users = serializers.IntegerField()
    groups = serializers.IntegerField()


class NewDirectoryToken(serializers.Serializer):
    """A new token of a directory, which is shown only once."""

    token = serializers.CharField()
    url = serializers.CharField(help_text="The base URL (tenant URL) of the directory.")


class IssuerRow(Row):
    """An issuer without its client secret."""

    tenant = TenantField()
    directory = serializers.SerializerMethodField(help_text="The company's directory (SCIM).")
    rules = JsonObjects(
        required=False, validators=[validate_rules], help_text=Issuer._meta.get_field("rules").help_text
    )
    secret = Text(
        write_only=True,
        required=False,
        max_length=MAX_CLIENT_SECRET,
        help_text="The client secret. Replaces the stored one. It cannot be read back.",
    )

    class Meta:
        model = Issuer
        fields: tuple[str, ...] = ("id", *WRITTEN_FIELDS, "directory", "created_at")
        fixed: tuple[str, ...] = ("tenant",)

    @extend_schema_field(DirectoryState)
    def get_directory(self, row: Issuer) -> dict[str, Any]:
        """Return the state of the directory."""
        url = self.context["request"].build_absolute_uri(reverse("scim", args=[row.pk])).rstrip("/")
        return {"url": url, **directory.state_of(row)._asdict()}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the issuer, and that its provider can be reached. Raises ValidationError of Django or DRF."""
        attrs = super().validate(attrs)
        setup.check(self.drafted({name: attrs[name] for name in attrs if name != "secret"}), attrs.get("secret", ""))
        return attrs

    def create(self, validated_data: dict[str, Any]) -> Issuer:
        """Store the issuer with its client secret."""
        secret = validated_data.pop("secret", "")
        row = Issuer(**validated_data)
        setup.save(row, secret=secret)
        return row

    def update(self, instance: Issuer, validated_data: dict[str, Any]) -> Issuer:
        """Store the changed fields, and apply them to everybody who came from the issuer."""
        secret = validated_data.pop("secret", "")
        for name, value in validated_data.items():
            setattr(instance, name, value)
        # Not its secret, which may have been set meanwhile.
        setup.save(instance, secret=secret, fields=list(validated_data))
        return instance


class IssuerDocument(Document, IssuerRow):
    """An issuer in a tenant's file.

    Its client secret and the token of its directory are never in a file: they stay as they are, and a new issuer has
    none until somebody sets it. Nothing is read from its provider.
    """

    tenant = directory = secret = None  # type: ignore[assignment]

    class Meta(IssuerRow.Meta):
        fields = tuple(name for name in WRITTEN_FIELDS if name not in {"tenant", "name", "secret"})
        # People and workloads are known by them.
        fixed = ("use", *setup.PROVIDER_FIELDS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the issuer by itself, and with those before it in the file. Raises ValidationError of Django or DRF."""
        attrs = Row.validate(self, attrs)
        setup.check_settings(self.drafted(attrs))
        for other in self.context["others"]:
            if all(other.validated_data[name] == attrs[name] for name in ("issuer", "use")):
                raise serializers.ValidationError({"issuer": ["Another row has this issuer and use."]})
        return attrs

    def note(self, plan: Any) -> None:
        """Note that a changed issuer of people has no client secret."""
        values, row = self.validated_data, self.instance
        is_changed = row is None or any(getattr(row, name) != value for name, value in values.items())
        needs_secret = values["use"] == IssuerUse.PEOPLE and values["protocol"] == IssuerProtocol.OIDC
        if is_changed and needs_secret and not (row and row.ciphertext):
            plan.missing_client_secrets.append(self.context["name"])

    def delete(self) -> None:
        """Delete the issuer, with the access of everybody who came from it."""
        setup.delete(self.instance)


class TokenToTry(Strict):
    """A token, which is not stored and gives no access."""

    token = Text(max_length=tokens.MAX_TOKEN, help_text="A signed JWT of the issuer.")


class TriedToken(serializers.Serializer):
    """What the rules make of a token."""

    claims = serializers.DictField(help_text="What the token says, verified or not.")
    rule = serializers.IntegerField(allow_null=True, help_text="The number of the rule that fits, from 1.")
    role = serializers.CharField(allow_blank=True)
    names = serializers.ListField(child=serializers.CharField())
    methods = serializers.ListField(child=serializers.CharField())
    problem = serializers.CharField(allow_blank=True, help_text="Why the token would not be accepted. Empty: it would.")


# --- Service clients ----------------------------------------------------------------------------------------------


class ServiceClientRow(KeyRow):
    """A service client, without its secret. Its id is that of the key under which its calls are recorded."""

    client_id = serializers.CharField(source="connection.client.client_id", read_only=True)
    connection = serializers.UUIDField(source="connection.pk", read_only=True)
    auth_method = serializers.CharField(
        source="connection.client.auth_method", read_only=True, help_text="client_secret_basic or private_key_jwt."
    )
    public_keys = JsonObject(
        source="connection.client.jwks",
        required=False,
        allow_null=True,
        help_text="A JSON Web Key Set of public keys, for a client that signs. Null: it has a secret.",
    )

    class Meta(KeyRow.Meta):
        model = ServiceClient
        fields: tuple[str, ...] = (
            *(name for name in KeyRow.Meta.fields if name not in ("prefix", "replaced_by")),
            "client_id",
            "connection",
            "auth_method",
            "public_keys",
        )
        read_only_fields = ("acts_for_creator", "last_used_at", "revoked_at")

    prefix = None  # no client has the key's value
    replaced_by = None  # a secret is rotated in its place

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject keys that cannot be read, or that the client would not use. Raises ValidationError."""
        given = attrs.pop("connection", {}).get("client", {})
        attrs = super().validate(attrs)
        if "jwks" in given:
            attrs["public_keys"] = self.checked_keys(given["jwks"], IT_SIGNS_NOT)
        return attrs

    def checked_keys(self, public_keys: Mapping[str, Any] | None, message: str) -> dict[str, Any] | None:
        """Return public keys as they are stored. Raises ValidationError, with this message where the client has none.

        How a client authenticates does not change.
        """
        if self.instance is not None and (self.instance.connection.client.jwks is None) != (public_keys is None):
            raise serializers.ValidationError({"public_keys": [message]})
        try:
            return None if public_keys is None else key_sets.checked(public_keys)
        except ValidationError as problem:
            raise serializers.ValidationError({"public_keys": problem.messages}) from problem

    def create(self, validated_data: dict[str, Any]) -> ServiceClient:
        """Store a new client. Its secret is the attribute `secret` of this row only."""
        person = self.context["request"].user if "request" in self.context else self.context.get("by")
        by = person if isinstance(person, User) else None
        row, secret = service_clients.create(created_by=by, **validated_data)
        vars(row)["secret"] = secret
        return row

    def update(self, instance: ServiceClient, validated_data: dict[str, Any]) -> ServiceClient:
        """Save the changed fields, and replace the keys if they are others."""
        public_keys = validated_data.pop("public_keys", None)
        row: ServiceClient = super().update(instance, validated_data)
        service_clients.keep_name(row)
        if public_keys is not None and public_keys != row.connection.client.jwks:
            service_clients.replace_keys(row, public_keys)
        return row


@extend_schema_serializer(
    examples=[OpenApiExample("A service client", request_only=True, value={"tenant": "demo", "name": "Nightly report"})]
)
class IssuedServiceClientRow(ServiceClientRow):
    """A service client with a new secret, which is shown only once."""

    secret = serializers.CharField(read_only=True, help_text="The secret; empty for a client that signs.")

    class Meta(ServiceClientRow.Meta):
        fields = (*ServiceClientRow.Meta.fields, "secret")


class ServiceClientDocument(Document, ServiceClientRow):
    """A service client in a tenant's file, which never has a secret.

    A client that signs is described whole, because its keys are public. One that has a secret can only be changed by a
    file: it is created in the admin or the REST API, which show its secret once. One that the file no longer has is
    revoked, and a client that is revoked is not part of a file.
    """

    tenant = status = created_by = None  # type: ignore[assignment]

    class Meta(ServiceClientRow.Meta):
        fields = (*SETTINGS, "expires_at", "public_keys")
        read_only_fields: tuple[str, ...] = ()  # type: ignore[assignment]
        fixed = ()

    @classmethod
    def rows(cls, tenant: Tenant) -> list[ServiceClient]:
        """Return the clients of a tenant, without those that share a name."""
        shared = set(cls.left_out(tenant))
        rows = _service_clients(tenant).select_related("tenant", "toolset", "connection__client")
        return [row for row in rows if row.name not in shared]

    @classmethod
    def left_out(cls, tenant: Tenant) -> list[str]:
        """Return the names that several clients have, which a file can therefore not describe."""
        counts = Counter(_service_clients(tenant).values_list("name", flat=True))
        return sorted(name for name, count in counts.items() if count > 1)

    @classmethod
    def default_of(cls, name: str) -> Any:
        """Return the value of a field that a file leaves out."""
        return None if name == "public_keys" else super().default_of(name)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check also that its toolset will exist, possibly by the same file. Raises ValidationError."""
        public_keys = attrs.pop("connection", {}).get("client", {}).get("jwks")
        attrs = Row.validate(self, attrs)
        if (
            self.instance is None
            and _service_clients(self.context["tenant"]).filter(name=self.context["name"]).exists()
        ):
            raise serializers.ValidationError(SEVERAL)
        toolset = attrs["toolset"]
        if toolset is not None and toolset not in self.context["rows"]["toolsets"]:
            raise serializers.ValidationError({"toolset": [f"there is no toolset with the name {toolset!r}."]})
        if public_keys is None:
            message = "this client signs its requests: its public keys are missing. Write them, or use another name."
        else:
            message = "this client has a secret and no keys. Remove the field, or use another name."
        return {**attrs, "public_keys": self.checked_keys(public_keys, message)}

    def described(self) -> dict[str, Any]:
        """Return what the file says of the row once it is saved."""
        expires_at = self.validated_data["expires_at"]
        text = self.fields["expires_at"].to_representation(expires_at) if expires_at else None
        return self.unusual({**self.validated_data, "expires_at": text})

    def can_apply(self) -> bool:
        """Whether the client exists, or signs."""
        return self.instance is not None or self.validated_data["public_keys"] is not None

    def note(self, plan: Any) -> None:
        """Note a client that somebody has to create, because it has a secret."""
        if not self.can_apply():
            plan.missing_service_clients.append(self.context["name"])

    def save(self, **values: Any) -> Any:
        """Save the client with the toolset of this name, which exists by now."""
        name = self.validated_data["toolset"]
        toolset = Toolset.objects.get(tenant=self.context["tenant"], name=name) if name is not None else None
        return super().save(**values, toolset=toolset)

    def delete(self) -> None:
        """Revoke the client."""
        service_clients.revoke(self.instance)


def _service_clients(tenant: Tenant) -> Any:
    """Return the service clients of a tenant that are not revoked."""
    rows = ServiceClient.objects.filter(tenant=tenant, connection__person=None, connection__client__source="service")
    return rows.filter(revoked_at=None)


# --- Personal tokens ----------------------------------------------------------------------------------------------


class OwnRole(Row):
    """A role in a tenant."""

    tenant = TenantField(read_only=True)

    class Meta:
        model = Membership
        fields = ("tenant", "role")
        read_only_fields = fields


class CurrentUser(serializers.Serializer):
    """The person who sends the request."""

    username = serializers.CharField()
    email = serializers.CharField(allow_blank=True)
    is_superuser = serializers.BooleanField(help_text="Superusers administer the whole hub.")
    login = serializers.ChoiceField([("session", "A browser's session"), ("token", "A personal token")])
    roles = OwnRole(many=True)


class TokenRow(Row):
    """A personal token, without the token itself."""

    class Meta:
        model = PersonalToken
        fields: tuple[str, ...] = ("id", "name", "prefix", "created_at", "expires_at", "last_used_at", "revoked_at")
        read_only_fields = ("prefix", "last_used_at", "revoked_at")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Only accept a session login: a stolen token must not create others. Raises PermissionDenied."""
        if isinstance(self.context["request"].auth, PersonalToken):
            raise PermissionDenied(NEEDS_SESSION)
        return attrs

    def create(self, validated_data: dict[str, Any]) -> PersonalToken:
        """Store a new token. Its value is the attribute `token` of this row only."""
        name, expires_at = validated_data["name"], validated_data.get("expires_at")
        row, token = personal_tokens.issue(self.context["request"].user, name, expires_at=expires_at)
        vars(row)["token"] = token
        return row


class IssuedToken(TokenRow):
    """A new token, with the token itself, which is shown only once."""

    token = serializers.CharField(read_only=True, help_text="The token. It is not shown again.")

    class Meta(TokenRow.Meta):
        fields = (*TokenRow.Meta.fields, "token")
