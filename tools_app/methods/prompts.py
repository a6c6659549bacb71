"""`prompts/list` and `prompts/get`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tools_app.calls import pipeline
from tools_app.calls.request import RequestContext
from tools_app.calls.run import Reading
from tools_app.catalog import compiled
from tools_app.catalog.compiled import CompiledPrompt
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import PromptResult
from tools_app.methods import paging
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.protocol import content
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import text_in, texts
from tools_app.protocol.versions import has_icons, has_structured_content


@method("prompts/list", *BOTH_ERAS)
async def list_prompts(context: RequestContext) -> bytes:
    """List the tenant's prompts by name (prompts, §Listing Prompts). Raises RpcError for a bad cursor."""
    return await paging.page(PROMPTS, context)


@method("prompts/get", *BOTH_ERAS)
async def get(context: RequestContext) -> bytes:
    """Return the messages of a prompt (prompts, §Getting a Prompt). Raises RpcError."""
    name, arguments = text_in(context.params, "name"), texts(context.params, "arguments")
    found = await compiled.cache.get(context.principal.tenant_id)
    prompt = found.prompts.get(name) if found else None
    if prompt is None or not context.principal.may("prompt", "prompts/get", name, found):
        unknown = RpcError(INVALID_PARAMS, f"Unknown prompt: '{name}'", {"prompt": name})
        raise await pipeline.refuse_reading(context, name, arguments, unknown)
    problem = _problem(prompt, arguments)
    if problem is not None:
        raise await pipeline.refuse_reading(context, name, arguments, problem)
    reading = Reading("prompts/get", name, partial(_run, prompt), prompt.timeout_seconds)
    return await pipeline.read(context, reading, arguments)


async def _run(prompt: CompiledPrompt, arguments: dict[str, Any], context: ToolContext) -> PromptResult:
    return await prompt.render(arguments, context)


def _problem(prompt: CompiledPrompt, arguments: Mapping[str, str]) -> RpcError | None:
    """Return what is wrong with the arguments (prompts, §Error Handling)."""
    known = {argument.name: argument for argument in prompt.definition.arguments}
    missing = [name for name, argument in known.items() if argument.required and name not in arguments]
    unknown = [name for name in arguments if name not in known]
    lines = [*(f"'{name}' is required" for name in missing), *(f"'{name}' is not expected" for name in unknown)]
    if not lines and prompt.arguments is not None:
        lines = [f"'{problem.field}': {problem.message}" for problem in prompt.arguments.problems(dict(arguments))]
    if not lines:
        return None
    message = f"Invalid arguments for '{prompt.name}': {'; '.join(lines)}."
    return RpcError(INVALID_PARAMS, message, {"prompt": prompt.name, "missing": missing, "unexpected": unknown})


def described(prompt: CompiledPrompt, version: str) -> dict[str, Any]:
    """Return a prompt in the form of a revision (prompts, §Prompt)."""
    definition = prompt.definition
    body: dict[str, Any] = {"name": definition.name}
    if definition.title and has_structured_content(version):
        body["title"] = definition.title
    if definition.description:
        body["description"] = definition.description
    if has_icons(version) and (icons := content.icons(definition.icons)):
        body["icons"] = icons
    body["arguments"] = [
        {"name": one.name, "description": one.description, "required": one.required} for one in definition.arguments
    ]
    return body


PROMPTS = paging.ListKind(
    "prompts/list",
    "prompts",
    described,
    lambda found, principal: paging.permitted(found.prompts, found, principal, "prompt", "prompts/list"),
)
