"""Sign-in of people with SAML 2.0: the request, our metadata, and the verification of a response.

signxml verifies signatures, and an assertion is read only from what it returns. Its conditions are checked here,
exactly. See SAML 2.0 profiles, section 4.1.4.3.
"""

import base64
import re
import secrets
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from xml.sax.saxutils import quoteattr

import orjson
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from tools_app.core.http.documents import DocumentError
from tools_app.identity import single_use
from tools_app.identity.issuers import saml_metadata
from tools_app.identity.issuers.provider import SignInFailed
from tools_app.identity.issuers.saml_metadata import NAMESPACES
from tools_app.models import Issuer

# A form of somebody who is not logged in has at most 64 KiB: see transport/page_guard.
MAX_RESPONSE: Final = 60_000
MAX_ATTRIBUTES: Final = 200
MAX_VALUES: Final = 500
MAX_ID: Final = 300
CLOCK_SKEW: Final = timedelta(seconds=60)
# An assertion is remembered until it expires, so it must not be valid for longer.
MAX_LIFETIME: Final = timedelta(hours=24)
# Of an answer that belongs to no request: nothing but its ID, which is remembered for as long, prevents a replay.
MAX_UNSOLICITED_LIFETIME: Final = timedelta(minutes=10)
# Of a request that was answered, after which no browser has it any more.
REQUEST_LIFETIME: Final = timedelta(minutes=15)
BEARER: Final = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
POST_BINDING: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
TRANSIENT: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
PERSISTENT: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
UNSPECIFIED: Final = "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"
ENTITY: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity"
XMLDSIG_MORE: Final = "http://www.w3.org/2001/04/xmldsig-more#"
SIGNATURE_ALGORITHMS: Final = frozenset(
    XMLDSIG_MORE + name for name in ("rsa-sha256", "rsa-sha384", "rsa-sha512")
) | frozenset(XMLDSIG_MORE + name for name in ("ecdsa-sha256", "ecdsa-sha384", "ecdsa-sha512"))
DIGEST_ALGORITHMS: Final = frozenset(
    {
        "http://www.w3.org/2001/04/xmlenc#sha256",
        "http://www.w3.org/2001/04/xmldsig-more#sha384",
        "http://www.w3.org/2001/04/xmlenc#sha512",
    }
)
EXCLUSIVE_C14N: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
# How a subject ends that is more than the text of a NameID, and how much of the text it shows.
_QUALIFIED: Final = re.compile(r" ~[0-9a-f]{32}\Z")
MAX_SHOWN_NAME: Final = 180
TRANSFORMS: Final = frozenset({"http://www.w3.org/2000/09/xmldsig#enveloped-signature", EXCLUSIVE_C14N})
# What accounts are described by, as identity providers name it.
PROFILE_ATTRIBUTES: Final = {
    "given_name": (
        "given_name",
        "givenName",
        "firstName",
        "urn:oid:2.5.4.42",
        "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/givenname",
    ),
    "family_name": (
        "family_name",
        "surname",
        "sn",
        "lastName",
        "urn:oid:2.5.4.4",
        "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/surname",
    ),
}


class ServiceProvider(NamedTuple):
    """Where the hub receives the answers for an issuer (its ACS URL), and its entity ID."""

    acs_url: str
    entity_id: str


class UnverifiedResponse(NamedTuple):
    """A response that is not verified: its root, and the ID of the request that it names ("" for none)."""

    root: Any
    request_id: str


class AuthnRequest(NamedTuple):
    """Where to send a person, and the ID of the request that the answer has to name."""

    url: str
    request_id: str


class AssertedIdentity(NamedTuple):
    """What a verified response says: the claims of a person, and when their session ends (None: it does not say)."""

    claims: Mapping[str, Any]
    session_end: datetime | None


