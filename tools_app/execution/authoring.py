"""How a tenant's catalog changes: the only place that writes tools, revisions, resources, prompts and secrets.

Each change is one transaction that also raises the tenant's catalog version, and rings every process once it is
committed, so that open streams hear which list changed.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import orjson
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.forms.models import model_to_dict
from django.utils import timezone

from tools_app.audit import changes
from tools_app.auth import vault
from tools_app.events import publish
from tools_app.execution.kinds import python
from tools_app.execution.offers import prompts, resources
from tools_app.models import (
    Action,
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    Secret,
    Tenant,
    Tool,
    ToolKind,
    ToolRevision,
)

Offer = Tool | Resource | Prompt
# Tenants whose lists changed in a transaction that tells of it at its end; None where each change does.
_waiting: ContextVar[set[Any] | None] = ContextVar("waiting", default=None)
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
)


def save_tool(tool: Tool, by: User | None = None) -> Tool:
    """Write `tool`, with a new revision if its definition changed. The caller has validated it."""
    with changes.in_turn():
        adopt_code(tool)
        tool.updated_at = timezone.now()
        newest = tool.revisions.order_by("-number").values_list("number", flat=True).first()
        tool.revision = max(tool.revision, newest or 0)  # somebody may have saved it since it was read
        definition = {name: getattr(tool, name) for name in DEFINITION_FIELDS}
        digest = _digest(definition)
        changed = not tool.revisions.filter(number=tool.revision, digest=digest).exists()
        if changed:
            tool.revision += 1
        tool.save()
        if changed:
            ToolRevision.objects.create(
                tool=tool, number=tool.revision, definition=definition, digest=digest, created_by=by
            )
        touch(tool.tenant_id)
    return tool


def adopt_code(tool: Tool) -> None:
    """Copy what the code of a Python tool declares into its row, so that its revision records it.

    Raises python.UnknownFunction if no installed app registers the function any more.
    """
    if tool.kind != ToolKind.PYTHON:
        return
    function = python.registered(tool.config.get("function", ""))
    tool.title = function.definition.title
    tool.description = function.definition.description
    tool.input_schema = dict(function.definition.input_schema)
    tool.output_schema = dict(function.definition.output_schema) if function.definition.output_schema else None
    tool.annotations = dict(function.definition.annotations)
    tool.icons = list(function.definition.icons)
    tool.background = function.background
    tool.task = function.task
    tool.timeout_seconds = function.timeout_seconds


def save_resource(resource: Resource) -> Resource:
    """Write `resource`; those who subscribed to it hear of the change. The caller has validated it."""
    adopt_resource(resource)
    return _save(resource)


def save_prompt(prompt: Prompt) -> Prompt:
    """Write `prompt`. The caller has validated it."""
    adopt_prompt(prompt)
    return _save(prompt)


def delete(row: Offer) -> None:
    """Remove a tool with its revisions, a resource or a prompt. Recorded calls stay."""
    with changes.in_turn():
        tenant_id = row.tenant_id
        row.delete()
        touch(tenant_id)


def set_enabled(row: Offer, enabled: bool) -> bool:
    """Switch a tool, a resource or a prompt on or off. False if it stood so already."""
    with changes.in_turn():
        same = type(row)._default_manager.filter(pk=row.pk, enabled=not enabled)
        changed = same.update(enabled=enabled, updated_at=timezone.now())
        if changed:
            changes.record(Action.CHANGED, row, before={"enabled": not enabled}, after={"enabled": enabled})
            touch(row.tenant_id)
    return bool(changed)


def switch(rows: Iterable[Offer], enabled: bool) -> list[Offer]:
    """Switch many on or off, all or none; those that stood otherwise before. Their tenants' lists change once."""
    with one_touch():
        return [row for row in rows if set_enabled(row, enabled)]


@contextmanager
def one_touch() -> Iterator[None]:
    """One transaction for changes to many rows, after which the lists of each tenant count as changed once."""
    with changes.in_turn():
        waiting: set[Any] = set()
        token = _waiting.set(waiting)
        try:
            yield
        finally:
            _waiting.reset(token)
        for tenant_id in waiting:
            touch(tenant_id)


def add_code_tools(tenant: Tenant, names: list[str], by: User | None = None) -> list[Tool]:
    """Offer the registered functions `names` to `tenant`; those it has already are left alone."""
    present = set(tenant.tools.filter(name__in=names).values_list("name", flat=True))
    wanted = [name for name in names if name not in present]
    return [
        save_tool(Tool(tenant=tenant, name=name, kind=ToolKind.PYTHON, config={"function": name}), by)
        for name in wanted
    ]


def add_code_resources(tenant: Tenant, uris: list[str]) -> list[Resource]:
    """Offer the registered resources `uris` to `tenant`; those it has already are left alone."""
    present = set(tenant.resources.filter(uri__in=uris).values_list("uri", flat=True))
    return [
        save_resource(Resource(tenant=tenant, uri=uri, kind=ResourceKind.PYTHON, config={"function": uri}))
        for uri in uris
        if uri not in present
    ]


