"""URLs of sign-in: discovery, the authorization server's endpoints, and a person's connections."""

from django.urls import path

from tools_app.identity.authorization import authorize, connections, device_page, endpoints, metadata
from tools_app.upstreams import views as upstream_credentials

urlpatterns = [
    path(".well-known/oauth-protected-resource", metadata.protected_resource),
    path(".well-known/oauth-protected-resource/<path:path>", metadata.protected_resource),
    path(".well-known/oauth-authorization-server", metadata.authorization_server),
    path(".well-known/openid-configuration", metadata.openid_configuration),
    path("oauth/authorize", authorize.authorize, name="oauth-authorize"),
    path("oauth/token", endpoints.token, name="oauth-token"),
    path("oauth/register", endpoints.register, name="oauth-register"),
    path("oauth/revoke", endpoints.revoke, name="oauth-revoke"),
    path("oauth/introspect", endpoints.introspect, name="oauth-introspect"),
    path("oauth/device_authorization", endpoints.device_authorization, name="oauth-device-authorization"),
    path("device", device_page.page, name="oauth-device"),
    path("oauth/keys", metadata.key_set, name="oauth-keys"),
    path("oauth/upstream-client", upstream_credentials.client_document, name="oauth-upstream-client"),
    path("connections", connections.page, name="connections"),
    path("connections/upstreams", upstream_credentials.page, name="upstream-credentials"),
    path("connections/upstreams/callback", upstream_credentials.callback, name="upstream-callback"),
    path("connections/upstreams/<uuid:upstream_id>", upstream_credentials.page, name="upstream-credential"),
]
