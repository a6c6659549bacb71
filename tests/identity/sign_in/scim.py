"""A SCIM client, as a company's directory."""

from typing import Any

import orjson
from django.http import HttpResponse
from django.test import Client

from tools_app.identity.people import directory
from tools_app.models import Issuer

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


class ScimClient:
    """The SCIM client of one issuer, with its token."""

    def __init__(self, issuer: Issuer, token: str | None = None) -> None:
        self.issuer, self.client = issuer, Client()
        self.token = directory.issue(issuer) if token is None else token

    def send(self, method: str, path: str, body: Any = None, **query: str) -> HttpResponse:
        content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        return self.client.generic(  # type: ignore[return-value]
            method,
            f"/scim/v2/{self.issuer.pk}/{path}",
            content,
            "application/scim+json",
            headers={"Authorization": f"Bearer {self.token}"},
            query_params=query,
        )

    def request(self, method: str, path: str, body: Any = None, status: int = 200, **query: str) -> Any:
        """The body of a response, after checking its status."""
        response = self.send(method, path, body, **query)
        assert response.status_code == status, response.content
        return orjson.loads(response.content) if response.content else None

    def user(self, user_name: str, /, status: int = 201, **more: Any) -> Any:
        return self.request("POST", "Users", {"schemas": [USER], "userName": user_name, "active": True, **more}, status)

    def group(self, name: str, *members: Any, **more: Any) -> Any:
        resource = {
            "schemas": [GROUP],
            "displayName": name,
            "members": [{"value": one["id"]} for one in members],
            **more,
        }
        return self.request("POST", "Groups", resource, 201)

    def patch(self, path: str, *operations: dict[str, Any], status: int = 200) -> Any:
        return self.request("PATCH", path, {"schemas": [PATCH], "Operations": list(operations)}, status)

    def application(self, environ: Any, start: Any) -> list[bytes]:
        """The hub as a WSGI application, in the transaction of the test."""
        path = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        headers = {"Authorization": environ.get("HTTP_AUTHORIZATION", "")}
        kind = environ.get("CONTENT_TYPE") or "application/scim+json"
        response = self.client.generic(
            environ["REQUEST_METHOD"], path, environ["wsgi.input"].read(), kind, headers=headers
        )
        start(f"{response.status_code} {response.reason_phrase}", list(response.items()))
        return [response.content]
