"""The effect of each configurable field, as seen by clients of the hub."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final

import httpx
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import models
from django.test import Client

from tests.upstreams import scripted
from tests.web_services import Received, Service, http_response
from tests.wire.client import RawClient, error_of, message_of, modern_request
from tools_app.catalog import authoring
from tools_app.identity import personal_tokens as tokens
from tools_app.models import (
    ApiKey,
    ApiSource,
    Call,
    CallPayload,
    Membership,
    PersonalToken,
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    Role,
    Secret,
    Tenant,
    Tool,
    Toolset,
    Upstream,
    UpstreamItem,
)
from tools_app.tenants import impersonation, keys
from tools_app.upstreams import service as upstreams

LONGER_THAN_ALLOWED: Final = 0.4


@dataclass
class World:
    """A tenant with one row of each kind, and clients that use them. Everything is observed over the network."""

    url: str
    service: Service
    tenant: Tenant
    other: Tenant
    apikey: ApiKey
    key: str
    tool: Tool
    resource: Resource
    prompt: Prompt
    secret: Secret
    apisource: ApiSource
    user: User
    membership: Membership
    personaltoken: PersonalToken
    token: str
    client: RawClient
    cookie: str
    passport: str
    upstream: Upstream
    upstreamitem: UpstreamItem
    toolset: Toolset
    other_key: str

    def row(self, model: type[models.Model]) -> Any:
        return getattr(self, str(model._meta.model_name))

    # --- Observations ---------------------------------------------------------------------------------------------

    def status(self, path: str = "/mcp", key: str | None = None) -> int:
        return self.at(path, key).modern("server/discover").status_code

    def at(self, path: str, key: str | None = None) -> RawClient:
        client = RawClient(self.url, key, path)
        client.http = self.client.http
        return client

    def request(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """The result of a request, or the code of its error."""
        response = self.at(options.get("path", "/mcp"), options.get("key", self.key)).modern(method, params)
        message = message_of(response)
        return message.get("result") or error_of(response)["code"]

    def called(self, **how: Any) -> Any:
        """The text of a call, "failed", or the code of an error."""
        result = self.request("tools/call", {"name": "find", "arguments": {"term": "words"}}, **how)
        if not isinstance(result, dict):
            return result
        return "failed" if result["isError"] else result["content"][0]["text"]

    def looked(self) -> Any:
        """The same for the tool of the upstream, which belongs to the other tenant."""
        result = self.request("tools/call", {"name": "look", "arguments": {}}, key=self.other_key)
        if not isinstance(result, dict):
            return result
        return "failed" if result["isError"] else result["content"][0]["text"]

    def listed(self, kind: str, **how: Any) -> Any:
        """The entries of a list, or the code of an error."""
        result = self.request(f"{kind}/list", **how)
        return result[kind] if isinstance(result, dict) else result

    def entry(self, kind: str, name: str) -> Any:
        """A property of the only entry of a list."""
        entries = self.listed(kind)
        return entries[0].get(name) if entries else None

    def names(self) -> Any:
        """The names of the listed tools."""
        return [entry["name"] for entry in self.listed("tools")]

    def found(self, word: str) -> Any:
        result = self.request("tools/call", {"name": "find_tools", "arguments": {"query": word}})
        return [tool["name"] for tool in result["structuredContent"]["tools"]] if "content" in result else result

    def read(self) -> Any:
        """The only contents of the resource, or the code of an error."""
        result = self.request("resources/read", {"uri": "docs://guide"})
        if not isinstance(result, dict):
            return result
        contents = result["contents"][0]
        return contents.get("text", contents.get("blob"))

    def got(self) -> Any:
        """The text of the prompt."""
        result = self.request("prompts/get", {"name": "greet", "arguments": {"who": "Ann"}})
        return result["messages"][0]["content"]["text"] if isinstance(result, dict) else result

    def recorded_arguments(self) -> str:
        self.called()
        return str(CallPayload.objects.latest("call_id").arguments)

    def recorded(self, column: str) -> Any:
        self.called()
        return getattr(Call.objects.latest("id"), column)

    def opened(self) -> int:
        """The status of a new session."""
        return self.client.initialize().status_code

    def streaming(self) -> int:
        """The status of an event stream."""
        params = {"notifications": {"toolsListChanged": True}}
        body, headers = modern_request("subscriptions/listen", params)
        request = {"json": body, "headers": self.client.headers(headers)}
        with self.client.http.stream("POST", "/mcp", **request) as response:
            return response.status_code

    def passed(self) -> int:
        """The status of a request with the person's impersonation token."""
        return self.status(key=self.passport)

    def api(self, path: str = "me/") -> httpx.Response:
        return httpx.get(
            f"{self.url}/api/v1/{path}", headers={"Authorization": f"Bearer {self.token}"}, trust_env=False, timeout=8
        )

    def me(self, name: str) -> Any:
        """A field of the person in the REST API, or the status."""
        response = self.api()
        return response.json()[name] if response.status_code == 200 else response.status_code

    def logged_in(self) -> bool:
        """Whether the browser's session still opens the admin."""
        response = httpx.get(f"{self.url}/admin/", cookies={"sessionid": self.cookie}, trust_env=False, timeout=8)
        return response.status_code == 200


