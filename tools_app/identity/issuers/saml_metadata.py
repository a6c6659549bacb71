"""What an identity provider says of itself by SAML 2.0 metadata, and the parser for XML of strangers.

SAML needs an extra: signxml, with lxml. They are imported where they are used.
"""

import codecs
import re
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tools_app.core.http import documents
from tools_app.core.http.client import Reply
from tools_app.core.http.documents import DocumentError
from tools_app.core.process.runtime import Service
from tools_app.identity.issuers import configuration
from tools_app.models import Issuer

INSTALL_COMMAND: Final = "pip install 'mcphub[saml]'"
MAX_CERTIFICATES: Final = 20
MAX_TEXT: Final = 500
ENCODINGS: Final = frozenset({b"utf-8", b"us-ascii", b"iso-8859-1"})
REDIRECT_BINDING: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
NAMESPACES: Final = {
    "md": "urn:oasis:names:tc:SAML:2.0:metadata",
    "ds": "http://www.w3.org/2000/09/xmldsig#",
    "saml": "urn:oasis:names:tc:SAML:2.0:assertion",
    "samlp": "urn:oasis:names:tc:SAML:2.0:protocol",
}
_ENCODING: Final = re.compile(rb"""^<\?xml[^>]{0,100}?encoding\s{0,9}=\s{0,9}["']([A-Za-z0-9._-]{1,40})""")
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]{1,20000}-----END CERTIFICATE-----")


class Metadata(NamedTuple):
    """An identity provider: its entity ID, where people sign in, and the certificates that sign, in PEM."""

    entity_id: str
    sign_in_url: str
    certificates: list[str]


class MetadataCache(configuration.DocumentCache):
    """Metadata by its URL, cached as the configurations of OpenID Connect are."""

    def parsed(self, reply: Reply) -> dict[str, Any]:
        """Return the metadata of a successful reply. Raises DocumentError."""
        if reply.status != documents.OK:
            raise DocumentError(f"The server answered with status {reply.status}.")
        return parse(reply.body)._asdict()


cache = Service(MetadataCache)


def missing_extra() -> str:
    """Return which command installs what SAML needs; "" if it is installed."""
    if all(find_spec(name) is not None for name in ("lxml", "signxml")):
        return ""
    return f"SAML needs an extra that is not installed. Run {INSTALL_COMMAND}, then restart the hub."


def read(issuer: Issuer, *, refresh: bool = False) -> Metadata:
    """Return the metadata of an issuer, with the certificates that its admin added. Raises DocumentError.

    `refresh`: none of the certificates signed an answer, so those of the URL are read again if it is time to.
    """
    if problem := missing_extra():
        raise DocumentError(problem)
    if issuer.metadata_url:
        max_age = configuration.KEYS_REFRESH_SECONDS if refresh else configuration.MAX_AGE_SECONDS
        allowed = tuple(issuer.tenant.allowed_networks)
        if reason := cache().failure(issuer.metadata_url, allowed):
            raise DocumentError(reason)
        metadata = Metadata(**cache().read(issuer.metadata_url, allowed, max_age))
    else:
        metadata = parse(issuer.metadata.encode())
    if metadata.entity_id != issuer.issuer:
        raise DocumentError(f"Its metadata is of the entity {metadata.entity_id}. Enter that as the issuer URL.")
    return metadata._replace(certificates=[*metadata.certificates, *pem_certificates(issuer.certificates)])


def parse_xml(text: bytes, max_bytes: int) -> Any:
    """Return the root of an XML document without DTD, entities, comments and instructions. Raises DocumentError."""
    from lxml import etree  # noqa: PLC0415 - an extra

    if len(text) > max_bytes:
        raise DocumentError(f"The XML has more than {max_bytes} bytes.")
    declared = _ENCODING.match(text.lstrip())
    if b"\0" in text or text.startswith(codecs.BOM_UTF8) or (declared and declared[1].lower() not in ENCODINGS):
        raise DocumentError("The XML is not in UTF-8.")
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise DocumentError("The XML has a DTD or entities, which are not accepted.")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
    try:
        return etree.fromstring(text.lstrip(), parser)
    except (etree.LxmlError, ValueError):
        raise DocumentError("It is not XML.") from None


def parse(text: bytes) -> Metadata:
    """Return what metadata says. Raises DocumentError."""
    root = parse_xml(text, configuration.MAX_BYTES)
    entities = root.xpath("descendant-or-self::md:EntityDescriptor[md:IDPSSODescriptor]", namespaces=NAMESPACES)
    if len(entities) != 1:
        raise DocumentError("It is not the metadata of one identity provider.")
    entity = entities[0]
    if _has_expired(entity.get("validUntil", "")) or _has_expired(root.get("validUntil", "")):
        raise DocumentError("The metadata has expired (validUntil).")
    services = entity.xpath(
        f"md:IDPSSODescriptor/md:SingleSignOnService[@Binding='{REDIRECT_BINDING}']", namespaces=NAMESPACES
    )
    url = services[0].get("Location", "") if services else ""
    if not url or len(url) > MAX_TEXT or configuration.url_problem(url.partition("?")[0]) or "#" in url:
        raise DocumentError("The metadata has no SingleSignOnService by HTTP-Redirect that starts with https://.")
    nodes = entity.xpath(
        "md:IDPSSODescriptor/md:KeyDescriptor[not(@use='encryption')]//ds:X509Certificate", namespaces=NAMESPACES
    )
    bodies = ["".join((node.text or "").split()) for node in nodes[:MAX_CERTIFICATES]]
    certificates = pem_certificates(
        "\n".join(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----" for body in bodies)
    )
    if not certificates:
        raise DocumentError("The metadata has no certificate that signs.")
    return Metadata(entity.get("entityID", "")[:MAX_TEXT], url, certificates)


def pem_certificates(text: str) -> list[str]:
    """Return the certificates in a text. Raises DocumentError if it contains anything else, or too many."""
    texts = _PEM.findall(text)
    if len(texts) > MAX_CERTIFICATES:
        raise DocumentError(f"An issuer has at most {MAX_CERTIFICATES} certificates.")
    if _PEM.sub("", text).strip():
        raise DocumentError("Enter certificates in PEM: from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----.")
    try:
        certificates = [x509.load_pem_x509_certificate(pem.encode()) for pem in texts]
        return [certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates]
    except ValueError:
        raise DocumentError("A certificate cannot be read.") from None


def _has_expired(valid_until: str) -> bool:
    try:
        return bool(valid_until) and parse_datetime(valid_until) <= datetime.now(UTC)
    except ValueError:
        raise DocumentError("The metadata has a time that cannot be read (validUntil).") from None


def parse_datetime(text: str) -> datetime:
    """Return a time of XML, in UTC unless it says otherwise. Raises ValueError."""
    parsed = datetime.fromisoformat(text[:40])
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
