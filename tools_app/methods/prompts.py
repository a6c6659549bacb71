"""`prompts/list` and `prompts/get`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tools_app.execution import catalog
from tools_app.execution.catalog import CompiledPrompt
from tools_app.execution.context import ToolContext
from tools_app.execution.results import PromptResult
from tools_app.methods import pages
from tools_app.methods.exchange import Exchange
from tools_app.methods.invoking import text_in, texts
from tools_app.methods.reading import Reading, answered, refused
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.versions import has_icons, has_structured_content


@method("prompts/list", *BOTH_ERAS)
async def list_prompts(exchange: Exchange) -> bytes:
    """The tenant's prompts by name (prompts, §Listing Prompts). Raises RpcError for a bad cursor."""
    return await pages.page(PROMPTS, exchange)


@method("prompts/get", *BOTH_ERAS)
async def get(exchange: Exchange) -> bytes:
    """The messages of a prompt (prompts, §Getting a Prompt). Raises RpcError."""
    name, arguments = text_in(exchange.params, "name"), texts(exchange.params, "arguments")
    found = await catalog.ring.get(exchange.principal.tenant_id)
    prompt = found.prompts.get(name) if found else None
    if prompt is None or not exchange.principal.may_use(name):
        unknown = RpcError(INVALID_PARAMS, f"Unknown prompt: '{name}'", {"prompt": name})
        raise await refused(exchange, name, arguments, unknown)
    problem = _problem(prompt, arguments)
    if problem is not None:
        raise await refused(exchange, name, arguments, problem)
    reading = Reading("prompts/get", name, partial(_run, prompt), prompt.timeout_seconds)
    return await answered(exchange, reading, arguments)


async def _run(prompt: CompiledPrompt, arguments: dict[str, Any], context: ToolContext) -> PromptResult:
    return await prompt.render(arguments, context)


def _problem(prompt: CompiledPrompt, arguments: Mapping[str, str]) -> RpcError | None:
    """What is wrong with the arguments (prompts, §Error Handling)."""
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
    """A prompt as the revision knows it (prompts, §Prompt)."""
    definition = prompt.definition
    body: dict[str, Any] = {"name": definition.name}
    if definition.title and has_structured_content(version):
        body["title"] = definition.title
    if definition.description:
        body["description"] = definition.description
    if definition.icons and has_icons(version):
        body["icons"] = definition.icons
    body["arguments"] = [
        {"name": one.name, "description": one.description, "required": one.required} for one in definition.arguments
    ]
    return body


PROMPTS = pages.Listing("prompts/list", "prompts", described, lambda found: found.prompts)
