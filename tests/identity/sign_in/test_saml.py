"""Sign-in with SAML 2.0: accepted responses, and rejected ones with their messages."""

import base64
import re
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from lxml import etree
from signxml import CanonicalizationMethod, DigestAlgorithm, SignatureMethod, XMLSigner

from tests.identity.sign_in.provider import RULES
from tests.identity.sign_in.scim import ScimClient
from tools_app.identity import personal_tokens
from tools_app.identity.issuers import directory, saml, setup
from tools_app.identity.oauth import service_clients, tokens
from tools_app.identity.people import validity
from tools_app.models import (
    AccessToken,
    Connection,
    DirectoryUser,
    Identity,
    Issuer,
    Membership,
    SignInEvent,
    SignInStep,
    Tenant,
)

ENTITY = "https://idp.acme.example/entity"
NAMED = "urn:oasis:names:tc:SAML:2.0:nameid-format:"
Pair = tuple[str, str]


@cache
def pair(name: str) -> Pair:
    """A key and its certificate, which has expired: providers seldom replace theirs, and only the key counts."""
    key = rsa.generate_private_key(65537, 2048)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key()).serial_number(1)
    row = (
        built.not_valid_before(now - timedelta(days=2))
        .not_valid_after(now - timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    kinds = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, *kinds).decode()
    return private, row.public_bytes(serialization.Encoding.PEM).decode()


def metadata() -> str:
    body = "".join(pair("idp")[1].splitlines()[1:-1])
    return (
        f'<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata" entityID="{ENTITY}"><IDPSSODescriptor '
        'protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol"><KeyDescriptor use="signing"><KeyInfo '
        f'xmlns="http://www.w3.org/2000/09/xmldsig#"><X509Data><X509Certificate>{body}</X509Certificate></X509Data>'
        '</KeyInfo></KeyDescriptor><SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" '
        'Location="https://idp.acme.example/sso"/></IDPSSODescriptor></EntityDescriptor>'
    )


@pytest.fixture
def issuer(db: None) -> Issuer:
    acme = Tenant.objects.create(slug="acme", name="Acme")
    row = Issuer(tenant=acme, name="Acme", protocol="saml", issuer=ENTITY, metadata=metadata(), rules=RULES)
    setup.check(row)
    row.save()
    return row


def begin_sign_in(browser: Client, issuer: Issuer) -> str:
    """Begin a sign-in; return the ID of the request."""
    url = browser.post(reverse("sign-in-begin", args=["acme", issuer.pk]), {"next": "/docs/"})["Location"]
    packed = parse_qs(urlsplit(url).query)["SAMLRequest"][0]
    return str(etree.fromstring(zlib.decompress(base64.b64decode(packed), -15)).get("ID"))


def at(seconds: int) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class AnySigner(XMLSigner):
    """Signs with SHA-1, too."""

    def check_deprecated_methods(self) -> None:
        pass


def sign(xml: str, signer: str, sha: str = "SHA256", before: str = "<saml:Subject>") -> str:
    """The same with a signature of this signer, where the schema has it."""
    place = f'<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#" Id="placeholder"/>{before}'
    element = etree.fromstring(xml.replace(before, place, 1))
    made = AnySigner(
        signature_algorithm=SignatureMethod[f"RSA_{sha}"],
        digest_algorithm=DigestAlgorithm[sha],
        c14n_algorithm=CanonicalizationMethod.EXCLUSIVE_XML_CANONICALIZATION_1_0,
    )
    key, certificate = pair(signer)
    signed = made.sign(element, key=key, cert=certificate, reference_uri=element.get("ID"), id_attribute="ID")
    return etree.tostring(signed).decode()


def saml_response(row: Issuer, request_id: str, signer: str = "idp", sha: str = "SHA256", **lies: Any) -> str:
    home = "http://testserver/sign-in/saml"
    values = {"acs": f"{home}/{row.pk}/", "audience": f"{home}/{row.pk}/metadata/", "issuer": ENTITY}
    values |= {"ends": at(300), "begins": at(-5), "groups": "mcp-admins", "format": f"{NAMED}persistent", "name": "u1"}
    values |= {"qualifiers": "", "session": "", **lies}
    in_response_to = f' InResponseTo="{request_id}"' if request_id else ""
    assertion = (
        f'<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_{uuid4().hex}" Version="2.0" '
        f'IssueInstant="{at(0)}"><saml:Issuer>{values["issuer"]}</saml:Issuer><saml:Subject><saml:NameID '
        f'Format="{values["format"]}"{values["qualifiers"]}>{values["name"]}</saml:NameID>'
        '<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"><saml:SubjectConfirmationData '
        f'NotOnOrAfter="{values["ends"]}" Recipient="{values["acs"]}"{in_response_to}/>'
        "</saml:SubjectConfirmation></saml:Subject>"
        f'<saml:Conditions NotBefore="{values["begins"]}" NotOnOrAfter="{values["ends"]}"><saml:AudienceRestriction>'
        f"<saml:Audience>{values['audience']}</saml:Audience></saml:AudienceRestriction></saml:Conditions>"
        f'<saml:AuthnStatement AuthnInstant="{at(0)}"{values["session"]}><saml:AuthnContext>'
        "<saml:AuthnContextClassRef>x</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement><saml:AttributeStatement>"
        '<saml:Attribute Name="email"><saml:AttributeValue>ann@acme.example</saml:AttributeValue></saml:Attribute>'
        f'<saml:Attribute Name="groups"><saml:AttributeValue>{values["groups"]}</saml:AttributeValue></saml:Attribute>'
        "</saml:AttributeStatement></saml:Assertion>"
    )
    if signer:
        assertion = sign(assertion, signer, sha)
    return (
        f'<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" ID="_{uuid4().hex}" Version="2.0" '
        f'IssueInstant="{at(0)}"{in_response_to}><samlp:Status><samlp:StatusCode '
        f'Value="urn:oasis:names:tc:SAML:2.0:status:Success"/></samlp:Status>{assertion}</samlp:Response>'
    )


def post_response(browser: Client, issuer: Issuer, xml: str) -> Any:
    return browser.post(
        reverse("sign-in-saml", args=[issuer.pk]), {"SAMLResponse": base64.b64encode(xml.encode()).decode()}
    )


def copy_of(browser: Client) -> Client:
    """Another client with the same cookies."""
    found = Client()
    found.cookies.load({name: morsel.value for name, morsel in browser.cookies.items()})
    return found


def test_a_person_signs_in_once_with_an_answer_and_for_an_hour(issuer: Issuer, client: Client) -> None:
    xml = saml_response(issuer, begin_sign_in(client, issuer))
    response = post_response(client, issuer, xml)
    assert (response.status_code, response["Location"]) == (302, "/docs/")
    assert client.session.get_expiry_age() <= 3600
    assert Membership.objects.get(user__username="ann@acme").role == "admin"
    assert "began in another browser" in post_response(client, issuer, xml).content.decode()
    assert post_response(Client(), issuer, xml).status_code == 403
    Identity.objects.update(
        verified_at=timezone.now() - timedelta(minutes=58), checked_at=timezone.now() - timedelta(minutes=5)
    )
    directory.check(lambda: True)
    assert not Membership.objects.exists()
    assert "valid for an hour" in SignInEvent.objects.get(step=SignInStep.LEFT).reason


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"signer": ""}, "not signed"),
        ({"signer": "other"}, "of another certificate"),
        ({"sha": "SHA1"}, "SHA-1"),
        ({"audience": "https://other.example"}, "another audience"),
        ({"acs": "https://other.example"}, "another recipient"),
        ({"issuer": "https://other.example"}, "another issuer"),
        ({"ends": at(-90)}, "has expired"),
        ({"begins": at(3600)}, "not valid yet"),
        ({"format": f"{NAMED}transient"}, "persistent"),
        ({"groups": "g9"}, "No rule of Acme fits your groups (g9)"),
    ],
)
def test_an_answer_that_is_wrong_is_refused_with_its_reason(
    issuer: Issuer, client: Client, lie: dict[str, str], message: str
) -> None:
    response = post_response(client, issuer, saml_response(issuer, begin_sign_in(client, issuer), **lie))
    assert response.status_code == 403
    assert message in response.content.decode()
    assert message in SignInEvent.objects.get(step=SignInStep.REJECTED).reason
    assert not Membership.objects.exists()


