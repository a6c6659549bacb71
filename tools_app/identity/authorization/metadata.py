"""Metadata for discovery: of the endpoints as protected resources, and of the authorization server."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse

from tools_app.identity.authorization.server import GRANT_TYPES, issuer_of
from tools_app.identity.oauth import clients, resources, scopes
from tools_app.identity.oauth.key_sets import ALGORITHMS

MAX_AGE: Final = 3600
TENANT_MAX_AGE: Final = 60
View = Callable[..., HttpResponse]


def allow_any_origin(*methods: str) -> Callable[[View], View]:
    """Answer pages of every origin, for these methods: no cookie is read, so that an origin proves nothing."""

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if request.method == "OPTIONS":
                response = HttpResponse(status=204)
            elif request.method in methods:
                response = view(request, *args, **kwargs)
            else:
                response = JsonResponse({"error": "invalid_request"}, status=405, headers={"Allow": ", ".join(methods)})
            response.headers["Access-Control-Allow-Origin"] = "*"
            response.headers["Access-Control-Allow-Methods"] = ", ".join((*methods, "OPTIONS"))
            response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type, MCP-Protocol-Version"
            return response

        return wrapper

    return decorate


@allow_any_origin("GET", "HEAD")
def protected_resource(request: HttpRequest, path: str = "mcp") -> HttpResponse:
    """Return the metadata of an endpoint (RFC 9728). A tenant that names scopes tells that it exists."""
    match = resources.ENDPOINT.fullmatch(f"/{path}")
    if match is None:
        raise Http404("No such endpoint.")
    issuer, slug = issuer_of(request), match["slug"]
    tenant_scope_names = scopes.names_of(slug) if slug else ()
    return _cacheable_response(
        {
            "resource": f"{issuer}/{path}",
            "authorization_servers": [issuer],
            "scopes_supported": [*scopes.SCOPES, *tenant_scope_names],
            "bearer_methods_supported": ["header"],
            "resource_name": "mcphub",
        },
        # What a tenant names is known to clients soon.
        TENANT_MAX_AGE if slug else MAX_AGE,
    )


@allow_any_origin("GET", "HEAD")
def authorization_server(request: HttpRequest) -> HttpResponse:
    """Return the metadata of the authorization server (RFC 8414)."""
    return _cacheable_response(_server_metadata(issuer_of(request)))


@allow_any_origin("GET", "HEAD")
def openid_configuration(request: HttpRequest) -> HttpResponse:
    """Return the same metadata for clients that look for OpenID Connect, with the fields that it requires.

    The hub issues no ID tokens, so its key set is empty.
    """
    issuer = issuer_of(request)
    required = {
        "jwks_uri": issuer + reverse("oauth-keys"),
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }
    return _cacheable_response(_server_metadata(issuer) | required)


@allow_any_origin("GET", "HEAD")
def key_set(_request: HttpRequest) -> HttpResponse:
    """Return the keys of ID tokens, of which there are none."""
    return _cacheable_response({"keys": []})


def _server_metadata(issuer: str) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": issuer + reverse("oauth-authorize"),
        "token_endpoint": issuer + reverse("oauth-token"),
        "registration_endpoint": issuer + reverse("oauth-register"),
        "revocation_endpoint": issuer + reverse("oauth-revoke"),
        "introspection_endpoint": issuer + reverse("oauth-introspect"),
        "introspection_endpoint_auth_methods_supported": list(clients.AUTH_METHODS),
        "introspection_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "device_authorization_endpoint": issuer + reverse("oauth-device-authorization"),
        "scopes_supported": list(scopes.SUPPORTED),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "authorization_grant_profiles_supported": ["urn:ietf:params:oauth:grant-profile:id-jag"],
        "token_endpoint_auth_methods_supported": list(clients.AUTH_METHODS),
        "token_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "revocation_endpoint_auth_methods_supported": list(clients.AUTH_METHODS),
        "revocation_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "code_challenge_methods_supported": ["S256"],
        "client_id_metadata_document_supported": True,
        "authorization_response_iss_parameter_supported": True,
    }


def _cacheable_response(body: dict[str, Any], seconds: int = MAX_AGE) -> HttpResponse:
    return JsonResponse(body, headers={"Cache-Control": f"public, max-age={seconds}", "Vary": "Host"})