def begin(issuer: Issuer, sp: ServiceProvider) -> AuthnRequest:
    """Return a request by HTTP-Redirect. Raises SignInFailed."""
    request_id = f"_{secrets.token_hex(20)}"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    url = _metadata(issuer).sign_in_url
    text = (
        f'<samlp:AuthnRequest xmlns:samlp="{NAMESPACES["samlp"]}" xmlns:saml="{NAMESPACES["saml"]}" ID="{request_id}" '
        f'Version="2.0" IssueInstant="{now}" Destination={quoteattr(url)} ProtocolBinding="{POST_BINDING}" '
        f"AssertionConsumerServiceURL={quoteattr(sp.acs_url)}>"
        f"<saml:Issuer>{sp.entity_id}</saml:Issuer></samlp:AuthnRequest>"
    )
    compressor = zlib.compressobj(wbits=-15)
    encoded = base64.b64encode(compressor.compress(text.encode()) + compressor.flush()).decode()
    return AuthnRequest(f"{url}{'&' if '?' in url else '?'}{urlencode({'SAMLRequest': encoded})}", request_id)


def service_provider_metadata(sp: ServiceProvider) -> bytes:
    """Return the hub's own metadata for an issuer."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<md:EntityDescriptor xmlns:md="{NAMESPACES["md"]}" '
        f"entityID={quoteattr(sp.entity_id)}>"
        f'<md:SPSSODescriptor AuthnRequestsSigned="false" WantAssertionsSigned="true" '
        f'protocolSupportEnumeration="{NAMESPACES["samlp"]}"><md:AssertionConsumerService Binding="{POST_BINDING}" '
        f'Location={quoteattr(sp.acs_url)} index="0" isDefault="true"/></md:SPSSODescriptor>'
        f"</md:EntityDescriptor>\n"
    ).encode()


def finish(issuer: Issuer, response: UnverifiedResponse, sp: ServiceProvider) -> AssertedIdentity:
    """Return what a response says of a person, once. That its request is of the same browser was checked before.

    Raises SignInFailed.
    """
    assertion = _verified_assertion(issuer, response.root)
    expires_at = _check_conditions(issuer, response.root, assertion, response.request_id, sp)
    session_end = _session_end(issuer, assertion)
    claims = _claims(issuer, assertion, sp)
    replay_keys = [f"assertion {assertion.get('ID')}"]
    if response.request_id:
        # Longer than the browser keeps it.
        replay_keys.append(f"request {response.request_id}")
        expires_at = max(expires_at, datetime.now(UTC) + REQUEST_LIFETIME)
    try:
        is_first = single_use.use(issuer, replay_keys, expires_at + CLOCK_SKEW)
    except single_use.TooMany:
        raise SignInFailed(f"Too many people of {issuer.name} sign in now. Try again in some minutes.") from None
    if not is_first:
        raise SignInFailed("This answer was used before. Sign in again.")
    return AssertedIdentity(claims, session_end)


def _metadata(issuer: Issuer, *, refresh: bool = False) -> saml_metadata.Metadata:
    try:
        return saml_metadata.read(issuer, refresh=refresh)
    except DocumentError as problem:
        raise SignInFailed(f"{issuer.name} cannot be used: {problem}") from problem


def parse_response(response: str) -> UnverifiedResponse:
    """Return a response as it was sent. Nothing is verified. Raises SignInFailed."""
    if problem := saml_metadata.missing_extra():
        raise SignInFailed(problem)
    if not response or len(response) > MAX_RESPONSE:
        raise SignInFailed(f"The answer is empty, or has more than {MAX_RESPONSE} characters. Try again.")
    try:
        text = base64.b64decode("".join(response.split()), validate=True).strip()
        root = saml_metadata.parse_xml(text, MAX_RESPONSE)
    except (ValueError, DocumentError) as problem:
        raise SignInFailed(f"The answer cannot be read: {problem}") from None
    if root.tag != f"{{{NAMESPACES['samlp']}}}Response" or root.get("Version") != "2.0":
        raise SignInFailed("The answer is no SAML response of version 2.0. Try again.")
    request_id = root.get("InResponseTo", "")
    if len(request_id) > MAX_ID:
        raise SignInFailed("The answer names a request of another length. Try again.")
    return UnverifiedResponse(root, request_id)


def _verified_assertion(issuer: Issuer, root: Any) -> Any:
    """Return the only assertion of a response, as the issuer signed it. Raises SignInFailed."""
    code = root.xpath("string(samlp:Status/samlp:StatusCode/@Value)", namespaces=NAMESPACES)
    if not code.endswith(":status:Success"):
        status = "".join(filter(str.isprintable, code.rpartition(":")[2][:100]))
        raise SignInFailed(
            f"{issuer.name} refused: {status or 'no status'}. Try again, or ask an admin of your company."
        )
    if root.xpath("//saml:EncryptedAssertion", namespaces=NAMESPACES):
        raise SignInFailed(f"{issuer.name} encrypts its assertions. Ask an admin of your company to turn that off.")
    _check_structure(root)
    _check_signatures(issuer, root)
    for refresh in (False, True):  # the provider may sign with a new certificate by now
        assertion = _signed_assertion(root, _metadata(issuer, refresh=refresh).certificates)
        if assertion is not None:
            return assertion
    raise SignInFailed(
        f"The signature of {issuer.name} is of another certificate, or of something else than the assertion."
    )


def _check_structure(root: Any) -> None:
    """Raise SignInFailed unless a response has one assertion, in its place, and no ID twice.

    Otherwise a signature might cover another assertion than the one that is read (signature wrapping).
    """
    count = root.xpath("count(//saml:Assertion)", namespaces=NAMESPACES)
    if count != 1 or root.xpath("count(/samlp:Response/saml:Assertion)", namespaces=NAMESPACES) != 1:
        raise SignInFailed("The answer has to contain one assertion, and nothing around it.")
    ids = root.xpath("//@*[translate(local-name(), 'ID', 'id') = 'id']")
    if len(ids) != len(set(ids)):
        raise SignInFailed("The answer has an ID twice.")


def _check_signatures(issuer: Issuer, root: Any) -> None:
    """Raise SignInFailed unless an assertion has a signature, and each signature is what SAML describes.

    None has a weak algorithm, or transforms that could change what is signed (SAML core, section 5.4).
    """

    def algorithms(name: str) -> set[str]:
        return set(root.xpath(f"//ds:{name}/@Algorithm", namespaces=NAMESPACES))

    if root.xpath("not(saml:Assertion/ds:Signature)", namespaces=NAMESPACES):
        raise SignInFailed(f"The assertion is not signed. The admin of {issuer.name} has to turn on signed assertions.")
    count = len(root.xpath("ds:Signature[1] | saml:Assertion/ds:Signature[1]", namespaces=NAMESPACES))
    if root.xpath(
        "count(//ds:Signature) != $count or count(//ds:Reference) != $count or //ds:Object",
        namespaces=NAMESPACES,
        count=count,
    ):
        raise SignInFailed("A signature of the answer covers something else than the assertion.")
    if not algorithms("SignatureMethod") <= SIGNATURE_ALGORITHMS or not algorithms("DigestMethod") <= DIGEST_ALGORITHMS:
        raise SignInFailed(f"{issuer.name} signs with SHA-1 or another weak algorithm. It has to use SHA-256.")
    if algorithms("CanonicalizationMethod") != {EXCLUSIVE_C14N} or algorithms("Transform") != TRANSFORMS:
        raise SignInFailed("A signature of the answer has transforms that are not accepted.")


def _signed_assertion(root: Any, certificates: Sequence[str]) -> Any | None:
    """Return the assertion as it was signed with a key of these certificates; None if it was not.

    A signature of the whole response, which is optional, has to be right, too. Keys that a response itself names count
    for nothing.
    """
    from lxml import etree  # noqa: PLC0415 - an extra
    from signxml.algorithms import DigestAlgorithm, SignatureMethod  # noqa: PLC0415
    from signxml.exceptions import SignXMLException  # noqa: PLC0415
    from signxml.verifier import SignatureConfiguration, XMLVerifier  # noqa: PLC0415

    result: Any = None
    for element in root.xpath("(. | saml:Assertion)[ds:Signature]", namespaces=NAMESPACES):
        for certificate in map(x509.load_pem_x509_certificate, map(str.encode, certificates)):
            config = SignatureConfiguration(
                location="./" if element is root else f"./{element.tag}/",
                signature_methods=frozenset(map(SignatureMethod, SIGNATURE_ALGORITHMS)),
                digest_algorithms=frozenset(map(DigestAlgorithm, DIGEST_ALGORITHMS)),
                ignore_ambiguous_key_info=True,
                # A certificate stands for its key: its dates mean nothing (SAML metadata interoperability, 2.6.1).
                verification_time=certificate.not_valid_before_utc,
            )
            try:
                result = XMLVerifier().verify(root, x509_cert=certificate, id_attribute="ID", expect_config=config)
            except (SignXMLException, UnsupportedAlgorithm, etree.LxmlError, TypeError, ValueError):
                continue
            if result.signed_xml.tag == element.tag:
                break
        else:
            return None
    return result.signed_xml


def _check_conditions(issuer: Issuer, root: Any, assertion: Any, request_id: str, sp: ServiceProvider) -> datetime:
    """Return when a verified assertion expires. Raises SignInFailed unless it is for this hub, this request and now."""
    _check_sender(issuer, root, assertion, sp)
    audiences = [
        [(node.text or "").strip() for node in group.xpath("saml:Audience", namespaces=NAMESPACES)]
        for group in assertion.xpath("saml:Conditions/saml:AudienceRestriction", namespaces=NAMESPACES)
    ]
    if not audiences or any(sp.entity_id not in group for group in audiences):
        raise SignInFailed("The answer is for another audience. The hub's entity ID at the provider is wrong.")
    if assertion.xpath("not(saml:AuthnStatement)", namespaces=NAMESPACES):
        raise SignInFailed("The answer does not say that you signed in (AuthnStatement).")
    now = datetime.now(UTC)
    expiry_times: list[datetime] = []
    for node in assertion.xpath("saml:Conditions", namespaces=NAMESPACES):
        expiry_times += _expiry_times(node, now)
    confirmations = assertion.xpath(
        f"saml:Subject/saml:SubjectConfirmation[@Method='{BEARER}']/saml:SubjectConfirmationData", namespaces=NAMESPACES
    )
    if len(confirmations) != 1:
        raise SignInFailed("The answer does not say whom it is for (SubjectConfirmation).")
    confirmation = confirmations[0]
    if confirmation.get("Recipient") != sp.acs_url:
        raise SignInFailed("The answer is for another recipient. The ACS URL at the provider is wrong.")
    if not confirmation.get("NotOnOrAfter"):
        raise SignInFailed("The answer does not say until when it is valid (NotOnOrAfter).")
    expiry_times += _expiry_times(confirmation, now)
    request_ids = {root.get("InResponseTo", ""), confirmation.get("InResponseTo", "")}
    if request_ids != {request_id}:
        raise SignInFailed("The answer belongs to another sign-in. Try again.")
    max_lifetime = MAX_LIFETIME if request_id else MAX_UNSOLICITED_LIFETIME
    if min(expiry_times) > now + max_lifetime:
        raise SignInFailed(f"The answer is valid for more than {max_lifetime.total_seconds() / 60:.0f} minutes.")
    return min(expiry_times)


def _check_sender(issuer: Issuer, root: Any, assertion: Any, sp: ServiceProvider) -> None:
    senders = [
        *root.xpath("saml:Issuer", namespaces=NAMESPACES),
        *assertion.xpath("saml:Issuer", namespaces=NAMESPACES),
    ]
    if any((node.text or "").strip() != issuer.issuer or node.get("Format", ENTITY) != ENTITY for node in senders):
        raise SignInFailed("The answer is of another issuer. Try again.")
    if root.get("Destination") not in (None, sp.acs_url):
        raise SignInFailed("The answer was sent to another address than it is for. The ACS URL is wrong.")
    if not 0 < len(assertion.get("ID", "")) <= MAX_ID:
        raise SignInFailed("The answer has no ID.")


def _expiry_times(node: Any, now: datetime) -> list[datetime]:
    """Return when the validity of an element ends, if it says so. Raises SignInFailed unless it is valid now."""
    try:
        not_before, not_on_or_after = (
            [saml_metadata.parse_datetime(node.get(name))] if node.get(name) else []
            for name in ("NotBefore", "NotOnOrAfter")
        )
    except ValueError:
        raise SignInFailed("The answer has a time that cannot be read.") from None
    if any(time > now + CLOCK_SKEW for time in not_before):
        raise SignInFailed("The answer is not valid yet. Check the clocks of the provider and of the hub.")
    if any(time <= now - CLOCK_SKEW for time in not_on_or_after):
        raise SignInFailed("The answer has expired. Sign in again, and check the clocks if this happens each time.")
    return not_on_or_after


def _session_end(issuer: Issuer, assertion: Any) -> datetime | None:
    """Return when the person's session ends at the provider, None if it does not say. Raises SignInFailed if it has."""
    values = assertion.xpath("saml:AuthnStatement/@SessionNotOnOrAfter", namespaces=NAMESPACES)
    try:
        end_times = [saml_metadata.parse_datetime(text) for text in values]
    except ValueError:
        raise SignInFailed("The answer has a time that cannot be read.") from None
    if any(end <= datetime.now(UTC) for end in end_times):
        raise SignInFailed(f"Your session at {issuer.name} has ended. Sign in there again, then here.")
    return min(end_times, default=None)


