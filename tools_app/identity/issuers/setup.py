"""Issuers as people set them up: checks before saving, and a trial of the rules on a token."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.core.exceptions import ValidationError

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core.http.documents import DocumentError
from tools_app.identity.issuers import configuration, direct, provider, saml_metadata, tokens
from tools_app.identity.oauth import workloads
from tools_app.identity.people import directory, people, provisioning
from tools_app.identity.people.rules import NoMatchingRule, Rule
from tools_app.models import Directory, DirectoryGroup, Issuer, IssuerProtocol, IssuerUse

MAX_ISSUERS: Final = 20
# With another value of one of these, an issuer is another provider, for which nothing of the former one is.
PROVIDER_FIELDS: Final = ("issuer", "protocol")


class RuleTrial(NamedTuple):
    """What the rules of an issuer make of a token: its claims, the rule that fits, and what is wrong with the token."""

    claims: Mapping[str, Any]
    rule: Rule | None
    problem: str


def check(issuer: Issuer, secret: str = "") -> None:
    """Check an issuer that is saved next with a new client secret, if there is one, and that its keys can be read.

    Raises ValidationError.
    """
    issuer.clean_fields()
    check_settings(issuer)
    stored = Issuer.objects.filter(pk=issuer.pk).exclude(ciphertext=None).first()
    needs_secret = issuer.use == IssuerUse.PEOPLE and issuer.protocol == IssuerProtocol.OIDC
    if stored is not None and needs_secret and not secret and _is_moved(stored, issuer):
        raise ValidationError({"secret": f"Enter the client secret again: the stored one is for {stored.issuer}."})
    others = Issuer.objects.filter(tenant=issuer.tenant_id).exclude(pk=issuer.pk)
    if others.filter(name=issuer.name).exists():
        raise ValidationError({"name": "Another issuer has this name."})
    if others.count() >= MAX_ISSUERS:
        raise ValidationError(f"A tenant has at most {MAX_ISSUERS} issuers.")
    if not issuer.is_active:
        return
    field = "issuer"
    try:
        if issuer.protocol == IssuerProtocol.SAML:
            field = "metadata_url" if issuer.metadata_url else "metadata"
            saml_metadata.read(issuer)
        else:
            configuration.keys(issuer.issuer, issuer.tenant.allowed_networks)
    except DocumentError as problem:
        text = "Its configuration could not be read" if field == "issuer" else "The metadata could not be used"
        raise ValidationError({field: f"{text}: {problem}"}) from problem


def check_settings(issuer: Issuer) -> None:
    """Check the settings of an issuer together, and that its tenant has it once. Raises ValidationError."""
    issuer.clean()
    if issuer.protocol == IssuerProtocol.SAML:
        if problem := configuration.url_problem(issuer.metadata_url.partition("?")[0]) if issuer.metadata_url else "":
            raise ValidationError({"metadata_url": problem})
        try:
            saml_metadata.pem_certificates(issuer.certificates)
        except DocumentError as invalid:
            raise ValidationError({"certificates": str(invalid)}) from invalid
        if missing := saml_metadata.missing_extra():
            raise ValidationError({"protocol": missing})
    elif problem := configuration.url_problem(issuer.issuer):
        raise ValidationError({"issuer": problem})
    same = Issuer.objects.filter(tenant=issuer.tenant_id, issuer=issuer.issuer, use=issuer.use)
    if same.exclude(pk=issuer.pk).exists():
        raise ValidationError({"issuer": "This issuer is set up already. Change it instead."})


def save(issuer: Issuer, *, secret: str = "", fields: Sequence[str] | None = None) -> None:
    """Store an issuer, or these fields of one, with a new client secret, if there is one, and apply what it says.

    An issuer with another URL is another provider. It gets neither the client secret and the refresh tokens of the
    former one, nor the accounts of its people, its directory and its workloads, which end.
    """
    with change_log_transaction():
        stored = Issuer.objects.select_for_update(of=("self",)).filter(pk=issuer.pk).first()
        is_moved = stored is not None and _is_moved(stored, issuer)
        if is_moved:
            people.end_all(issuer)
            Directory.objects.filter(issuer=issuer).delete()
            DirectoryGroup.objects.filter(issuer=issuer).delete()
            workloads.delete_all(issuer)
        if secret or is_moved:
            provider.seal_secret(issuer, secret)
            fields = [*fields, "ciphertext"] if fields is not None else None
        issuer.save(update_fields=fields)
        apply_changes(issuer)


def _is_moved(stored: Issuer, issuer: Issuer) -> bool:
    return any(getattr(stored, name) != getattr(issuer, name) for name in PROVIDER_FIELDS)


def apply_changes(issuer: Issuer) -> None:
    """Apply an issuer that was saved to the people and workloads that came from it. Call it in the same transaction."""
    provisioning.link_all(issuer)
    people.apply_rules(issuer)
    workloads.end_tokens(issuer)


def delete(issuer: Issuer) -> None:
    """Delete an issuer, with the access of the people and workloads that came from it."""
    with change_log_transaction():
        # Before its people: a sign-in at this moment locks it first, too.
        Issuer.objects.select_for_update(of=("self",)).filter(pk=issuer.pk).values_list("pk").first()
        people.end_all(issuer)
        workloads.end_all(issuer)
        issuer.delete()


def try_rules(issuer: Issuer, token: str, hub_url: str) -> RuleTrial:
    """Return what the rules make of a token, valid or not. Raises InvalidToken for a text that is no token.

    `hub_url` is the hub's own address.
    """
    if issuer.protocol == IssuerProtocol.SAML:
        raise tokens.InvalidToken("Answers of SAML cannot be tried: sign in, and see Sign-ins.")
    header, claims = tokens.decode_unverified(token)
    problem = ""
    try:
        if issuer.use == IssuerUse.DIRECT:
            direct.check_type(header, claims)
        audiences, client_id = [issuer.audience or hub_url], ""
        if issuer.use == IssuerUse.PEOPLE:
            audiences, client_id = [issuer.client_id], issuer.client_id
        elif issuer.use == IssuerUse.DIRECT:
            audiences = direct.accepted_audiences(issuer, hub_url)
        tokens.verify(issuer, token, audiences, authorized_party=client_id)
    except (tokens.InvalidToken, direct.TokenRejected) as invalid:
        problem = str(invalid)
    try:
        return RuleTrial(claims, people.rule_of(issuer, directory.entry_for(issuer, claims), claims), problem)
    except NoMatchingRule as unfit:
        return RuleTrial(claims, None, f"{unfit} {problem}".strip())
