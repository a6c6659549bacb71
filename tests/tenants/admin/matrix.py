"""The expected status of every page of the admin for each role: the table of `test_roles.py`. A new page needs a line.

A line is the name of a URL pattern with the roles that may GET and POST it:

- `row(…)`: the page shows a row of the tenant acme: 404 for the stranger, who is an admin of another tenant;
- `only_for(…)`: it shows a row of one user: 404 for everyone else;
- `site(…)`: it shows no single row.

The named roles are let in; other members get 403, everyone else is redirected to the login.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

OK, LOGIN, FORBIDDEN, MISSING, WRONG_VERB = 200, 302, 403, 404, 405

# In acme, but for the stranger, who is an admin elsewhere; an outsider has an account and no tenant.
ROLES: Final = ("superuser", "admin", "auditor", "operator", "stranger", "outsider", "anonymous")
INSIDE: Final = ROLES[:5]

READ: Final = frozenset({"superuser", "admin", "auditor", "operator"})
AUDIT: Final = READ - {"operator"}
RUN: Final = frozenset({"superuser", "admin"})
SUPERUSER: Final = frozenset({"superuser"})
NOBODY: Final = frozenset[str]()
EVERYBODY: Final = READ | {"stranger"}
ANYWHERE: Final = RUN | {"stranger"}
ALL: Final = frozenset(ROLES)

NO_ROW: Final = {"others": MISSING, "stranger": MISSING}
TYPE_AND_ROW: Final = ("content_type_id", "object_id")

Values = Callable[[Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Verb:
    """The roles that are let in, and the status for other members. `sent` makes the form data from the world."""

    who: frozenset[str]
    others: int = FORBIDDEN
    stranger: int = MISSING
    admin: int | None = None
    sent: Values = lambda _world: {}

    def status(self, role: str) -> int:
        """The expected status for this role; OK stands for any response that is no refusal."""
        if role in self.who:
            return OK
        if role not in INSIDE:
            return LOGIN
        if role == "admin" and self.admin is not None:
            return self.admin
        return self.stranger if role == "stranger" else self.others


@dataclass(frozen=True)
class Page:
    """One URL pattern. `about`: the row of the world in its URL. A verb that is None gets 405."""

    get: Verb | None
    post: Verb | None = None
    about: str = ""
    words: Mapping[str, str] = field(default_factory=dict)


def row(who: frozenset[str], **more: Any) -> Verb:
    return Verb(who, **more)


def only_for(who: str) -> Verb:
    return Verb(frozenset({who}), others=MISSING)


def site(who: frozenset[str], **more: Any) -> Verb:
    return Verb(who, **{"stranger": FORBIDDEN, **more})


# A page that does the same on POST as on GET; actions of lists have their own tests.
UNASKED: Final = Verb(ALL)


def model(
    name: str,
    *,
    change: frozenset[str] = RUN,
    delete: frozenset[str] = RUN,
    add: frozenset[str] = ANYWHERE,
    read: frozenset[str] = READ,
) -> dict[str, Page]:
    """The pages that every model has."""
    about = name.rpartition("_")[2]
    return {
        f"{name}_changelist": Page(site(EVERYBODY), UNASKED),
        f"{name}_add": Page(site(add), site(add)),
        f"{name}_change": Page(row(read), row(change), about),
        f"{name}_history": Page(row(read), UNASKED, about),
        f"{name}_delete": Page(row(delete), row(delete), about),
    }


def record(name: str, **more: Any) -> dict[str, Page]:
    """The pages of a model that the hub writes and no user changes."""
    return model(name, change=NOBODY, delete=NOBODY, add=NOBODY, **more)


def hub(name: str) -> dict[str, Page]:
    """The pages of a model without a tenant, for superusers only."""
    about = name.rpartition("_")[2]
    listed = {f"{name}_{view}": Page(site(SUPERUSER), site(SUPERUSER)) for view in ("changelist", "add")}
    return listed | {
        f"{name}_{view}": Page(site(SUPERUSER), site(SUPERUSER), about) for view in ("change", "history", "delete")
    }


def client_pages() -> dict[str, Page]:
    """The pages of OAuth clients, which can only be blocked. Admins see the clients of their connections."""
    name, nobody = "tools_app_oauthclient", row(NOBODY)
    return {
        f"{name}_changelist": Page(site(ANYWHERE), UNASKED),
        f"{name}_add": Page(site(NOBODY), site(NOBODY)),
        f"{name}_change": Page(row(RUN), nobody, "oauthclient"),
        f"{name}_history": Page(row(RUN), UNASKED, "oauthclient"),
        f"{name}_delete": Page(nobody, nobody, "oauthclient"),
        f"{name}_block_client": Page(row(SUPERUSER), row(SUPERUSER), "oauthclient"),
        f"{name}_unblock_client": Page(row(SUPERUSER, admin=MISSING), row(SUPERUSER, admin=MISSING), "blockedclient"),
    }


def personal(name: str) -> dict[str, Page]:
    """The pages of a model whose rows belong to one user, acme's admin."""
    about = name.rpartition("_")[2]
    nobody = Verb(NOBODY, others=MISSING, admin=FORBIDDEN)
    return {
        f"{name}_changelist": Page(site(EVERYBODY), UNASKED),
        f"{name}_add": Page(site(EVERYBODY), site(EVERYBODY)),
        f"{name}_change": Page(only_for("admin"), nobody, about),
        f"{name}_history": Page(only_for("admin"), UNASKED, about),
        f"{name}_delete": Page(nobody, nobody, about),
    }