def _claims(issuer: Issuer, assertion: Any, sp: ServiceProvider) -> Mapping[str, Any]:
    """Return what a verified assertion says of a person, as claims. Raises SignInFailed."""
    attributes: dict[str, list[str]] = {}
    nodes = assertion.xpath("saml:AttributeStatement/saml:Attribute", namespaces=NAMESPACES)
    for node in nodes[:MAX_ATTRIBUTES]:
        texts = (value.text or "" for value in node.xpath("saml:AttributeValue", namespaces=NAMESPACES)[:MAX_VALUES])
        attributes.setdefault(node.get("Name", ""), []).extend(text.strip() for text in texts)
    claims: dict[str, Any] = dict(attributes)
    for name, candidates in PROFILE_ATTRIBUTES.items():
        claims[name] = next((attributes[candidate][0] for candidate in candidates if attributes.get(candidate)), "")
    claims["preferred_username"] = ""
    claims["email"] = next(iter(attributes.get(issuer.email_attribute, [])), "")
    claims["groups"] = attributes.get(issuer.groups_attribute, [])
    nodes = assertion.xpath("saml:Subject/saml:NameID", namespaces=NAMESPACES)
    # The text of one that the provider itself gave for this hub: a directory may know a person by it.
    is_unqualified = nodes and not any(_qualifiers(issuer, nodes[0], sp))
    claims["name_id"] = (nodes[0].text or "").strip() if is_unqualified else ""
    claims["sub"] = _subject(issuer, assertion, attributes, sp)
    return claims


