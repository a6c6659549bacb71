"""Access tokens for signed assertions of a tenant's issuer (RFC 7523, section 2.1).

An identity assertion (ID-JAG, SEP-990) is about a person, and about an application that the company manages: it is
connected without asking the person. It counts once, for minutes, and from a client that proves who it is. Every other
token is that of a workload, such as a job of GitHub Actions or a pod of Kubernetes, which needs no client and no
secret, and may use its token again while that is valid. Neither gets a refresh token.
"""

from collections.abc import Mapping
from typing import Any, Final

from authlib.oauth2.rfc6749 import (
    BaseGrant,
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    TokenEndpointMixin,
)
from authlib.oauth2.rfc6749.hooks import hooked
from django.db import transaction

from tools_app.audit.changes.changes import Actor, change_log_transaction, recording_as
from tools_app.identity.authorization.server import (
    JWT_BEARER,
    ClientAdapter,
    InvalidTargetError,
    issue_tokens,
    issuer_of,
    resource_of,
)
from tools_app.identity.issuers import tokens as issuer_tokens
from tools_app.identity.oauth import attempts, clients, connections, policies, scopes, tokens, workloads
from tools_app.identity.people import people, rules
from tools_app.identity.principal import client_ip_of
from tools_app.models import ClientDecision, ClientSource, Connection, Issuer, IssuerUse, OAuthClient, SignInStep, Via

ID_JAG: Final = "oauth-id-jag+jwt"
# Of an identity assertion.
MAX_LIFETIME_SECONDS: Final = 600
USER_CLIENT_SOURCES: Final = (ClientSource.DOCUMENT, ClientSource.DYNAMIC)