START, END = "<saml:Assertion", "</saml:Assertion>"
ONE = "has to contain one assertion"
WRAPPINGS: dict[str, tuple[Callable[[str, str], str], str]] = {
    # The signed assertion, and a forged one: before it, after it, around it, within it, or in an extension.
    "before": (lambda good, forged: good.replace(START, forged + START, 1), ONE),
    "after": (lambda good, forged: good.replace(END, END + forged, 1), ONE),
    "around": (lambda good, forged: with_assertion(good, forged.replace(END, part(good) + END)), ONE),
    "within": (lambda good, forged: good.replace(END, forged + END, 1), ONE),
    "extension": (
        lambda good, forged: with_assertion(good, forged).replace(
            "<samlp:Status>", f"<samlp:Extensions>{part(good)}</samlp:Extensions><samlp:Status>"
        ),
        ONE,
    ),
    "in the signature": (
        lambda good, forged: with_assertion(
            good,
            with_signature_of(good, forged).replace(
                "</ds:Signature>", f"<ds:Object>{part(good)}</ds:Object></ds:Signature>"
            ),
        ),
        ONE,
    ),
    # The signature alone, on another assertion or of the whole response.
    "signature moved": (
        lambda good, forged: with_assertion(good, with_signature_of(good, forged)),
        "of another certificate",
    ),
    "signature of the response": (
        lambda good, forged: with_assertion(good, forged).replace("<samlp:Status>", f"{signature(good)}<samlp:Status>"),
        "not signed",
    ),
    "signature twice": (
        lambda good, _: good.replace("<samlp:Status>", f"{signature(good)}<samlp:Status>"),
        "of another certificate",
    ),
    "signature of the response by another": (
        lambda good, _: sign(good, "other", before="<samlp:Status>"),
        "of another certificate",
    ),
    "signature elsewhere": (
        lambda good, _: good.replace("</samlp:Status>", f"{signature(good)}</samlp:Status>"),
        "covers something else",
    ),
    "changed": (lambda good, _: good.replace("staff-1", "mcp-admins"), "of another certificate"),
    "ID twice": (lambda good, _: re.sub(' ID="_[0-9a-f]+"', f' ID="{id_of(part(good))}"', good, count=1), "ID twice"),
}


