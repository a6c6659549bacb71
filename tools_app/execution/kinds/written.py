"""Resources and prompts that an admin writes: texts, files, requests, and messages with placeholders."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tools_app.execution.context import ToolContext
from tools_app.execution.kinds import http
from tools_app.execution.offers.completion import Completer, among
from tools_app.execution.offers.prompts import PromptArgument, PromptDefinition, Render
from tools_app.execution.offers.resources import Read
from tools_app.execution.results import PromptResult, ResourceNotFound, ResourceResult, contents, text
from tools_app.models import Prompt, Resource, ResourceKind
from tools_app.models.bridge import in_store

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def reader(row: Resource, secrets: Mapping[str, str], allowed_networks: Sequence[str]) -> Read:
    """How a written resource is read. Raises http.ConfigProblem for a request that is none."""
    if row.kind == ResourceKind.HTTP:
        config = http.parse_config(row.config)
        return http.http_reader(config, secrets, allowed_networks, row.timeout_seconds, row.mime_type)
    return StoredResource(row.pk, row.kind == ResourceKind.TEXT, row.mime_type).read


@dataclass(frozen=True)
class StoredResource:
    """A text or a file. It stays in the database until somebody reads it."""

    id: UUID
    is_text: bool
    mime_type: str

    async def read(self, uri: str, _variables: dict[str, str], _context: ToolContext) -> ResourceResult:
        """What is stored. Raises ResourceNotFound if it was deleted a moment ago."""
        value = await in_store(self._load)
        return ResourceResult([contents(uri, value, self.mime_type or ("text/plain" if self.is_text else None))])

    def _load(self) -> str | bytes:
        field = "text" if self.is_text else "blob"
        value = Resource.objects.filter(pk=self.id).values_list(field, flat=True).first()
        if value is None:
            raise ResourceNotFound
        return value if isinstance(value, str) else bytes(value)


def prompt_definition(row: Prompt) -> PromptDefinition:
    """What a client sees of a written prompt."""
    return PromptDefinition(
        name=row.name,
        title=row.title,
        description=row.description,
        arguments=tuple(
            PromptArgument(one["name"], one.get("description", ""), bool(one.get("required"))) for one in row.arguments
        ),
        icons=row.icons,
    )


def renderer(row: Prompt) -> Render:
    """How a written prompt is filled in: an argument that was not given leaves nothing behind."""
    names = {one["name"] for one in row.arguments}
    messages, description = list(row.messages), row.description

    async def render(arguments: dict[str, str], _context: ToolContext) -> PromptResult:
        def filled(source: str) -> str:
            return PLACEHOLDER.sub(lambda found: arguments.get(found[1], "") if found[1] in names else found[0], source)

        return PromptResult(
            [{"role": message["role"], "content": text(filled(message["text"]))} for message in messages], description
        )

    return render


def completers(row: Prompt) -> dict[str, Completer]:
    """Suggestions for the arguments that have some."""
    arguments: list[dict[str, Any]] = row.arguments
    return {one["name"]: among(one["values"]) for one in arguments if one.get("values")}
