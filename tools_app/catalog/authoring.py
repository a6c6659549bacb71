"""Changes of a tenant's catalog: the only module that writes tools, revisions, resources, prompts and secrets.

Each change is one transaction. `catalog.versioned` increments the version of the tenant's catalog.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import orjson
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.forms.models import model_to_dict
from django.utils import timezone

from tools_app.audit.changes import changes, signals
from tools_app.catalog import prompt_functions as prompts
from tools_app.catalog import resource_functions as resources
from tools_app.catalog import versioned
from tools_app.catalog.kinds.base import kind_of
from tools_app.catalog.kinds.http.config import secrets_of
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.catalog.validation.mime_types import mime_type_of
from tools_app.core import encryption
from tools_app.core.notifications import publish
from tools_app.core.telemetry.logs import first_of
from tools_app.models import (
    Action,
    ApiSource,
    Prompt,
    Resource,
    ResourceKind,
    Secret,
    Tenant,
    Tool,
    ToolRevision,
)

log = logging.getLogger(__name__)

# Of functions: the same for tools, resources and prompts.
PYTHON: Final = "python"
Switchable = Tool | Resource | Prompt
Offer = ApiSource | Switchable
R = TypeVar("R", Resource, Prompt)

DEFINITION_FIELDS = (
    "name",
    "kind",
    "title",
    "description",
    "input_schema",
    "output_schema",
    "annotations",
    "icons",
    "config",
    "background",
    "task",
    "timeout_seconds",
    *SHAPING_FIELDS,
)


def definition_of(tool: Tool) -> dict[str, Any]:
    """Return the current definition of a tool in the form of a revision."""
    return {name: getattr(tool, name) for name in DEFINITION_FIELDS}


def save_tool(tool: Tool, by: User | None = None) -> Tool:
    """Save `tool`, with a new revision if its definition changed. The caller has validated it.

    Raises python.UnknownFunction if no installed app registers the function of a Python tool.
    """
    with changes.change_log_transaction():
        read_code(tool)
        tool.updated_at = timezone.now()
        definition = definition_of(tool)
        digest = _digest(definition)
        changed = tool.revision == 0
        if not changed:
            newest = tool.revisions.order_by("-number").values_list("number", flat=True).first()
            tool.revision = max(tool.revision, newest or 0)  # another process may have saved it since it was read
            changed = not tool.revisions.filter(number=tool.revision, digest=digest).exists()
        if changed:
            tool.revision += 1
        tool.save()
        if changed:
            ToolRevision.objects.create(
                tool=tool, number=tool.revision, definition=definition, digest=digest, created_by=by
            )
    return tool


def create_tools(tools: list[Tool], by: User | None = None) -> list[Tool]:
    """Add many tools that are not code, each with its first revision, in few writes. The caller has validated them."""
    with single_version_bump():
        for tool in tools:
            tool.revision = 1
        Tool.objects.bulk_create(tools, batch_size=changes.BATCH)
        revisions = []
        for tool in tools:
            definition = definition_of(tool)
            revision = ToolRevision(
                tool=tool, number=1, definition=definition, digest=_digest(definition), created_by=by
            )
            revisions.append(revision)
        ToolRevision.objects.bulk_create(revisions, batch_size=changes.BATCH)
        changes.record_created((tool, signals.filled(tool, signals.current_values(tool))) for tool in tools)
    return tools


def read_code(row: Switchable) -> None:
    """Copy the declaration of the code into the row of a Python function, so that pages and revisions have it.

    Raises python.UnknownFunction if no installed app registers the function.
    """
    if isinstance(row, Tool):
        kind_of(row.kind).adopt(row)
        return
    if row.kind != ResourceKind.PYTHON:
        return
    name = row.config.get("function", "")
    code: Any
    if isinstance(row, Resource):
        resource = resources.registered(name)
        if resource is None:
            raise python.UnknownFunction(row.uri)
        code = resource.definition
        row.name, row.mime_type, row.annotations = code.name, code.mime_type, dict(code.annotations)
        row.timeout_seconds = resource.timeout_seconds
    else:
        prompt = prompts.registered(name)
        if prompt is None:
            raise python.UnknownFunction(row.name)
        code = prompt.definition
        row.arguments = [
            {"name": one.name, "description": one.description, "required": one.required} for one in code.arguments
        ]
    row.title, row.description, row.icons = code.title, code.description, list(code.icons)


def save_resource(resource: Resource) -> Resource:
    """Save `resource` and notify its subscribers. A file without a MIME type gets one.

    The caller has validated it.
    """
    read_code(resource)
    resource.mime_type = mime_type_of(resource)
    return _save(resource)


def save_prompt(prompt: Prompt) -> Prompt:
    """Save `prompt`. The caller has validated it."""
    read_code(prompt)
    return _save(prompt)


def delete(row: Offer) -> None:
    """Delete a tool with its revisions, an API source with its tools, a resource or a prompt. Recorded calls stay."""
    with changes.change_log_transaction():
        row.delete()


def set_enabled(row: Switchable, enabled: bool) -> bool:
    """Enable or disable a tool, a resource or a prompt. Returns False if nothing changed."""
    with changes.change_log_transaction():
        same = type(row)._default_manager.filter(pk=row.pk, enabled=not enabled)
        changed = same.update(enabled=enabled, updated_at=timezone.now())
        if changed:
            changes.record(Action.CHANGED, row, before={"enabled": not enabled}, after={"enabled": enabled})
    return bool(changed)


def switch(rows: Iterable[Switchable], enabled: bool) -> list[Switchable]:
    """Enable or disable several rows, all or none; returns those that changed. Each tenant's lists change once."""
    with single_version_bump():
        return [row for row in rows if set_enabled(row, enabled)]