def _subject(issuer: Issuer, assertion: Any, attributes: Mapping[str, list[str]], sp: ServiceProvider) -> str:
    """Return the attribute or the NameID that says who the person is. Raises SignInFailed.

    The same text with another format or qualifier is another person (SAML core, sections 2.2.2 and 8.3). A persistent
    one of the provider itself for this hub is the text alone; others end with a digest of all that identifies them.
    """
    if issuer.subject_attribute:
        values = attributes.get(issuer.subject_attribute, [])
        if len(values) != 1 or not values[0]:
            raise SignInFailed(f"The answer has no single attribute {issuer.subject_attribute} that says who you are.")
        return values[0]
    nodes = assertion.xpath("saml:Subject/saml:NameID", namespaces=NAMESPACES)
    if not nodes or not (nodes[0].text or "").strip():
        raise SignInFailed("The answer does not say who you are (NameID).")
    if nodes[0].get("Format") == TRANSIENT:
        raise SignInFailed(
            f"{issuer.name} names you differently each time (a transient NameID). It has to use a persistent one."
        )
    text = str(nodes[0].text).strip()
    identifiers = [text, nodes[0].get("Format") or UNSPECIFIED, *_qualifiers(issuer, nodes[0], sp)]
    if identifiers == [text, PERSISTENT, "", ""] and not _QUALIFIED.search(text):
        return text
    return f"{text[:MAX_SHOWN_NAME]} ~{sha256(orjson.dumps(identifiers)).hexdigest()[:32]}"


def _qualifiers(issuer: Issuer, node: Any, sp: ServiceProvider) -> list[str]:
    """Return the qualifiers of a NameID, "" for those that are the provider and the hub, as if they were left out."""
    defaults = {"NameQualifier": issuer.issuer, "SPNameQualifier": sp.entity_id}
    qualifiers = {name: node.get(name, "") for name in defaults}
    return ["" if qualifiers[name] == defaults[name] else qualifiers[name] for name in defaults]