def build(url: str, service: Service, client: RawClient) -> World:
    """A world whose rows are all valid."""
    tenant = Tenant.objects.create(slug="acme", name="Acme", allowed_networks=["127.0.0.0/8"])
    other = Tenant.objects.create(slug="rival", name="Rival", allowed_networks=["127.0.0.0/8"])
    apikey, key = keys.issue(tenant, "laptop")
    secret = authoring.set_secret(tenant, "token", "hush-hush-1")
    user = User.objects.create(username="ada", email="ada@example.com", password=make_password("correct horse"))
    membership = Membership.objects.create(user=user, tenant=tenant, role=Role.ADMIN)
    personal, token = tokens.issue(user, "script")
    browser = Client()
    browser.force_login(user, "django.contrib.auth.backends.ModelBackend")
    client.key = key
    upstream = Upstream.objects.create(
        tenant=other, name="far", url=f"{service.url}/mcp", headers={"X-Token": "one"}, environment={"A": "b"}
    )
    return World(
        url=url,
        service=service,
        tenant=tenant,
        other=other,
        apikey=apikey,
        key=key,
        tool=authoring.save_tool(
            Tool(
                tenant=tenant,
                name="find",
                kind="http",
                input_schema={"type": "object", "properties": {"term": {"type": "string"}}},
                config={
                    "method": "GET",
                    "base_url": service.url,
                    "path": "first",
                    "headers": {"X-Token": "{secret:token}"},
                },
            )
        ),
        resource=authoring.save_resource(
            Resource(tenant=tenant, uri="docs://guide", name="guide", kind=ResourceKind.TEXT, text="one", blob=b"two")
        ),
        prompt=authoring.save_prompt(
            Prompt(
                tenant=tenant,
                name="greet",
                kind=PromptKind.TEMPLATE,
                arguments=[{"name": "who"}],
                messages=[{"role": "user", "text": "Greet {who}"}],
            )
        ),
        secret=secret,
        apisource=ApiSource.objects.create(
            tenant=tenant,
            name="api",
            base_url=service.url,
            schemes={"key": {"kind": "header", "name": "X-Token"}},
            secrets={"key": "token"},
        ),
        user=user,
        membership=membership,
        personaltoken=personal,
        token=token,
        client=client,
        cookie=browser.cookies["sessionid"].value,
        passport=impersonation.issue(apikey, user),
        upstream=upstream,
        upstreamitem=_accepted(upstream),
        toolset=Toolset.objects.create(tenant=tenant, name="Nothing", tools=["nothing"]),
        other_key=keys.issue(other, "desktop")[1],
    )


def _accepted(upstream: Upstream) -> UpstreamItem:
    """The tool of an upstream, which lists it as it was accepted."""
    item = UpstreamItem.objects.create(
        tenant=upstream.tenant, upstream=upstream, kind="tool", name="look", proposed=scripted.LOOK
    )
    return upstreams.accept([item])[0]


def service_answer(slow: Event) -> Callable[[Received], bytes]:
    """Respond with the path and the token of the request. `/slow` waits first."""
    look = scripted.modern(lambda request, _message: f"{request.target} {request.headers.get('x-token')}")

    def answer(request: Received) -> bytes:
        if request.target in {"/mcp", "/mcp2"}:
            return look(request)
        if request.target.startswith("/slow"):
            slow.wait(LONGER_THAN_ALLOWED)
        text = f"{request.target.partition('?')[0]} {request.headers.get('x-token', '')}".strip()
        return http_response(200, text.encode(), "text/plain")

    return answer