@contextmanager
def single_version_bump() -> Iterator[None]:
    """Run changes to several rows in one transaction that counts as one change of each tenant's lists."""
    with changes.change_log_transaction(), versioned.touch_once():
        yield


def add_code_tools(tenant: Tenant, names: list[str], by: User | None = None) -> list[Tool]:
    """Add the registered functions `names` as tools of `tenant`; existing tools are not changed."""
    present = set(tenant.tools.filter(name__in=names).values_list("name", flat=True))
    with single_version_bump():
        return [
            save_tool(Tool(tenant=tenant, name=name, kind=PYTHON, config={"function": name}), by)
            for name in names
            if name not in present
        ]


def add_code_resources(tenant: Tenant, uris: list[str]) -> list[Resource]:
    """Add the registered resources `uris` to `tenant`; existing ones are not changed."""
    present = set(tenant.resources.filter(uri__in=uris).values_list("uri", flat=True))
    with single_version_bump():
        return [
            save_resource(Resource(tenant=tenant, uri=uri, kind=PYTHON, config={"function": uri}))
            for uri in uris
            if uri not in present
        ]


def add_code_prompts(tenant: Tenant, names: list[str]) -> list[Prompt]:
    """Add the registered prompts `names` to `tenant`; existing ones are not changed."""
    present = set(tenant.prompts.filter(name__in=names).values_list("name", flat=True))
    with single_version_bump():
        return [
            save_prompt(Prompt(tenant=tenant, name=name, kind=PYTHON, config={"function": name}))
            for name in names
            if name not in present
        ]


def resource_topic(tenant_id: Any) -> str:
    """Return the topic of changes to a tenant's resources; the URI is the notification's detail."""
    return f"resource:{tenant_id}"


def resource_updated(tenant_id: Any, uri: str) -> None:
    """Notify the subscribers of `uri` that its contents changed, once the transaction is committed."""
    with transaction.atomic():
        if not Resource.objects.filter(tenant_id=tenant_id, uri=uri).update(updated_at=timezone.now()):
            transaction.on_commit(lambda: publish.notify(f"{resource_topic(tenant_id)}|{uri}"))


def _save(row: R) -> R:
    with changes.change_log_transaction():
        row.updated_at = timezone.now()
        row.save()
    return row


def sync_code() -> list[Switchable]:
    """Update every row of a Python function to the declaration of its code; returns the rows that changed.

    A tool gets a new revision. Each row is read again under the lock, since all of it is saved: it may have been
    disabled or deleted meanwhile.
    """
    changed: list[Switchable] = []
    for model, save in ((Tool, save_tool), (Resource, _save), (Prompt, _save)):
        rows: QuerySet[Any] = model._default_manager.filter(kind=PYTHON).select_related("tenant")
        for key in [row.pk for row in rows if _differs_from_code(row)]:
            with changes.change_log_transaction():
                row = rows.select_for_update(of=("self",)).filter(pk=key).first()
                if row is not None and _differs_from_code(row):
                    changed.append(save(row))
    return changed


def _differs_from_code(row: Switchable) -> bool:
    """Copy the declaration of the code into the row; return whether it differs from the row, or the tool's revision."""
    before = model_to_dict(row)
    try:
        read_code(row)
    except python.UnknownFunction:
        return False
    if isinstance(row, Tool):
        return not row.revisions.filter(number=row.revision, digest=_digest(definition_of(row))).exists()
    return model_to_dict(row) != before


def secrets_named_by(row: Switchable) -> set[str]:
    """Return the names of the secrets that the request of a tool or resource uses. An invalid one uses none."""
    if isinstance(row, Tool):
        return kind_of(row.kind).secret_names(row.config)
    return secrets_of(row.config) if isinstance(row, Resource) and row.kind == ResourceKind.HTTP else set()


def set_secret(tenant: Tenant, name: str, value: str) -> Secret:
    """Store `value` under `name`, encrypted, in place of any earlier value."""
    with changes.change_log_transaction():
        secret, _ = Secret.objects.update_or_create(
            tenant=tenant,
            name=name,
            defaults={
                "ciphertext": encrypt_secret(tenant.pk, name, value),
                "updated_at": timezone.now(),
            },
        )
    return secret


def encrypt_secret(tenant_id: Any, name: str, value: str) -> bytes:
    """Return a value encrypted as in the row of a tenant's secret."""
    return encryption.seal(value.encode(), _purpose(tenant_id, name))


def delete_secret(secret: Secret) -> None:
    """Delete a secret. Tools that use it return an error from now on."""
    with changes.change_log_transaction():
        secret.delete()


def decrypt_secret(secret: Secret) -> str:
    """Return the value that `set_secret` stored. Raises encryption.DecryptionError."""
    return encryption.unseal(bytes(secret.ciphertext), _purpose(secret.tenant_id, secret.name)).decode()


def decrypted_secrets(tenant: Tenant) -> dict[str, str]:
    """Return the values of a tenant's secrets; those that cannot be decrypted are left out."""
    opened: dict[str, str] = {}
    unreadable: list[str] = []
    for secret in tenant.secrets.all():
        try:
            opened[secret.name] = decrypt_secret(secret)
        except encryption.DecryptionError:
            unreadable.append(secret.name)
    if unreadable:
        count, names = len(unreadable), first_of(unreadable)
        log.warning("%d secrets of tenant %s were encrypted with another key: %s", count, tenant.slug, names)
    return opened


def _digest(definition: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _purpose(tenant_id: Any, name: str) -> str:
    return f"secret:{tenant_id}:{name}"