def part(xml: str) -> str:
    return START + xml.partition(START)[2].partition(END)[0] + END


def id_of(xml: str) -> str:
    return xml.partition(' ID="')[2].partition('"')[0]


def signature(xml: str) -> str:
    return "<ds:Signature" + xml.partition("<ds:Signature")[2].partition("</ds:Signature>")[0] + "</ds:Signature>"


def with_assertion(xml: str, other: str) -> str:
    """The response with another assertion in place of its own."""
    return xml.replace(part(xml), other)


def with_signature_of(good: str, forged: str) -> str:
    """The forged assertion with the ID and the signature of the good one."""
    named = forged.replace(id_of(forged), id_of(part(good)))
    return named.replace("</saml:Issuer>", "</saml:Issuer>" + signature(good), 1)


@pytest.mark.parametrize("how", WRAPPINGS)
def test_nobody_comes_in_by_an_assertion_that_the_signature_does_not_cover(
    issuer: Issuer, client: Client, how: str
) -> None:
    wrap, reason = WRAPPINGS[how]
    request = begin_sign_in(client, issuer)
    good, copied = saml_response(issuer, request, groups="staff-1"), copy_of(client)
    forged = part(saml_response(issuer, request, signer=""))
    refused(client, issuer, wrap(good, forged), reason)
    # The wrapped response is valid by itself, with the role that it states.
    assert post_response(copied, issuer, good).status_code == 302
    assert Membership.objects.get().role == "auditor"


