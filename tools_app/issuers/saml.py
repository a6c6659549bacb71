"""Sign-in of people with SAML 2.0: the request, our metadata, and the verification of a response.

python3-saml verifies signatures and what they cover; the conditions of an assertion are checked here, exactly. See SAML
2.0 profiles, section 4.1.4.3.
"""

import base64
import secrets
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from xml.sax.saxutils import quoteattr

from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.catalog.http.documents import Unreadable
from tools_app.issuers import saml_metadata
from tools_app.issuers.provider import SignInFailed
from tools_app.issuers.saml_metadata import NAMES
from tools_app.models import Issuer
from tools_app.models.ids import new_id

# A form of somebody who is not logged in has at most 64 KiB: see transport/page_guard.
MAX_RESPONSE: Final = 60_000
MAX_ATTRIBUTES: Final = 200
MAX_VALUES: Final = 500
MAX_ID: Final = 300
SKEW: Final = timedelta(seconds=60)
# An assertion is remembered until it expires, so it must not be valid for longer.
MAX_LIFETIME: Final = timedelta(hours=24)
# Of an answer that belongs to no request: nothing but its ID, which is remembered for as long, prevents a replay.
MAX_UNASKED_LIFETIME: Final = timedelta(minutes=10)
BEARER: Final = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
POST: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
TRANSIENT: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
ENTITY: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity"
SIGNED: Final = "{urn:oasis:names:tc:SAML:2.0:assertion}Assertion"
XMLDSIG: Final = "http://www.w3.org/2001/04/xmldsig-more#"
SIGNATURES: Final = frozenset(XMLDSIG + name for name in ("rsa-sha256", "rsa-sha384", "rsa-sha512")) | frozenset(
    XMLDSIG + name for name in ("ecdsa-sha256", "ecdsa-sha384", "ecdsa-sha512")
)
DIGESTS: Final = frozenset(
    {
        "http://www.w3.org/2001/04/xmlenc#sha256",
        "http://www.w3.org/2001/04/xmldsig-more#sha384",
        "http://www.w3.org/2001/04/xmlenc#sha512",
    }
)
CANONICAL: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
TRANSFORMS: Final = frozenset({"http://www.w3.org/2000/09/xmldsig#enveloped-signature", CANONICAL})
# What accounts are described by, as identity providers name it.
PROFILE: Final = {
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


class Place(NamedTuple):
    """Where the hub receives the answers for an issuer (its ACS URL), and its entity ID."""

    answer_url: str
    entity_id: str


class Answer(NamedTuple):
    """A response that is not verified: its XML, its root, and the ID of the request that it names ("" for none)."""

    text: bytes
    root: Any
    request_id: str


class Asked(NamedTuple):
    """Where to send a person, and the ID of the request that the answer has to name."""

    url: str
    request_id: str


def begin(issuer: Issuer, place: Place) -> Asked:
    """Return a request by HTTP-Redirect. Raises SignInFailed."""
    request_id = f"_{secrets.token_hex(20)}"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    url = _metadata(issuer).sign_in_url
    text = (
        f'<samlp:AuthnRequest xmlns:samlp="{NAMES["samlp"]}" xmlns:saml="{NAMES["saml"]}" ID="{request_id}" '
        f'Version="2.0" IssueInstant="{now}" Destination={quoteattr(url)} ProtocolBinding="{POST}" '
        f"AssertionConsumerServiceURL={quoteattr(place.answer_url)}>"
        f"<saml:Issuer>{place.entity_id}</saml:Issuer></samlp:AuthnRequest>"
    )
    packer = zlib.compressobj(wbits=-15)
    packed = base64.b64encode(packer.compress(text.encode()) + packer.flush()).decode()
    return Asked(f"{url}{'&' if '?' in url else '?'}{urlencode({'SAMLRequest': packed})}", request_id)


def our_metadata(place: Place) -> bytes:
    """Return the hub's own metadata for an issuer."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<md:EntityDescriptor xmlns:md="{NAMES["md"]}" '
        f"entityID={quoteattr(place.entity_id)}>"
        f'<md:SPSSODescriptor AuthnRequestsSigned="false" WantAssertionsSigned="true" '
        f'protocolSupportEnumeration="{NAMES["samlp"]}"><md:AssertionConsumerService Binding="{POST}" '
        f'Location={quoteattr(place.answer_url)} index="0" isDefault="true"/></md:SPSSODescriptor>'
        f"</md:EntityDescriptor>\n"
    ).encode()


def finish(issuer: Issuer, answer: Answer, place: Place) -> Mapping[str, Any]:
    """Return the claims of a response, once. That its request is of the same browser was checked before.

    Raises SignInFailed.
    """
    assertion = _verified(issuer, answer.text, answer.root)
    expires_at = _check(issuer, answer.root, assertion, answer.request_id, place)
    claims = _claims(issuer, assertion)
    used = sha256(f"{issuer.pk}\n{assertion.get('ID')}".encode()).hexdigest()
    limit = ConcurrencyLimit("issuer", "assertions", 1, f"saml:assertion:{used}")
    seconds = (expires_at + SKEW - datetime.now(UTC)).total_seconds()
    if limits.hold_here([limit], str(new_id()), seconds) is not None:
        raise SignInFailed("This answer was used before. Sign in again.")
    return claims


def _metadata(issuer: Issuer, *, again: bool = False) -> saml_metadata.Metadata:
    try:
        return saml_metadata.read(issuer, again=again)
    except Unreadable as problem:
        raise SignInFailed(f"{issuer.name} cannot be used: {problem}") from problem


def parsed(response: str) -> Answer:
    """Return a response as it was sent. Nothing is verified. Raises SignInFailed."""
    if problem := saml_metadata.missing_extra():
        raise SignInFailed(problem)
    if not response or len(response) > MAX_RESPONSE:
        raise SignInFailed(f"The answer is empty, or has more than {MAX_RESPONSE} characters. Try again.")
    try:
        text = base64.b64decode("".join(response.split()), validate=True).strip()
        root = saml_metadata.root_of(text, MAX_RESPONSE)
    except (ValueError, Unreadable) as problem:
        raise SignInFailed(f"The answer cannot be read: {problem}") from None
    if root.tag != f"{{{NAMES['samlp']}}}Response":
        raise SignInFailed("The answer is no SAML response. Try again.")
    request_id = root.get("InResponseTo", "")
    if len(request_id) > MAX_ID:
        raise SignInFailed("The answer names a request of another length. Try again.")
    return Answer(text, root, request_id)


def _verified(issuer: Issuer, text: bytes, root: Any) -> Any:
    """Return the only assertion of a response, which is signed by the issuer. Raises SignInFailed."""
    code = root.xpath("string(samlp:Status/samlp:StatusCode/@Value)", namespaces=NAMES)
    if not code.endswith(":status:Success"):
        said = "".join(filter(str.isprintable, code.rpartition(":")[2][:100]))
        raise SignInFailed(f"{issuer.name} refused: {said or 'no status'}. Try again, or ask an admin of your company.")
    if root.xpath("//saml:EncryptedAssertion", namespaces=NAMES):
        raise SignInFailed(f"{issuer.name} encrypts its assertions. Ask an admin of your company to turn that off.")
    _check_form(root)
    _check_algorithms(issuer, root)
    problem = _signature_problem(_metadata(issuer), text)
    if problem:
        # The provider may sign with a new certificate by now.
        problem = _signature_problem(_metadata(issuer, again=True), text)
    if problem:
        raise SignInFailed(f"The signature of {issuer.name} cannot be verified: {problem}")
    return root.xpath("/samlp:Response/saml:Assertion", namespaces=NAMES)[0]


def _check_form(root: Any) -> None:
    """Raise SignInFailed unless a response has one assertion, in its place, and no ID twice.

    Otherwise a signature might cover another assertion than the one that is read (signature wrapping).
    """
    everywhere = root.xpath("count(//saml:Assertion)", namespaces=NAMES)
    if everywhere != 1 or root.xpath("count(/samlp:Response/saml:Assertion)", namespaces=NAMES) != 1:
        raise SignInFailed("The answer has to contain one assertion, and nothing around it.")
    ids = root.xpath("//@*[translate(local-name(), 'ID', 'id') = 'id']")
    if len(ids) != len(set(ids)):
        raise SignInFailed("The answer has an ID twice.")


def _check_algorithms(issuer: Issuer, root: Any) -> None:
    """Raise SignInFailed for signatures with weak algorithms, or with transforms that could change what is signed."""
    for signature in root.xpath("//ds:Signature", namespaces=NAMES):
        used = {
            name: signature.xpath(f"ds:SignedInfo{path}/@Algorithm", namespaces=NAMES)
            for name, path in {
                "canonical": "/ds:CanonicalizationMethod",
                "method": "/ds:SignatureMethod",
                "digest": "/ds:Reference/ds:DigestMethod",
                "transforms": "/ds:Reference/ds:Transforms/ds:Transform",
            }.items()
        }
        if len(signature.xpath("ds:SignedInfo/ds:Reference", namespaces=NAMES)) != 1 or signature.xpath(
            "ds:Object", namespaces=NAMES
        ):
            raise SignInFailed("A signature of the answer covers something else than the assertion.")
        if not set(used["method"]) <= SIGNATURES or not set(used["digest"]) <= DIGESTS:
            raise SignInFailed(f"{issuer.name} signs with SHA-1 or another weak algorithm. It has to use SHA-256.")
        if set(used["canonical"]) != {CANONICAL} or set(used["transforms"]) != TRANSFORMS:
            raise SignInFailed("A signature of the answer has transforms that are not accepted.")


def _signature_problem(known: saml_metadata.Metadata, text: bytes) -> str:
    """Return why the assertion is not signed by one of the certificates; "" if it is."""
    import xmlsec  # noqa: PLC0415 - an extra
    from onelogin.saml2.errors import OneLogin_Saml2_Error as Failed  # noqa: PLC0415
    from onelogin.saml2.errors import OneLogin_Saml2_ValidationError as Invalid  # noqa: PLC0415
    from onelogin.saml2.response import OneLogin_Saml2_Response as Response  # noqa: PLC0415
    from onelogin.saml2.xml_utils import OneLogin_Saml2_XML as Xml  # noqa: PLC0415

    response = Response(_LibrarySettings(known), base64.b64encode(text).decode())
    if isinstance(Xml.validate_xml(response.document, "saml-schema-protocol-2.0.xsd"), str):
        return "the answer does not have the form of a SAML response."
    try:
        if SIGNED not in response.process_signed_elements():
            return "the assertion is not signed. Its admin has to turn on signed assertions."
        response.is_valid({}, raise_exceptions=True)
    except (Invalid, Failed, xmlsec.Error):
        return "it is of another certificate, or of something else than the assertion."
    return ""


class _LibrarySettings:
    """What the library asks for when it verifies signatures and nothing else."""

    def __init__(self, known: saml_metadata.Metadata) -> None:
        self._known = known

    def get_idp_data(self) -> dict[str, Any]:
        return {"entityId": self._known.entity_id, "x509certMulti": {"signing": self._known.certificates}}

    def get_sp_data(self) -> dict[str, Any]:
        return {"entityId": ""}

    def get_security_data(self) -> dict[str, Any]:
        return {"rejectDeprecatedAlgorithm": True}

    def get_idp_cert(self) -> None:
        return None

    def is_strict(self) -> bool:
        return False

    def is_debug_active(self) -> bool:
        return False


def _check(issuer: Issuer, root: Any, assertion: Any, request_id: str, place: Place) -> datetime:
    """Return when a verified assertion expires. Raises SignInFailed unless it is for this hub, this request and now."""
    _check_sender(issuer, root, assertion, place)
    audiences = [
        [(node.text or "").strip() for node in group.xpath("saml:Audience", namespaces=NAMES)]
        for group in assertion.xpath("saml:Conditions/saml:AudienceRestriction", namespaces=NAMES)
    ]
    if not audiences or any(place.entity_id not in group for group in audiences):
        raise SignInFailed("The answer is for another audience. The hub's entity ID at the provider is wrong.")
    if assertion.xpath("not(saml:AuthnStatement)", namespaces=NAMES):
        raise SignInFailed("The answer does not say that you signed in (AuthnStatement).")
    now = datetime.now(UTC)
    ends: list[datetime] = []
    for node in assertion.xpath("saml:Conditions", namespaces=NAMES):
        ends += _ends_of(node, now)
    confirmations = assertion.xpath(
        f"saml:Subject/saml:SubjectConfirmation[@Method='{BEARER}']/saml:SubjectConfirmationData", namespaces=NAMES
    )
    if len(confirmations) != 1:
        raise SignInFailed("The answer does not say whom it is for (SubjectConfirmation).")
    confirmed = confirmations[0]
    if confirmed.get("Recipient") != place.answer_url:
        raise SignInFailed("The answer is for another recipient. The ACS URL at the provider is wrong.")
    if not confirmed.get("NotOnOrAfter"):
        raise SignInFailed("The answer does not say until when it is valid (NotOnOrAfter).")
    ends += _ends_of(confirmed, now)
    named = {root.get("InResponseTo", ""), confirmed.get("InResponseTo", "")}
    if named != {request_id}:
        raise SignInFailed("The answer belongs to another sign-in. Try again.")
    most = MAX_LIFETIME if request_id else MAX_UNASKED_LIFETIME
    if min(ends) > now + most:
        raise SignInFailed(f"The answer is valid for more than {most.total_seconds() / 60:.0f} minutes.")
    return min(ends)


def _check_sender(issuer: Issuer, root: Any, assertion: Any, place: Place) -> None:
    senders = [*root.xpath("saml:Issuer", namespaces=NAMES), *assertion.xpath("saml:Issuer", namespaces=NAMES)]
    if any((node.text or "").strip() != issuer.issuer or node.get("Format", ENTITY) != ENTITY for node in senders):
        raise SignInFailed("The answer is of another issuer. Try again.")
    if root.get("Destination") not in (None, place.answer_url):
        raise SignInFailed("The answer was sent to another address than it is for. The ACS URL is wrong.")
    if not 0 < len(assertion.get("ID", "")) <= MAX_ID:
        raise SignInFailed("The answer has no ID.")


def _ends_of(node: Any, now: datetime) -> list[datetime]:
    """Return when the validity of an element ends, if it says so. Raises SignInFailed unless it is valid now."""
    try:
        begins, ends = (
            [saml_metadata.moment_of(node.get(name))] if node.get(name) else []
            for name in ("NotBefore", "NotOnOrAfter")
        )
    except ValueError:
        raise SignInFailed("The answer has a time that cannot be read.") from None
    if any(moment > now + SKEW for moment in begins):
        raise SignInFailed("The answer is not valid yet. Check the clocks of the provider and of the hub.")
    if any(moment <= now - SKEW for moment in ends):
        raise SignInFailed("The answer has expired. Sign in again, and check the clocks if this happens each time.")
    return ends


def _claims(issuer: Issuer, assertion: Any) -> Mapping[str, Any]:
    """Return what a verified assertion says of a person, as claims. Raises SignInFailed."""
    said: dict[str, list[str]] = {}
    found = assertion.xpath("saml:AttributeStatement/saml:Attribute", namespaces=NAMES)
    for node in found[:MAX_ATTRIBUTES]:
        texts = (value.text or "" for value in node.xpath("saml:AttributeValue", namespaces=NAMES)[:MAX_VALUES])
        said.setdefault(node.get("Name", ""), []).extend(text.strip() for text in texts)
    claims: dict[str, Any] = dict(said)
    for name, candidates in PROFILE.items():
        claims[name] = next((said[one][0] for one in candidates if said.get(one)), "")
    claims["preferred_username"] = ""
    claims["email"] = next(iter(said.get(issuer.email_attribute, [])), "")
    claims["groups"] = said.get(issuer.groups_attribute, [])
    claims["sub"] = _subject(issuer, assertion, said)
    return claims


def _subject(issuer: Issuer, assertion: Any, said: Mapping[str, list[str]]) -> str:
    if issuer.subject_attribute:
        values = said.get(issuer.subject_attribute, [])
        if len(values) != 1 or not values[0]:
            raise SignInFailed(f"The answer has no single attribute {issuer.subject_attribute} that says who you are.")
        return values[0]
    nodes = assertion.xpath("saml:Subject/saml:NameID", namespaces=NAMES)
    if not nodes or not (nodes[0].text or "").strip():
        raise SignInFailed("The answer does not say who you are (NameID).")
    if nodes[0].get("Format") == TRANSIENT:
        raise SignInFailed(
            f"{issuer.name} names you differently each time (a transient NameID). It has to use a persistent one."
        )
    return str(nodes[0].text).strip()
