"""`completion/complete`: suggestions for the arguments of prompts and the variables of resource templates."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from tools_app.calls.request import RequestContext, encoded_result
from tools_app.catalog import compiled
from tools_app.catalog.compiled import Catalog
from tools_app.catalog.completion import MAX_VALUES, Completer, suggestions
from tools_app.core.config import config
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, OVER_LIMIT, RpcError
from tools_app.protocol.inbound import text_in, texts
from tools_app.protocol.jsonrpc import MAX_COMPLETED_LENGTH, check_text
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import MINUTE, Rate

log = logging.getLogger(__name__)

METHOD: Final = "completion/complete"
TIMEOUT_SECONDS = 5.0
# Far above the rate at which a person types.
MAX_PER_MINUTE = 600


@method(METHOD, *BOTH_ERAS)
async def complete(context: RequestContext) -> bytes:
    """Return at most 100 suggestions, best match first (completion, §Requesting Completions). Raises RpcError."""
    params = context.params
    argument = _object(params, "argument")
    name, typed = text_in(argument, "name"), text_in(argument, "value")
    check_text(name, "argument.name", MAX_COMPLETED_LENGTH)
    check_text(typed, "argument.value", MAX_COMPLETED_LENGTH)
    given = texts(_object(params, "context", {}), "arguments")
    if sum(len(one) + len(text) for one, text in given.items()) > config.MCPHUB_MAX_ARGUMENT_BYTES:
        message = f"params.context.arguments has more than {config.MCPHUB_MAX_ARGUMENT_BYTES} characters."
        raise RpcError(INVALID_PARAMS, message, {"field": "context"}, status=400)
    catalog = await compiled.cache.get(context.principal.tenant_id)
    completer = _completer(catalog, context, _object(params, "ref"), name)
    await _limit(context)
    values = await _suggested(completer, typed, given) if completer else []
    shown = values[:MAX_VALUES]
    completion = {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}
    return encoded_result({"completion": completion}, context.era)


async def _limit(context: RequestContext) -> None:
    """Raise RpcError if the caller exceeds the rate limit (completion, §Security)."""
    who = context.principal.limit_key
    over = await limits.take([Rate("caller", "completions", MAX_PER_MINUTE, MINUTE, f"completion:{who}")])
    if over is not None:
        message = f"At most {MAX_PER_MINUTE} completions a minute."
        raise RpcError(OVER_LIMIT, message, {"retryAfterSeconds": over.retry_after}, retry_after=over.retry_after)


async def _suggested(completer: Completer, typed: str, given: Mapping[str, str]) -> list[str]:
    """Return a completer's suggestions. Raises RpcError if the completer fails (completion, §Error Handling)."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await suggestions(completer, typed, given)
    except Exception as problem:
        log.exception("A completer failed")
        raise RpcError(INTERNAL_ERROR, "An error occurred completing the argument.", status=200) from problem


def _completer(
    found: Catalog | None, context: RequestContext, reference: Mapping[str, Any], argument: str
) -> Completer | None:
    """Return the completer of an argument, or None. Raises RpcError for an unknown reference."""
    kind = reference.get("type")
    if kind == "ref/prompt":
        name = _reference(reference, "name")
        prompt = found.prompts.get(name) if found and context.principal.may("prompt", METHOD, name, found) else None
        names = {one.name for one in prompt.definition.arguments} if prompt else set()
        completers: Mapping[str, Completer] = prompt.completers if prompt else {}
    elif kind == "ref/resource":
        name = _reference(reference, "uri")
        is_permitted = context.principal.may("resource", METHOD, name, found)
        resource = found.templates.get(name) or found.resources.get(name) if found and is_permitted else None
        names = set(resource.template.variables) if resource else set()
        completers = resource.completers if resource else {}
    else:
        raise RpcError(INVALID_PARAMS, "params.ref.type must be ref/prompt or ref/resource.", {"field": "ref"})
    if argument not in names:
        raise RpcError(
            INVALID_PARAMS, f"'{name}' with an argument '{argument}' is not there.", {"ref": dict(reference)}
        )
    return completers.get(argument)


def _reference(reference: Mapping[str, Any], field: str) -> str:
    name = text_in(reference, field)
    check_text(name, f"ref.{field}", MAX_COMPLETED_LENGTH)
    return name


def _object(params: Mapping[str, Any], field: str, default: Any = None) -> Mapping[str, Any]:
    value = params.get(field, default)
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"params.{field} must be an object.", {"field": field})
    return value