def of_tenant(world: Any) -> Mapping[str, Any]:
    return {"tenant": world.tenant.pk, "patterns": ""}


def of_key(world: Any) -> Mapping[str, Any]:
    return {"key": world.apikey.pk}


def adding(name: str, *views: str) -> dict[str, Page]:
    """Further pages that add rows of a model."""
    return {f"{name}_{view}": Page(site(ANYWHERE), site(ANYWHERE)) for view in views}


PAGES: Final[dict[str, Page]] = {
    # --- The site -------------------------------------------------------------------------------------------------
    "index": Page(site(EVERYBODY), UNASKED),
    "login": Page(site(ALL), UNASKED),
    "logout": Page(None, site(ALL)),
    "password_change": Page(site(EVERYBODY), site(EVERYBODY)),
    "password_change_done": Page(site(EVERYBODY)),
    "autocomplete": Page(site(NOBODY)),
    "jsi18n": Page(site(EVERYBODY)),
    "search": Page(site(EVERYBODY), UNASKED),
    "app_list": Page(site(EVERYBODY), UNASKED),
    "view_on_site": Page(site(NOBODY, **NO_ROW), site(NOBODY, **NO_ROW), words=dict.fromkeys(TYPE_AND_ROW, "0")),
    "evidence": Page(site(EVERYBODY), UNASKED),
    "evidence_checkpoints": Page(site(SUPERUSER)),
    "health": Page(site(SUPERUSER)),
    # --- Keys and clients -----------------------------------------------------------------------------------------
    **model("tools_app_apikey", delete=NOBODY),
    "tools_app_apikey_preview": Page(None, row(RUN, sent=of_tenant)),
    "tools_app_apikey_names": Page(row(RUN, sent=of_tenant)),
    "tools_app_apikey_issued": Page(row(RUN), None, "apikey"),
    "tools_app_apikey_connect_key": Page(row(READ), row(READ), "apikey"),
    "tools_app_apikey_rotate_key": Page(row(RUN), row(RUN), "apikey"),
    "tools_app_apikey_overlap_key": Page(row(RUN), row(RUN), "replaced"),
    "tools_app_apikey_revoke_key": Page(row(RUN), row(RUN), "apikey"),
    "connect": Page(row(READ), None, "apikey"),
    **record("tools_app_connection"),
    "tools_app_connection_calls_of_connection": Page(row(READ), row(READ), "connection"),
    "tools_app_connection_sign_ins_of_connection": Page(row(READ), row(READ), "connection"),
    "tools_app_connection_change_access": Page(row(RUN), row(RUN), "connection"),
    "tools_app_connection_end_connection": Page(row(RUN), row(RUN), "connection"),
    **model("tools_app_serviceclient", delete=NOBODY),
    "tools_app_serviceclient_issued": Page(row(RUN), None, "serviceclient"),
    "tools_app_serviceclient_calls_of_client": Page(row(READ), row(READ), "serviceclient"),
    "tools_app_serviceclient_rotate_secret": Page(row(RUN), row(RUN), "serviceclient"),
    "tools_app_serviceclient_revoke_client": Page(row(RUN), row(RUN), "serviceclient"),
    **model("tools_app_clientpolicy"),
    **model("tools_app_issuer"),
    "tools_app_issuer_try_token": Page(row(RUN), row(RUN), "issuer"),
    "tools_app_issuer_directory_token": Page(row(RUN), row(RUN), "issuer"),
    "tools_app_issuer_withdraw_directory": Page(row(RUN), row(RUN), "issuer"),
    "tools_app_issuer_directory_issued": Page(row(RUN), None, "issuer"),
    **model("tools_app_tenantscope"),
    **model("tools_app_toolset"),
    "tools_app_toolset_preview": Page(None, row(RUN, sent=of_tenant)),
    **record("tools_app_signinevent"),
    **client_pages(),
    "playground": Page(site(ANYWHERE)),
    "playground_pass": Page(None, row(RUN, sent=of_key)),
    "playground_code": Page(None, row(RUN, sent=of_key)),
    "playground_records": Page(row(RUN, sent=of_key)),
    # --- People ---------------------------------------------------------------------------------------------------
    **model("tools_app_invitation", change=NOBODY, delete=NOBODY),
    "tools_app_invitation_link": Page(row(RUN), None, "invitation"),
    "tools_app_invitation_renew_link": Page(row(RUN), row(RUN), "invitation"),
    "tools_app_invitation_revoke_invitation": Page(row(RUN), row(RUN), "invitation"),
    **model("tools_app_membership", add=SUPERUSER),
    "tools_app_membership_invite": Page(site(ANYWHERE), site(ANYWHERE)),
    **model("tools_app_tenant", delete=SUPERUSER, add=SUPERUSER),
    "tools_app_tenant_export_configuration": Page(row(AUDIT), row(AUDIT), "tenant"),
    "tools_app_tenant_import_configuration": Page(row(RUN), row(RUN), "tenant"),
    **hub("auth_user"),
    "auth_user_remove_factors": Page(site(SUPERUSER), site(SUPERUSER), "user"),
    "auth_user_password_change": Page(site(SUPERUSER), site(SUPERUSER), "user"),
    **personal("tools_app_personaltoken"),
    "tools_app_personaltoken_issued": Page(only_for("admin"), None, "personaltoken"),
    "tools_app_personaltoken_revoke_token": Page(only_for("admin"), only_for("admin"), "personaltoken"),
    # --- The catalogue --------------------------------------------------------------------------------------------
    **model("tools_app_tool"),
    **adding("tools_app_tool", "add_python_tools", "add_http_tool"),
    "tools_app_tool_try_tool": Page(row(RUN), row(RUN), "tool"),
    "tools_app_tool_clone_tool": Page(row(RUN), row(RUN), "tool"),
    "tools_app_tool_show_revisions": Page(row(READ), row(RUN, sent=lambda _world: {"restore": "1"}), "tool"),
    "tool_draft": Page(None, site(ANYWHERE)),
    "tool_secrets": Page(row(RUN, sent=of_tenant)),
    "tool_store_secret": Page(None, row(RUN, sent=of_tenant)),
    "tool_trial": Page(None, row(RUN, sent=of_tenant)),
    **model("tools_app_resource"),
    **adding(
        "tools_app_resource",
        "add_python_resources",
        "add_text_resource",
        "add_file_resource",
        "add_http_resource",
    ),
    "tools_app_resource_download": Page(row(READ), row(READ), "file"),
    **model("tools_app_prompt"),
    **adding("tools_app_prompt", "add_python_prompts", "add_prompt"),
    **model("tools_app_upstream"),
    "tools_app_upstream_sample": Page(None, row(RUN, sent=of_tenant)),
    "tools_app_upstream_review": Page(row(READ), row(RUN), "upstream"),
    "tools_app_upstream_show_health": Page(
        site(ANYWHERE), row(RUN, sent=lambda world: {"check": str(world.upstream.pk)})
    ),
    **model("tools_app_secret"),
    **model("tools_app_apisource"),
    "tools_app_apisource_sample": Page(None, row(RUN, sent=of_tenant)),
    "tools_app_apisource_show_operations": Page(row(READ), row(RUN), "apisource"),
    # --- Alerts ---------------------------------------------------------------------------------------------------
    **model("tools_app_alertrule"),
    "tools_app_alertrule_send_test": Page(row(RUN), row(RUN), "alertrule"),
    **model("tools_app_alertdestination"),
    "tools_app_alertdestination_issued": Page(row(RUN), None, "alertdestination"),
    "tools_app_alertdestination_send_test": Page(row(RUN), row(RUN), "alertdestination"),
    "tools_app_alertdestination_rotate_secret": Page(row(RUN), row(RUN), "alertdestination"),
    **record("tools_app_alert"),
    **record("tools_app_alertdelivery"),
    # --- Records --------------------------------------------------------------------------------------------------
    **record("tools_app_call"),
    "tools_app_call_panel": Page(row(READ), None, "call"),
    "tools_app_call_count": Page(site(EVERYBODY)),
    "tools_app_call_download": Page(row(AUDIT), row(NOBODY), "call", {"part": "result"}),
    **record("tools_app_runningcall"),
    "tools_app_runningcall_news": Page(row(READ), UNASKED, "runningcall"),
    "tools_app_runningcall_cancel": Page(row(NOBODY), row(RUN), "runningcall"),
    **record("tools_app_session"),
    "tools_app_session_end": Page(row(NOBODY), row(RUN), "session"),
    **record("tools_app_change"),
    "retention": Page(site(ANYWHERE)),
    "live_tail": Page(site(EVERYBODY)),
    "failures": Page(site(EVERYBODY)),
    "searches": Page(site(AUDIT | {"stranger"})),
    "live_tail_calls": Page(site(EVERYBODY)),
    "filter_save": Page(None, site(EVERYBODY)),
    "filter_rename": Page(None, only_for("admin"), "filter"),
    "filter_delete": Page(None, only_for("admin"), "filter"),
    "exports": Page(site(EVERYBODY)),
    "export_start": Page(None, site(EVERYBODY)),
    "export": Page(only_for("admin"), None, "export"),
    "export_progress": Page(only_for("admin"), None, "export"),
    "export_download": Page(only_for("admin"), None, "export"),
}