class AssertionGrant(BaseGrant, TokenEndpointMixin):
    """An assertion in place of a code."""

    GRANT_TYPE = JWT_BEARER
    # Of the client of an identity assertion, which anybody who finds it could use otherwise.
    TOKEN_ENDPOINT_AUTH_METHODS = (*clients.SECRET_METHODS, clients.SIGNED)

    def validate_token_request(self) -> None:
        """Find what the assertion is about. Raises an OAuth2Error."""
        assertion = self.request.form.get("assertion", "")
        if not assertion:
            raise InvalidRequestError("Send an assertion.")
        try:
            header, claims = issuer_tokens.decode_unverified(assertion)
        except issuer_tokens.InvalidToken as problem:
            raise InvalidGrantError(str(problem)) from None
        is_identity_assertion = str(header.get("typ", "")).lower() == ID_JAG
        if is_identity_assertion:
            self.request.client = self.authenticate_token_endpoint_client()
        self._scope_limits: list[str] = []
        self._rule = ""
        self._workload_issuer: Issuer | None = None
        self._connection = (self._person_connection if is_identity_assertion else self._workload_connection)(
            assertion, claims
        )

    @hooked
    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        """Return an access token."""
        row = self._connection
        scope = scopes.granted(row.tenant, self.request.payload.scope)
        for limit in self._scope_limits:
            scope = scopes.narrowed(scope, limit)
        if not scope:
            raise InvalidScopeError("The assertion and the person allow none of these scopes.")
        return issue_tokens(self.request, row, lambda: self._issue(row, scope), reason=self._rule)

    def _person_connection(self, assertion: str, claims: Mapping[str, Any]) -> Connection:
        """Return the connection of the person whom an identity assertion names, with the client that sent it."""
        client = self.request.client.row
        issuer = self._find_issuer(
            claims, str(claims.get("resource", "")), use=IssuerUse.PEOPLE, accepts_assertions=True
        )
        verified = self._verify(issuer, assertion, kind=ID_JAG)
        if verified.get("client_id") != client.client_id or client.source not in USER_CLIENT_SOURCES:
            raise self._record_rejection(issuer, "The assertion is for another client.", client)
        if policies.decision_on(issuer.tenant, client, "") is not ClientDecision.ALLOW:
            raise self._record_rejection(issuer, f"{issuer.tenant.name} does not allow this client.", client)
        try:
            issuer_tokens.check_first_use(issuer, verified, "identity assertion ")
        except issuer_tokens.InvalidToken as problem:
            raise self._record_rejection(issuer, str(problem), client) from None
        try:
            with recording_as(Actor(None, Via.SIGN_IN, client_ip_of(self.request.page), issuer.name)):
                identity = people.sign_in(issuer, verified, is_assertion=True)
                with change_log_transaction():
                    row = connections.allow_by_assertion(issuer.tenant, identity.person, client)
            self._rule = people.rule_used(identity, {**identity.claims, **verified})
        except people.SignInRejected as problem:
            raise self._record_rejection(issuer, str(problem), client) from None
        if isinstance(verified.get("scope"), str):
            self._scope_limits.append(verified["scope"])
        if connections.was_asked_for(row):
            self._scope_limits.append(row.scope)
        return row

    def _workload_connection(self, assertion: str, claims: Mapping[str, Any]) -> Connection:
        """Return the connection of the workload that an assertion names."""
        issuer = self._find_issuer(claims, "", use=IssuerUse.WORKLOADS)
        verified = self._verify(issuer, assertion)
        subject = workloads.subject_of(verified)
        if not subject:
            raise self._record_rejection(issuer, "The assertion has no subject (sub).")
        try:
            with recording_as(Actor(None, Via.SIGN_IN, client_ip_of(self.request.page), issuer.name)):
                rule = rules.find(issuer, verified)
                row = workloads.connect(issuer, subject, rule)
            self._rule = rules.description(issuer, rule)
        except rules.NoMatchingRule as problem:
            raise self._record_rejection(issuer, str(problem).replace("your ", "its ")) from None
        except workloads.WorkloadRejected as problem:
            raise self._record_rejection(issuer, str(problem)) from None
        self.request.client = ClientAdapter(row.client)
        self._workload_issuer = issuer
        return row

    def _issue(self, row: Connection, scope: str) -> tokens.Pair:
        """Return an access token. Raises InvalidGrantError if the rules of a workload changed meanwhile."""
        issuer = self._workload_issuer
        if issuer is None:
            with transaction.atomic():
                tokens.lock(row)
                if connections.was_asked_for(row) and not scopes.covers(row.scope, scope):
                    raise tokens.TokenRevoked
                return tokens.issue_access(row, scope)
        try:
            with transaction.atomic():
                workloads.lock(issuer)
                return tokens.issue_access(row, scope)
        except workloads.WorkloadRejected as problem:
            raise self._record_rejection(issuer, str(problem)) from None

    def _find_issuer(self, claims: Mapping[str, Any], resource: str, **filters: Any) -> Issuer:
        """Return the issuer in the tenant that the request is for. Raises InvalidTargetError, InvalidGrantError.

        Which other tenants have the same issuer makes no difference, so the request has to name its tenant.
        """
        form = self.request.form.copy()
        if resource:
            form.setlist("resource", [*form.getlist("resource"), resource])
        slug = resource_of(self.request.page, form).slug
        if not slug:
            raise InvalidTargetError("Name the endpoint of the tenant, such as /t/acme/mcp, by resource.")
        rows = Issuer.objects.select_related("tenant").filter(
            issuer=str(claims.get("iss", "")), is_active=True, tenant__is_active=True, tenant__slug=slug, **filters
        )
        issuer = rows.first()
        if issuer is None:
            reason = "The tenant accepts no assertions of this issuer for this."
            attempts.record(self.request.page, SignInStep.REJECTED, reason)
            raise InvalidGrantError(reason)
        return issuer

    def _verify(self, issuer: Issuer, assertion: str, kind: str = "") -> Mapping[str, Any]:
        issuer_url = issuer_of(self.request.page)
        audiences = {issuer.audience} if issuer.audience and not kind else {issuer_url, f"{issuer_url}/"}
        try:
            lifetime = MAX_LIFETIME_SECONDS if kind else issuer_tokens.MAX_LIFETIME_SECONDS
            return issuer_tokens.verify(issuer, assertion, audiences, token_type=kind, max_lifetime=lifetime)
        except issuer_tokens.UnverifiedToken as problem:
            self._record_rejection(issuer, str(problem))
            raise InvalidGrantError(issuer_tokens.UNVERIFIED_SIGNATURE) from None
        except issuer_tokens.InvalidToken as problem:
            raise self._record_rejection(issuer, str(problem)) from None

    def _record_rejection(self, issuer: Issuer, reason: str, client: OAuthClient | None = None) -> InvalidGrantError:
        recorded_reason = f"{issuer.name}: {reason}"
        attempts.record(self.request.page, SignInStep.REJECTED, recorded_reason, client=client, tenant=issuer.tenant)
        return InvalidGrantError("".join(letter for letter in reason if " " <= letter <= "~" and letter not in '"\\'))
