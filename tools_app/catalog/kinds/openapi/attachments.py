"""Resources of the hub as files of an operation: an argument names the URI in place of the bytes.

Only texts and files that the hub stores can be named. Whether the caller may read them is checked before the call runs.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import Sum
from django.db.models.functions import Length

from tools_app.catalog.kinds.base import NO_SUCH_RESOURCE
from tools_app.catalog.kinds.openapi.config import OperationConfig
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.config import config
from tools_app.core.database import run_in_db_thread
from tools_app.models import Resource, ResourceKind

RESOURCE: Final = "resource"
STORED: Final = (ResourceKind.TEXT, ResourceKind.FILE)
MAX_ATTACHED: Final = 20


class Attachments:
    """The arguments of an operation that can name resources."""

    def __init__(self, operation: OperationConfig) -> None:
        body = operation.body
        fields = () if body is None else body.fields
        self._files = frozenset(one.argument for one in fields if one.is_file)
        # A binary body is text in base64, or an object that names a resource.
        self._whole = body.argument if body is not None and body.mode == "base64" else ""

    def __bool__(self) -> bool:
        return bool(self._files or self._whole)

    def uris(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the URIs that arguments name, with the name of the argument of each."""
        for name in (*sorted(self._files), self._whole):
            for one in _listed(arguments.get(name)):
                if _names_resource(one):
                    yield name, one[RESOURCE]

    async def filled(self, arguments: dict[str, Any], tenant_id: UUID) -> dict[str, Any]:
        """Return the arguments with the bytes of the resources that they name. Raises ToolError."""
        wanted = list(dict.fromkeys(uri for _, uri in self.uris(arguments)))
        if not wanted:
            return arguments
        if len(wanted) > MAX_ATTACHED:
            raise ToolError(f"A call sends at most {MAX_ATTACHED} resources.")
        found = await run_in_db_thread(_load, tenant_id, wanted)
        if missing := next((uri for uri in wanted if uri not in found), None):
            raise ToolError(f"{missing[:200]}: {NO_SUCH_RESOURCE}")
        filled_arguments = dict(arguments)
        for name in self._files & arguments.keys():
            value = arguments[name]
            filled = [
                {**found[one[RESOURCE]], **{name: one[name] for name in ("filename", "media_type") if name in one}}
                if _names_resource(one)
                else one
                for one in _listed(value)
            ]
            filled_arguments[name] = filled if isinstance(value, list) else filled[0]
        if self._whole and _names_resource(arguments.get(self._whole)):
            filled_arguments[self._whole] = found[arguments[self._whole][RESOURCE]]["data"]
        return filled_arguments


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _names_resource(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get(RESOURCE), str)


def _load(tenant_id: UUID, uris: list[str]) -> dict[str, dict[str, str]]:
    rows = Resource.objects.filter(tenant=tenant_id, uri__in=uris, enabled=True, kind__in=STORED)
    # As much as a client could send itself.
    most, sizes = config.MCPHUB_MAX_BODY_BYTES, rows.aggregate(texts=Sum(Length("text")), files=Sum(Length("blob")))
    if sum(size or 0 for size in sizes.values()) > most:
        raise ToolError(f"The resources of a call have at most {most} bytes together (MCPHUB_MAX_BODY_BYTES).")
    files: dict[str, dict[str, str]] = {}
    for row in rows:
        is_text = row.kind == ResourceKind.TEXT
        data = row.text.encode() if is_text else bytes(row.blob)
        kind = row.mime_type or ("text/plain" if is_text else "application/octet-stream")
        name = row.uri.rstrip("/").rpartition("/")[2] or row.name
        files[row.uri] = {"data": b64encode(data).decode(), "filename": name, "media_type": kind}
    return files
