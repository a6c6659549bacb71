"""What issuers, companies and directories send has the bounds of `docs/security.md`."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError

from tests.identity.sign_in.scim import PATCH, USER, ScimClient
from tests.identity.sign_in.test_saml import pair
from tools_app.core.http.documents import DocumentError
from tools_app.identity.issuers import configuration, direct, saml_metadata, setup
from tools_app.identity.issuers import tokens as issued
from tools_app.identity.models import issuers
from tools_app.identity.scim import bounds as scim_bounds
from tools_app.identity.scim import queries
from tools_app.models import Issuer, Tenant

pytestmark = [pytest.mark.slow, pytest.mark.django_db]


def issuer(tenant: Tenant, **more: Any) -> Issuer:
    """An issuer that is off, so that its configuration is not read."""
    fields = {
        "name": str(uuid4()),
        "issuer": f"https://{uuid4()}.example",
        "client_id": "x",
        "is_active": False,
        **more,
    }
    return Issuer(tenant=tenant, **fields)


def scim(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> ScimClient:
    """The directory of an issuer."""
    row = issuer(tenant)
    row.save()
    monkeypatch.setattr(scim_bounds, "MAX_REQUESTS", 10_000)
    return ScimClient(row)


def check(scim_client: ScimClient, method: str, path: str, within: Any, beyond: Any) -> None:
    """Check that one request of a directory is answered, and the other one refused."""
    statuses = [scim_client.send(method, path, body).status_code for body in (within, beyond)]
    assert (statuses[0] < 300, statuses[1]) == (True, 400)


def check_users(scim_client: ScimClient, within: dict[str, Any], beyond: dict[str, Any]) -> None:
    """Check that a user with these fields is created, and another one refused."""
    bodies = [{"schemas": [USER], "userName": str(uuid4()), **fields} for fields in (within, beyond)]
    check(scim_client, "POST", "Users", *bodies)


def test_a_tenant_has_so_many_issuers(tenant: Tenant) -> None:
    Issuer.objects.bulk_create(issuer(tenant) for _ in range(setup.MAX_ISSUERS - 1))
    setup.check(issuer(tenant))
    issuer(tenant).save()
    with pytest.raises(ValidationError):
        setup.check(issuer(tenant))


def test_an_issuer_has_so_many_rules(tenant: Tenant) -> None:
    rule = {"role": "admin"}
    setup.check(issuer(tenant, rules=[rule] * issuers.MAX_RULES))
    with pytest.raises(ValidationError):
        setup.check(issuer(tenant, rules=[rule] * (issuers.MAX_RULES + 1)))


def test_a_long_token_is_refused() -> None:
    for length, message in ((issued.MAX_TOKEN, "This is not a signed JWT."), (issued.MAX_TOKEN + 1, "too long")):
        with pytest.raises(issued.InvalidToken, match=message):
            issued.decode_unverified("x" * length)


def test_a_long_token_that_is_used_as_it_is_is_refused() -> None:
    for length, message in ((direct.MAX_TOKEN, "This is not a signed JWT."), (direct.MAX_TOKEN + 1, "too long")):
        token = "eyJ" + "x" * (length - 3)
        with pytest.raises(issued.InvalidToken, match=message):
            issued.decode_unverified(token, direct.MAX_TOKEN)
        with pytest.raises(direct.TokenRejected):
            asyncio.run(direct.accept(token, origin="https://hub.example", slug=None, address=""))


def test_metadata_that_is_read_has_a_bound() -> None:
    for length, message in (
        (configuration.MAX_BYTES, "It is not XML."),
        (configuration.MAX_BYTES + 1, "has more than"),
    ):
        with pytest.raises(DocumentError, match=message):
            saml_metadata.parse(b"x" * length)


def test_metadata_that_is_pasted_has_a_bound(tenant: Tenant) -> None:
    row = issuer(tenant, protocol="saml", metadata="x" * issuers.MAX_METADATA)
    setup.check(row)
    row.metadata += "x"
    with pytest.raises(ValidationError):
        setup.check(row)


def test_metadata_has_so_many_certificates() -> None:
    pem = pair("idp")[1]
    assert len(saml_metadata.pem_certificates(pem * saml_metadata.MAX_CERTIFICATES)) == saml_metadata.MAX_CERTIFICATES
    with pytest.raises(DocumentError):
        saml_metadata.pem_certificates(pem * (saml_metadata.MAX_CERTIFICATES + 1))


def test_deeply_nested_json_of_a_directory_is_refused(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = []
    for _ in range(scim_bounds.MAX_DEPTH - 2):
        deep = [deep]
    check_users(scim(tenant, monkeypatch), {"x": deep}, {"x": [deep]})


def test_a_page_of_a_directory_is_shortened() -> None:
    for count in (scim_bounds.MAX_PAGE, scim_bounds.MAX_PAGE + 1):
        assert queries.page_of({"count": str(count)}).count == scim_bounds.MAX_PAGE


def test_a_request_has_so_many_operations_on_a_user(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    scim_client = scim(tenant, monkeypatch)
    operation = {"op": "replace", "path": "displayName", "value": "x"}
    bodies = (
        {"schemas": [PATCH], "Operations": [operation] * (scim_bounds.MAX_USER_OPERATIONS + more)} for more in (0, 1)
    )
    check(scim_client, "PATCH", f"Users/{scim_client.user('x')['id']}", *bodies)


def test_a_long_path_of_an_operation_is_refused(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    scim_client = scim(tenant, monkeypatch)
    paths = (f"x{'y' * (scim_bounds.MAX_PATH - 1 + more)}" for more in (0, 1))
    bodies = (
        {"schemas": [PATCH], "Operations": [{"op": "replace", "path": operation_path, "value": "x"}]}
        for operation_path in paths
    )
    check(scim_client, "PATCH", f"Users/{scim_client.user('x')['id']}", *bodies)


def test_long_texts_of_a_directory_are_refused(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    scim_client = scim(tenant, monkeypatch)
    for name in ("externalId", "userName"):
        check_users(scim_client, *({name: "x" * (issuers.MAX_VALUE + more)} for more in (0, 1)))
    check_users(scim_client, *({"emails": [{"value": "x" * (issuers.MAX_VALUE + more)}]} for more in (0, 1)))


def test_a_user_has_so_many_emails(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [{"value": "x"}] * issuers.MAX_EMAILS
    check_users(scim(tenant, monkeypatch), {"emails": many}, {"emails": [*many, {"value": "y"}]})