def refused(client: Client, issuer: Issuer, xml: str, reason: str) -> None:
    assert reason in post_response(client, issuer, xml).content.decode()
    assert reason in SignInEvent.objects.get(step=SignInStep.REJECTED).reason
    assert not Membership.objects.exists()
    assert client.get("/admin/tools_app/tool/").status_code == 302


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda xml: f"<!DOCTYPE a>{xml}", "has a DTD or entities"),
        (lambda xml: f'<!DOCTYPE a [<!ENTITY e "{"x" * 99}">]>{xml.replace("u1", "&e;")}', "has a DTD or entities"),
        (lambda xml: xml.replace("u1", "&e;"), "It is not XML."),
        (lambda xml: xml + " " * saml.MAX_RESPONSE, "has more than"),
        (lambda xml: "x", "It is not XML."),
        (lambda xml: "", "is empty"),
        (part, "is no SAML response"),
        (lambda xml: xml.replace("status:Success", "status:AuthnFailed"), "refused: AuthnFailed"),
        (lambda xml: re.sub(' InResponseTo="[^"]*"', ' InResponseTo="_other"', xml), "began in another browser"),
        (lambda xml: xml.replace(' InResponseTo="', ' InResponseTo="_other', 1), "began in another browser"),
        (lambda xml: re.sub(' InResponseTo="[^"]*"', "", xml), "Sign-in does not begin at Acme"),
        (lambda xml: re.sub('(<samlp:Response.*?) InResponseTo="[^"]*"', r"\1", xml), "does not begin at Acme"),
    ],
)
def test_an_answer_that_cannot_be_read_or_belongs_to_no_request_is_refused_with_its_reason(
    issuer: Issuer, client: Client, change: Callable[[str], str], reason: str
) -> None:
    refused(client, issuer, change(saml_response(issuer, begin_sign_in(client, issuer))), reason)


def test_an_assertion_for_another_request_of_the_same_browser_is_refused(issuer: Issuer, client: Client) -> None:
    xml = saml_response(issuer, begin_sign_in(client, issuer))
    named = re.sub('InResponseTo="[^"]*"', f'InResponseTo="{begin_sign_in(client, issuer)}"', xml, count=1)
    refused(client, issuer, named, "belongs to another sign-in")


def test_the_whole_answer_may_be_signed_too(issuer: Issuer, client: Client) -> None:
    xml = sign(saml_response(issuer, begin_sign_in(client, issuer)), "idp", before="<samlp:Status>")
    assert post_response(client, issuer, xml).status_code == 302
    assert xml.count("<ds:Signature ") == 2


def test_a_comment_does_not_shorten_the_name_of_a_person(issuer: Issuer, client: Client) -> None:
    """Comments are not signed: with one, the owner of u1.evil could pass for u1."""
    xml = saml_response(issuer, begin_sign_in(client, issuer), name="u1.evil").replace("u1.evil", "u1<!-- -->.evil")
    assert post_response(client, issuer, xml).status_code == 302
    assert Identity.objects.get().subject == "u1.evil"


def test_connections_end_an_hour_after_the_sign_in_unless_a_directory_vouches(issuer: Issuer, client: Client) -> None:
    assert post_response(client, issuer, saml_response(issuer, begin_sign_in(client, issuer))).status_code == 302
    service, _ = service_clients.create(issuer.tenant, "Editor")
    person = Identity.objects.get().person
    Connection.objects.filter(pk=service.connection.pk).update(person=person)
    row = Connection.objects.get()
    Identity.objects.update(verified_at=timezone.now() - timedelta(minutes=50))
    assert 0 < tokens.issue_access(row, "mcp:read").expires_in <= 420
    assert tokens.is_valid(row)
    # Housekeeping has not run.
    AccessToken.objects.update(expires_at=timezone.now() + timedelta(hours=1))
    Identity.objects.update(verified_at=timezone.now() - timedelta(minutes=58))
    assert not tokens.is_valid(row)
    assert not tokens.valid_access_tokens().exists()
    scim = ScimClient(issuer)
    scim.group("mcp-admins", scim.user("ann", externalId="u1"))
    Identity.objects.update(verified_at=timezone.now() - timedelta(minutes=59))
    assert tokens.is_valid(row)
    assert tokens.issue_access(row, "mcp:read").expires_in == 3600
    # Checked once when the session has expired, then at the usual interval.
    Identity.objects.update(checked_at=timezone.now() - timedelta(minutes=5))
    before = timezone.now() - directory.CHECK_INTERVAL
    assert validity.check_due(before).count() == 1
    directory.check(lambda: True)
    Identity.objects.update(checked_at=timezone.now() - timedelta(minutes=1, seconds=5))
    assert validity.check_due(before).count() == 0
    assert tokens.is_valid(row)


def person_with_a_connection(issuer: Issuer) -> Connection:
    """The user who signed in, with a connected client."""
    service, _ = service_clients.create(issuer.tenant, "Editor")
    Connection.objects.filter(pk=service.connection.pk).update(person=Identity.objects.get().person)
    return Connection.objects.get(pk=service.connection.pk)