# --- Effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """When the field is set to `to`, `look` returns `then`. `given` has fields of other models that it depends on.

    If `final`, the old value does not restore the old result.
    """

    to: Any
    look: Callable[[World], Any]
    then: Any
    given: Mapping[type[models.Model], Mapping[str, Any]] = field(default_factory=dict)
    final: bool = False

    def value(self, world: World) -> Any:
        return self.to(world) if callable(self.to) else self.to


@dataclass(frozen=True)
class NoEffect:
    """The field changes no response, for this reason."""

    because: str


IDENTITY = NoEffect("A row with another id is another row.")
OF_THE_NEXT_IMPORT = NoEffect("It says how the document is read next; tests/management/test_import_openapi.py.")
FOR_PEOPLE = NoEffect("Pages and the REST API show it, which read it from the database for each request.")
OF_THE_PAST = NoEffect("It records what happened.")
SHOWN_PART = NoEffect("People recognise the credential by it; requests are matched by the digest.")

OVER = -32004
UNKNOWN = -32602
LIMITED = {
    "calls_per_second": Effect(0, World.called, OVER),
    "calls_per_minute": Effect(0, World.called, OVER),
    "calls_per_day": Effect(0, World.called, OVER),
}
CALLER_LIMITED = LIMITED | {
    "requests_per_second": Effect(0, lambda world: world.listed("tools"), OVER),
    "requests_per_day": Effect(0, lambda world: world.listed("tools"), OVER),
    "open_streams": Effect(0, World.streaming, 429),
}
ICON = [{"src": "https://example.com/icon.png"}]
PUBLIC = {Tenant: {"is_public": True, "public_tools": ["find"]}}
SEARCH_TOOLS = ["call_tool", "describe_tool", "find_tools"]
SEARCHED: Final[dict[type[models.Model], dict[str, Any]]] = {ApiKey: {"presentation": "search"}}
WITH_TOOLSET: Final[dict[type[models.Model], dict[str, Any]]] = {
    ApiKey: {"toolset": lambda world: world.toolset},
    Toolset: {"tools": ["*"]},
}
EARLIER = datetime(2020, 1, 1, tzinfo=UTC)
OWN = "/t/acme/mcp"


def _moved(world: World) -> Any:
    return world.other


def _config(path: str) -> Callable[[World], Any]:
    return lambda world: {"method": "GET", "base_url": world.service.url, "path": path}


# The tool is an operation of the source, which says where the API is and which secret it gets.
OPERATION: Final[dict[type[models.Model], dict[str, Any]]] = {
    Tool: {
        "kind": "operation",
        "source": lambda world: world.apisource,
        "config": {"method": "GET", "path": "/first", "security": [["key"]]},
    }
}


def _named_server(path: str, **server: Any) -> Callable[[World], Any]:
    return lambda world: [{"url": f"{world.service.url}{path}", **server}]


def _listed(kind: str, name: str, to: Any, then: Any = ...) -> Effect:
    return Effect(to, lambda world: world.entry(kind, name), to if then is ... else then)


def _colleague(_world: World) -> User:
    return User.objects.get_or_create(username="eve", is_superuser=True)[0]


EFFECTS: Final[dict[type[models.Model], dict[str, Effect | NoEffect]]] = {
    Tenant: CALLER_LIMITED
    | {
        "id": IDENTITY,
        "slug": Effect("renamed", lambda world: world.status("/t/renamed/mcp", world.key), 200),
        "name": FOR_PEOPLE,
        "is_active": Effect(False, lambda world: world.status(key=world.key), 401),
        "allow_query_key": Effect(True, lambda world: world.status(f"/mcp?api_key={world.key}"), 200),
        "allowed_networks": Effect([], World.called, "failed"),
        "redacted_keys": Effect(["term"], lambda world: "words" in world.recorded_arguments(), False),
        "calls_in_flight": Effect(0, World.called, OVER),
        "most_sessions": Effect(0, World.opened, 429),
        "requires_second_factor": NoEffect("Pages read it from the database; clients log in with keys and tokens."),
        "keep_days": NoEffect("The daily pruning reads it from the database."),
        "is_public": Effect(True, lambda world: world.status(OWN), 200),
        "public_tools": Effect(["nothing"], lambda world: world.listed("tools", path=OWN, key=None), [], PUBLIC),
        "public_calls_per_minute": Effect(0, lambda world: world.called(path=OWN, key=None), OVER, PUBLIC),
        "presentation": Effect("search", World.names, SEARCH_TOOLS),
        "search_above_tokens": Effect(0, World.names, SEARCH_TOOLS, {Tenant: {"presentation": "auto"}}),
        "catalog_version": NoEffect("It is the version of the rows below the tenant."),
        "created_at": OF_THE_PAST,
    },
    ApiKey: CALLER_LIMITED
    | {
        "id": IDENTITY,
        "tenant": Effect(_moved, lambda world: world.entry("tools", "name"), "look"),
        "name": FOR_PEOPLE,
        "prefix": SHOWN_PART,
        "digest": Effect("0" * 64, lambda world: world.status(key=world.key), 401),
        "created_at": OF_THE_PAST,
        "created_by": OF_THE_PAST,
        "expires_at": Effect(EARLIER, lambda world: world.status(key=world.key), 401),
        "revoked_at": Effect(EARLIER, lambda world: world.status(key=world.key), 401),
        "last_used_at": OF_THE_PAST,
        "tool_patterns": Effect(["nothing"], lambda world: world.listed("tools"), []),
        "methods": Effect(["tools/call"], lambda world: world.listed("tools"), -32003),
        "networks": Effect(["203.0.113.0/24"], lambda world: world.status(key=world.key), 403),
        "acts_for_creator": NoEffect(
            "It is set with the key, once; tests/wire/test_django_tools.py shows what it does."
        ),
        "toolset": Effect(lambda world: world.toolset, lambda world: world.listed("tools"), []),
        "presentation": Effect("search", World.names, SEARCH_TOOLS),
        "replaced_by": NoEffect("What ends a replaced key is its expires_at."),
    },
    Toolset: {
        "id": IDENTITY,
        "tenant": Effect(_moved, lambda world: world.listed("tools"), [], WITH_TOOLSET),
        "name": FOR_PEOPLE,
        "description": FOR_PEOPLE,
        "tools": Effect(["nothing"], lambda world: world.listed("tools"), [], WITH_TOOLSET),
        "created_at": OF_THE_PAST,
        "updated_at": OF_THE_PAST,
    },
    Membership: {
        "id": IDENTITY,
        "user": Effect(_colleague, World.passed, 401),
        "tenant": Effect(_moved, World.passed, 401),
        "role": Effect(Role.AUDITOR, World.passed, 401),
        "created_at": OF_THE_PAST,
    },
    Upstream: {
        "id": IDENTITY,
        "tenant": Effect(lambda world: world.tenant, World.looked, UNKNOWN),
        "name": NoEffect("It is part of messages, and compiled with them."),
        "prefix": NoEffect("It counts when a definition is accepted."),
        "transport": Effect("stdio", World.looked, "failed"),
        "url": Effect(lambda world: f"{world.service.url}/mcp2", World.looked, "/mcp2 one"),
        "command": NoEffect("Only for stdio; see tests/upstreams/test_stdio.py."),
        "approved": NoEffect("Written by add_upstream; see tests/upstreams/test_command.py."),
        "era": Effect("handshake", World.looked, "failed"),
        "headers": Effect({"X-Token": "two"}, World.looked, "/mcp two"),
        "credential": Effect("header", World.looked, "failed"),
        "credential_owner": NoEffect("Only with a credential; see tests/upstreams/test_credentials.py."),
        "credential_header": NoEffect("Only with a credential; see tests/upstreams/test_credentials.py."),
        "oauth_client_id": NoEffect("It counts at the next sign-in; see tests/upstreams/test_credentials.py."),
        "oauth_client_secret": NoEffect("It counts at the next sign-in; see tests/upstreams/test_credentials.py."),
        "oauth_issuer": NoEffect("It counts at the next sign-in; see tests/upstreams/test_credentials.py."),
        "oauth_scopes": NoEffect("They count at the next sign-in; see tests/upstreams/test_credentials.py."),
        "environment": NoEffect("Only for stdio; see tests/upstreams/test_stdio.py."),
        "enabled": Effect(False, World.looked, UNKNOWN),
        "timeout_seconds": NoEffect("It counts when a definition is accepted."),
        "created_at": OF_THE_PAST,
        "updated_at": OF_THE_PAST,
    },
    UpstreamItem: {
        "id": IDENTITY,
        "tenant": Effect(lambda world: world.tenant, World.looked, UNKNOWN),
        "upstream": NoEffect("An item of another upstream is another item."),
        "kind": NoEffect("An item of another kind is another item."),
        "name": Effect("seen", World.looked, "failed"),
        "state": Effect("changed", World.looked, "failed"),
        "accepted": NoEffect("The digest is of it."),
        "digest": Effect("0" * 64, World.looked, "failed"),
        "proposed": NoEffect("It counts when it is accepted."),
        "warnings": FOR_PEOPLE,
        "tool": Effect(None, World.looked, UNKNOWN),
        "resource": NoEffect("As the tool of a tool."),
        "prompt": NoEffect("As the tool of a tool."),
        "created_at": OF_THE_PAST,
        "updated_at": OF_THE_PAST,
    },
    Tool: LIMITED
    | {
        "id": IDENTITY,
        "tenant": Effect(_moved, lambda world: world.listed("tools"), []),
        "name": _listed("tools", "name", "seek"),
        "kind": Effect("python", lambda world: world.listed("tools"), []),
        "enabled": Effect(False, lambda world: world.listed("tools"), []),
        "title": _listed("tools", "title", "Find things"),
        "description": _listed("tools", "description", "Finds things."),
        "input_schema": _listed("tools", "inputSchema", {"type": "object"}),
        "output_schema": _listed("tools", "outputSchema", {"type": "object"}),
        "annotations": _listed("tools", "annotations", {"readOnlyHint": True}),
        "config": Effect(_config("second"), World.called, "/second"),
        "source": Effect(None, lambda world: world.listed("tools"), [], OPERATION),
        "operation": NoEffect("A refresh of the source finds the tool by it."),
        "generated": NoEffect("A refresh of the source compares with it."),
        "background": Effect(True, lambda world: world.recorded("background"), True),
        "task": Effect("required", World.called, -32021),
        "icons": _listed("tools", "icons", ICON),
        "timeout_seconds": Effect(0.1, World.called, "failed", {Tool: {"config": _config("slow")}}),
        "calls_in_flight": Effect(0, World.called, OVER),
        "aliases": Effect(["zebra"], lambda world: world.found("zebra"), ["find"], SEARCHED),
        "pinned": Effect(True, World.names, ["call_tool", "describe_tool", "find", "find_tools"], SEARCHED),
        "result_mask": Effect(
            "[]",
            lambda world: world.entry("tools", "outputSchema"),
            None,
            {Tool: {"output_schema": {"type": "object"}}},
        ),
        "result_items": NoEffect("Compiled with the mask: tests/wire/test_shaping.py."),
        "result_bytes": NoEffect("Compiled with the mask: tests/wire/test_shaping.py."),
        "revision": Effect(7, lambda world: world.recorded("tool_revision"), 7),
        "created_at": OF_THE_PAST,
        "updated_at": OF_THE_PAST,
    },
    Resource: {
        "id": IDENTITY,
        "tenant": Effect(_moved, lambda world: world.listed("resources"), []),
        "uri": _listed("resources", "uri", "docs://other"),
        "name": _listed("resources", "name", "handbook"),
        "kind": Effect(ResourceKind.FILE, World.read, "dHdv"),
        "enabled": Effect(False, lambda world: world.listed("resources"), []),
        "title": _listed("resources", "title", "A guide"),
        "description": _listed("resources", "description", "How it works."),
        "mime_type": _listed("resources", "mimeType", "text/markdown"),
        "annotations": _listed("resources", "annotations", {"priority": 0.5}),
        "icons": _listed("resources", "icons", ICON),
        "text": Effect("three", World.read, "three"),
        "blob": Effect(b"four", World.read, "Zm91cg==", {Resource: {"kind": ResourceKind.FILE}}),
        "config": Effect(
            _config("second"),
            World.read,
            "/second",
            {Resource: {"kind": ResourceKind.HTTP, "config": _config("first")}},
        ),
        "timeout_seconds": Effect(
            0.1,
            lambda world: world.read() == "/slow",
            False,
            {Resource: {"kind": ResourceKind.HTTP, "config": _config("slow")}},
        ),
        "created_at": OF_THE_PAST,
        "updated_at": NoEffect("Subscribers are notified: tests/wire/test_resource_subscriptions.py."),
    },
    Prompt: {
        "id": IDENTITY,
        "tenant": Effect(_moved, lambda world: world.listed("prompts"), []),
        "name": _listed("prompts", "name", "welcome"),
        "kind": Effect(PromptKind.PYTHON, lambda world: world.listed("prompts"), []),
        "enabled": Effect(False, lambda world: world.listed("prompts"), []),
        "title": _listed("prompts", "title", "A greeting"),
        "description": _listed("prompts", "description", "Greets."),
        "icons": _listed("prompts", "icons", ICON),
        "arguments": Effect([], lambda world: world.got(), -32602),
        "messages": Effect([{"role": "user", "text": "Bye"}], World.got, "Bye"),
        "config": Effect(
            {"function": "registered"},
            lambda world: world.entry("prompts", "title"),
            "Registered",
            {Prompt: {"kind": PromptKind.PYTHON, "config": {"function": "nothing"}}},
        ),
        "created_at": OF_THE_PAST,
        "updated_at": OF_THE_PAST,
    },
    Secret: {
        "id": IDENTITY,
        "tenant": Effect(_moved, World.called, "failed"),
        "name": Effect("other", World.called, "failed"),
        "ciphertext": Effect(
            lambda world: authoring.encrypt_secret(world.tenant.pk, "token", "hush-hush-2"),
            lambda world: (world.called(), world.service.received[-1].headers.get("x-token"))[1],
            "hush-hush-2",
        ),
        "created_at": OF_THE_PAST,
        "updated_at": OF_THE_PAST,
    },
    ApiSource: {
        "id": IDENTITY,
        "tenant": Effect(_moved, lambda world: world.listed("tools"), [], OPERATION),
        "name": FOR_PEOPLE,
        "url": Effect(
            lambda world: f"{world.service.url}/docs/openapi.json",
            World.called,
            "/docs/first [redacted]",
            OPERATION | {ApiSource: {"base_url": "", "servers": [{"url": "."}]}},
        ),
        "base_url": Effect(lambda world: f"{world.service.url}/v2", World.called, "/v2/first [redacted]", OPERATION),
        "server_variables": Effect(
            {"version": "v2"},
            World.called,
            "/v2/first [redacted]",
            OPERATION
            | {
                ApiSource: {
                    "base_url": "",
                    "servers": _named_server("/{version}", variables={"version": {"default": "v1"}}),
                }
            },
        ),
        "secrets": Effect({}, World.called, "/first", OPERATION),
        "cycle_depth": OF_THE_NEXT_IMPORT,
        "output_schemas": OF_THE_NEXT_IMPORT,
        "selection": OF_THE_NEXT_IMPORT,
        "servers": Effect(
            _named_server("/v2"), World.called, "/v2/first [redacted]", OPERATION | {ApiSource: {"base_url": ""}}
        ),
        "schemes": Effect({"key": {"kind": "header", "name": "X-Other"}}, World.called, "/first", OPERATION),
        "revision": FOR_PEOPLE,
        "created_at": OF_THE_PAST,
        "updated_at": OF_THE_PAST,
    },
    PersonalToken: {
        "id": IDENTITY,
        "person": Effect(_colleague, lambda world: world.me("username"), "eve"),
        "name": FOR_PEOPLE,
        "prefix": SHOWN_PART,
        "digest": Effect("0" * 64, lambda world: world.me("username"), 401),
        "created_at": OF_THE_PAST,
        "expires_at": Effect(EARLIER, lambda world: world.me("username"), 401),
        "revoked_at": Effect(EARLIER, lambda world: world.me("username"), 401),
        "last_used_at": OF_THE_PAST,
    },
    User: {
        "id": IDENTITY,
        "password": Effect(
            lambda _: make_password("another horse"),
            lambda world: (world.logged_in(), world.passed()),
            (False, 401),
            final=True,
        ),
        "last_login": OF_THE_PAST,
        "is_superuser": Effect(True, lambda world: len(world.api("tenants/").json()["results"]), 2),
        "username": Effect("lovelace", lambda world: world.me("username"), "lovelace"),
        "first_name": FOR_PEOPLE,
        "last_name": FOR_PEOPLE,
        "email": Effect("new@example.com", lambda world: world.me("email"), "new@example.com"),
        "is_staff": NoEffect("Nothing asks for it: members of a tenant and superusers enter the admin."),
        "is_active": Effect(False, lambda world: (world.me("username"), world.passed()), (401, 401)),
        "date_joined": OF_THE_PAST,
    },
}
