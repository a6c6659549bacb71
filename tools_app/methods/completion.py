"""`completion/complete`: suggestions for the arguments of prompts and the variables of resource templates."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from tools_app.auth import limits
from tools_app.auth.allowance import MINUTE, Rate
from tools_app.execution import catalog
from tools_app.execution.catalog import Catalog
from tools_app.execution.offers.completion import MOST_VALUES, Completer, suggestions
from tools_app.methods.exchange import Exchange
from tools_app.methods.invoking import text_in, texts
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.methods.results import rendered
from tools_app.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, OVER_LIMIT, RpcError

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
# People type: what asks more often than this is no person.
MOST_PER_MINUTE = 600


@method("completion/complete", *BOTH_ERAS)
async def complete(exchange: Exchange) -> bytes:
    """At most a hundred suggestions, the best first (completion, §Requesting Completions). Raises RpcError."""
    params = exchange.params
    argument = _object(params, "argument")
    name, typed = text_in(argument, "name"), text_in(argument, "value")
    given = texts(_object(params, "context", {}), "arguments")
    completer = _completer(await catalog.ring.get(exchange.principal.tenant_id), exchange, _object(params, "ref"), name)
    await _limit(exchange)
    values = await _suggested(completer, typed, given) if completer else []
    shown = values[:MOST_VALUES]
    completion = {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}
    return rendered({"completion": completion}, exchange.era)


async def _limit(exchange: Exchange) -> None:
    """Raise RpcError for a caller that asks too often (completion, §Security)."""
    who = exchange.principal.limited_as
    over = await limits.take([Rate("caller", "completions", MOST_PER_MINUTE, MINUTE, f"completion:{who}")])
    if over is not None:
        message = f"At most {MOST_PER_MINUTE} completions a minute."
        raise RpcError(OVER_LIMIT, message, {"retryAfterSeconds": over.retry_after}, retry_after=over.retry_after)


async def _suggested(completer: Completer, typed: str, given: Mapping[str, str]) -> list[str]:
    """What a completer suggests. Raises RpcError for one that fails (completion, §Error Handling)."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await suggestions(completer, typed, given)
    except Exception as problem:
        log.exception("A completer failed")
        raise RpcError(INTERNAL_ERROR, "An error occurred completing the argument.", status=200) from problem


def _completer(
    found: Catalog | None, exchange: Exchange, reference: Mapping[str, Any], argument: str
) -> Completer | None:
    """Who suggests values for an argument, if anybody does. Raises RpcError for what is not there."""
    kind = reference.get("type")
    if kind == "ref/prompt":
        name = text_in(reference, "name")
        prompt = found.prompts.get(name) if found and exchange.principal.may_use(name) else None
        names = {one.name for one in prompt.definition.arguments} if prompt else set()
        completers: Mapping[str, Completer] = prompt.completers if prompt else {}
    elif kind == "ref/resource":
        name = text_in(reference, "uri")
        resource = found.templates.get(name) or found.resources.get(name) if found else None
        resource = resource if resource and exchange.principal.may_use(resource.name) else None
        names = set(resource.template.variables) if resource else set()
        completers = resource.completers if resource else {}
    else:
        raise RpcError(INVALID_PARAMS, "params.ref.type must be ref/prompt or ref/resource.", {"field": "ref"})
    if argument not in names:
        raise RpcError(
            INVALID_PARAMS, f"'{name}' with an argument '{argument}' is not there.", {"ref": dict(reference)}
        )
    return completers.get(argument)


def _object(params: Mapping[str, Any], field: str, default: Any = None) -> Mapping[str, Any]:
    value = params.get(field, default)
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"params.{field} must be an object.", {"field": field})
    return value