def test_connections_end_with_the_session_at_the_provider(issuer: Issuer, client: Client) -> None:
    xml = saml_response(issuer, begin_sign_in(client, issuer), session=f' SessionNotOnOrAfter="{at(600)}"')
    assert post_response(client, issuer, xml).status_code == 302
    row = person_with_a_connection(issuer)
    assert 590 <= tokens.issue_access(row, "mcp:read").expires_in <= 600
    AccessToken.objects.update(expires_at=timezone.now() + timedelta(hours=1))
    _, personal = personal_tokens.issue(row.person, "script")
    assert tokens.is_valid(row)
    over = timezone.now() - timedelta(seconds=1)
    Identity.objects.update(session_ends_at=over, checked_at=over - timedelta(minutes=1))
    assert not tokens.is_valid(row)
    assert not tokens.valid_access_tokens().exists()
    assert personal_tokens.find(personal) is None
    directory.check(lambda: True)
    assert not Membership.objects.exists()
    assert "The session at Acme has ended" in SignInEvent.objects.get(step=SignInStep.LEFT).reason
    # The next sign-in, with a response without an end, restores the access.
    assert post_response(client, issuer, saml_response(issuer, begin_sign_in(client, issuer))).status_code == 302
    assert tokens.is_valid(row)


def test_a_directory_that_vouches_outlasts_the_session_but_not_the_sign_in_that_an_admin_asks_for(
    issuer: Issuer, client: Client
) -> None:
    scim = ScimClient(issuer)
    scim.group("mcp-admins", scim.user("ann", externalId="u1"))
    assert post_response(client, issuer, saml_response(issuer, begin_sign_in(client, issuer))).status_code == 302
    row = person_with_a_connection(issuer)
    Identity.objects.update(session_ends_at=timezone.now() - timedelta(seconds=1))
    assert tokens.is_valid(row)
    Issuer.objects.update(sign_in_minutes=30)
    assert 1790 <= tokens.issue_access(row, "mcp:read").expires_in <= 1800
    Identity.objects.update(signed_in_at=timezone.now() - timedelta(minutes=31))
    assert not tokens.is_valid(row)


def test_sign_in_begins_here_unless_an_admin_allows_otherwise(issuer: Issuer, client: Client) -> None:
    assert "Sign-in does not begin at Acme" in post_response(client, issuer, saml_response(issuer, "")).content.decode()
    Issuer.objects.update(allows_unasked=True)
    late = post_response(client, issuer, saml_response(issuer, "", ends=at(900)))
    assert "more than 10 minutes" in late.content.decode()
    assert post_response(client, issuer, saml_response(issuer, "")).status_code == 302


def test_a_directory_knows_a_person_by_an_attribute_of_the_assertion(issuer: Issuer, client: Client) -> None:
    # An attribute with one value, such as the object ID of a person.
    Issuer.objects.update(directory_claim="groups", directory_only=True)
    scim = ScimClient(issuer)
    ann = scim.user("ann", externalId="mcp-admins")
    scim.group("mcp-admins", ann)
    assert post_response(client, issuer, saml_response(issuer, begin_sign_in(client, issuer))).status_code == 302
    DirectoryUser.objects.update(active=False)
    browser = Client()
    assert post_response(browser, issuer, saml_response(issuer, begin_sign_in(browser, issuer))).status_code == 403


def test_a_personal_token_ends_an_hour_after_the_sign_in(issuer: Issuer, client: Client) -> None:
    assert post_response(client, issuer, saml_response(issuer, begin_sign_in(client, issuer))).status_code == 302
    row, token = personal_tokens.issue(Identity.objects.get().person, "script")
    assert personal_tokens.find(token) == row
    Identity.objects.update(verified_at=timezone.now() - timedelta(minutes=58))
    assert personal_tokens.find(token) is None


def test_an_answer_with_white_space_around_it_is_read_as_any_other(issuer: Issuer, client: Client) -> None:
    xml = "\n <?xml version='1.0' encoding='UTF-8'?>" + saml_response(
        issuer, begin_sign_in(client, issuer), signer="other"
    )
    assert "of another certificate" in post_response(client, issuer, xml).content.decode()


def test_the_hub_shows_its_metadata(issuer: Issuer, client: Client) -> None:
    page = client.get(reverse("sign-in-saml-metadata", args=[issuer.pk]))
    assert f"http://testserver/sign-in/saml/{issuer.pk}/".encode() in page.content
