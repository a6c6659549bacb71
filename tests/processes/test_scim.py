"""The protocol of directories (SCIM 2.0), as an independent client of it checks it."""

from typing import Any

import pytest
from scim2_client.engines.wsgi import WSGISCIMClient
from scim2_tester import Status, check_server

from tests.identity.sign_in.scim import ScimClient
from tools_app.identity.scim import bounds
from tools_app.models import Issuer, Tenant


@pytest.mark.django_db
def test_an_independent_client_of_the_protocol_finds_no_fault(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_REQUESTS", 10_000)
    settings.REDIS_URL = ""
    acme = Tenant.objects.create(slug="acme", name="Acme")
    issuer = Issuer.objects.create(tenant=acme, name="Acme", issuer="https://acme.example", client_id="hub", rules=[])
    scim = ScimClient(issuer)
    headers = {"Authorization": f"Bearer {scim.token}"}
    found = check_server(WSGISCIMClient(scim.application, f"http://testserver/scim/v2/{issuer.pk}", headers))
    wrong = {(one.title, one.resource_type): str(one.reason) for one in found if one.status == Status.ERROR}
    # Removing `active` deactivates the user: the attribute always has a value.
    assert "did not remove attribute 'active'" in wrong.pop(("check_remove_attribute", "User"))
    # A search over users and groups together (RFC 7644, section 3.4.2.1) is not offered.
    for kind in ("User", "Group"):
        assert "no such endpoint" in wrong.pop(("search_with_attributes", kind))
    assert wrong == {}
    assert len(found) > 50
