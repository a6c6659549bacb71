"""Resources and prompts that an admin writes: texts, files, requests, and messages with placeholders."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tools_app.catalog.completion import Completer, among
from tools_app.catalog.kinds.http import runner as http
from tools_app.catalog.prompt_functions import PromptArgument, PromptDefinition, Render
from tools_app.catalog.resource_functions import Read
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import PromptResult, ResourceNotFound, ResourceResult, ToolError, contents, text
from tools_app.core import large_work
from tools_app.core.config import config
from tools_app.core.database import run_in_db_thread
from tools_app.models import Prompt, Resource, ResourceKind

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def reader(row: Resource, secrets: Mapping[str, str], allowed_networks: Sequence[str]) -> Read:
    """Return the reader of a stored resource. Raises http.ConfigProblem for an invalid request."""
    if row.kind == ResourceKind.HTTP:
        request = http.parse_config(row.config)
        return http.http_reader(request, secrets, allowed_networks, row.timeout_seconds, row.mime_type)
    return StoredResource(row.pk, row.kind == ResourceKind.TEXT, row.mime_type).read


@dataclass(frozen=True)
class StoredResource:
    """A text or a file, loaded from the database when it is read."""

    id: UUID
    is_text: bool
    mime_type: str

    async def read(self, uri: str, _variables: dict[str, str], _context: ToolContext) -> ResourceResult:
        """Return the contents. Raises ResourceNotFound if the row was deleted meanwhile."""
        return await run_in_db_thread(self._load, uri)

    def _load(self, uri: str) -> ResourceResult:
        field = "text" if self.is_text else "blob"
        value = Resource.objects.filter(pk=self.id).values_list(field, flat=True).first()
        if value is None:
            raise ResourceNotFound
        stored = value if isinstance(value, str) else bytes(value)
        return ResourceResult([contents(uri, stored, self.mime_type or ("text/plain" if self.is_text else None))])


def prompt_definition(row: Prompt) -> PromptDefinition:
    """Return the definition of a stored prompt for clients."""
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
    """Return the renderer of a stored prompt: a missing argument becomes empty.

    An expansion above the size limit of results, by an argument in many places, is a ToolError.
    """
    names = {one["name"] for one in row.arguments}
    messages, description = list(row.messages), row.description
    written = sum(len(message["text"]) for message in messages)
    used = Counter(name for message in messages for name in PLACEHOLDER.findall(message["text"]) if name in names)

    async def render(arguments: dict[str, str], _context: ToolContext) -> PromptResult:
        size = sum(len(arguments.get(name, "")) * count for name, count in used.items())
        if size > config.MCPHUB_MAX_RESULT_BYTES:
            raise ToolError(
                f"The prompt is larger than the limit of {config.MCPHUB_MAX_RESULT_BYTES} bytes"
                " (MCPHUB_MAX_RESULT_BYTES)."
            )

        def filled(source: str) -> str:
            return PLACEHOLDER.sub(lambda found: arguments.get(found[1], "") if found[1] in names else found[0], source)

        def rendered() -> PromptResult:
            return PromptResult(
                [{"role": message["role"], "content": text(filled(message["text"]))} for message in messages],
                description,
            )

        return await large_work.run(size + written, rendered)

    return render


def completers(row: Prompt) -> dict[str, Completer]:
    """Return the completers of the arguments that have suggestions."""
    arguments: list[dict[str, Any]] = row.arguments
    return {one["name"]: among(one["values"]) for one in arguments if one.get("values")}