def add_code_prompts(tenant: Tenant, names: list[str]) -> list[Prompt]:
    """Offer the registered prompts `names` to `tenant`; those it has already are left alone."""
    present = set(tenant.prompts.filter(name__in=names).values_list("name", flat=True))
    return [
        save_prompt(Prompt(tenant=tenant, name=name, kind=PromptKind.PYTHON, config={"function": name}))
        for name in names
        if name not in present
    ]


def resource_topic(tenant_id: Any) -> str:
    """What is rung when a resource of a tenant changed; its URI is the detail."""
    return f"resource:{tenant_id}"


def resource_updated(tenant_id: Any, uri: str) -> None:
    """Tell those who subscribed to `uri` that what it holds has changed, once the transaction is committed."""
    with transaction.atomic():
        changed = Resource.objects.filter(tenant_id=tenant_id, uri=uri).update(updated_at=timezone.now())
        if changed:
            touch(tenant_id)
        else:
            transaction.on_commit(lambda: publish.ring(f"{resource_topic(tenant_id)}|{uri}"))


def _save(row: R) -> R:
    with changes.in_turn():
        row.updated_at = timezone.now()
        row.save()
        touch(row.tenant_id)
    return row


def adopt_resource(resource: Resource) -> None:
    """Copy what the code of a Python resource declares into its row, where people look. Raises UnknownFunction."""
    if resource.kind != ResourceKind.PYTHON:
        return
    function = resources.registered(resource.config.get("function", ""))
    if function is None:
        raise python.UnknownFunction(resource.uri)
    code = function.definition
    resource.name, resource.title, resource.description = code.name, code.title, code.description
    resource.mime_type, resource.annotations = code.mime_type, dict(code.annotations)
    resource.icons = list(code.icons)
    resource.timeout_seconds = function.timeout_seconds


def adopt_prompt(prompt: Prompt) -> None:
    """The same for a Python prompt. Raises UnknownFunction."""
    if prompt.kind != PromptKind.PYTHON:
        return
    function = prompts.registered(prompt.config.get("function", ""))
    if function is None:
        raise python.UnknownFunction(prompt.name)
    code = function.definition
    prompt.title, prompt.description, prompt.icons = code.title, code.description, list(code.icons)
    prompt.arguments = [
        {"name": one.name, "description": one.description, "required": one.required} for one in code.arguments
    ]


def sync_code() -> list[Offer]:
    """Bring every row of a Python function up to what its code declares: those that changed."""
    return [*sync_code_tools(), *_synced(Resource, adopt_resource), *_synced(Prompt, adopt_prompt)]


def _synced(model: type[R], adopt: Callable[[R], None]) -> list[R]:
    """The rows of Python functions whose code declares something else than they say, saved as it does."""
    changed = []
    for row in model._default_manager.filter(kind="python").select_related("tenant"):
        before = model_to_dict(row)
        try:
            adopt(row)
        except python.UnknownFunction:
            continue
        if model_to_dict(row) != before:
            changed.append(_save(row))
    return changed


def sync_code_tools() -> list[Tool]:
    """Record a new revision of each Python tool whose code declares something else than its row says."""
    changed = []
    for tool in Tool.objects.filter(kind=ToolKind.PYTHON).select_related("tenant"):
        before = tool.revision
        try:
            adopt_code(tool)
        except python.UnknownFunction:
            continue
        digest = _digest({name: getattr(tool, name) for name in DEFINITION_FIELDS})
        if not tool.revisions.filter(number=before, digest=digest).exists():
            changed.append(save_tool(tool))
    return changed


def set_secret(tenant: Tenant, name: str, value: str) -> Secret:
    """Store `value` under `name`, sealed; what was there before is gone."""
    with changes.in_turn():
        secret, _ = Secret.objects.update_or_create(
            tenant=tenant,
            name=name,
            defaults={
                "ciphertext": vault.seal(value.encode(), _purpose(tenant.pk, name)),
                "updated_at": timezone.now(),
            },
        )
        touch(tenant.pk)
    return secret


def delete_secret(secret: Secret) -> None:
    """Remove a secret. Tools that name it answer with an error from now on."""
    with changes.in_turn():
        tenant_id = secret.tenant_id
        secret.delete()
        touch(tenant_id)


def open_secret(secret: Secret) -> str:
    """The value that `set_secret` stored. Raises vault.Unsealable."""
    return vault.unseal(bytes(secret.ciphertext), _purpose(secret.tenant_id, secret.name)).decode()


def touch(tenant_id: Any) -> None:
    """Raise a tenant's catalog version and ring every process when the transaction is committed."""
    waiting = _waiting.get()
    if waiting is not None:
        waiting.add(tenant_id)
        return
    Tenant.objects.filter(pk=tenant_id).update(catalog_version=F("catalog_version") + 1)
    transaction.on_commit(lambda: publish.ring(f"catalog:{tenant_id}"))


def _digest(definition: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _purpose(tenant_id: Any, name: str) -> str:
    return f"secret:{tenant_id}:{name}"
