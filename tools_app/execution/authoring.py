"""How a tenant's catalog changes: the only place that writes tools, revisions and secrets.

Each change is one transaction that also raises the tenant's catalog version, and rings every process once it is
committed, so that open streams hear `notifications/tools/list_changed`.
"""

import hashlib
from typing import Any

import orjson
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from tools_app.auth import vault
from tools_app.events import publish
from tools_app.execution.kinds import python
from tools_app.models import Secret, Tenant, Tool, ToolKind, ToolRevision

DEFINITION_FIELDS = (
    "name",
    "kind",
    "title",
    "description",
    "input_schema",
    "output_schema",
    "annotations",
    "config",
    "background",
    "timeout_seconds",
)


def save_tool(tool: Tool, by: User | None = None) -> Tool:
    """Write `tool`, with a new revision if its definition changed. The caller has validated it."""
    with transaction.atomic():
        adopt_code(tool)
        tool.updated_at = timezone.now()
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
    tool.background = function.background
    tool.timeout_seconds = function.timeout_seconds


def delete_tool(tool: Tool) -> None:
    """Remove a tool and its revisions. Its recorded calls stay."""
    with transaction.atomic():
        tenant_id = tool.tenant_id
        tool.delete()
        touch(tenant_id)


def set_enabled(tool: Tool, enabled: bool) -> bool:
    """Switch a tool on or off. False if it stood so already."""
    with transaction.atomic():
        changed = Tool.objects.filter(pk=tool.pk, enabled=not enabled).update(
            enabled=enabled, updated_at=timezone.now()
        )
        if changed:
            touch(tool.tenant_id)
    return bool(changed)


def add_code_tools(tenant: Tenant, names: list[str], by: User | None = None) -> list[Tool]:
    """Offer the registered functions `names` to `tenant`; those it has already are left alone."""
    present = set(tenant.tools.filter(name__in=names).values_list("name", flat=True))
    wanted = [name for name in names if name not in present]
    return [
        save_tool(Tool(tenant=tenant, name=name, kind=ToolKind.PYTHON, config={"function": name}), by)
        for name in wanted
    ]


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
    with transaction.atomic():
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
    with transaction.atomic():
        tenant_id = secret.tenant_id
        secret.delete()
        touch(tenant_id)


def open_secret(secret: Secret) -> str:
    """The value that `set_secret` stored. Raises vault.Unsealable."""
    return vault.unseal(bytes(secret.ciphertext), _purpose(secret.tenant_id, secret.name)).decode()


def touch(tenant_id: Any) -> None:
    """Raise a tenant's catalog version and ring every process when the transaction is committed."""
    Tenant.objects.filter(pk=tenant_id).update(catalog_version=F("catalog_version") + 1)
    transaction.on_commit(lambda: publish.ring(f"catalog:{tenant_id}"))


def _digest(definition: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _purpose(tenant_id: Any, name: str) -> str:
    return f"secret:{tenant_id}:{name}"
