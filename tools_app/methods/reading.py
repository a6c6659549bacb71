"""One reading of a resource or a prompt: what answers it, run and recorded like a call."""

from dataclasses import dataclass

from tools_app.execution.dispatch import read, refuse
from tools_app.execution.kinds.base import Runner
from tools_app.methods.exchange import Exchange
from tools_app.methods.invoking import answer_of, hearing_of, invocation_of, sayer
from tools_app.protocol.errors import RpcError
from tools_app.protocol.schema import CompiledSchema


@dataclass(frozen=True, slots=True)
class Reading:
    """What runs for one request. Reading changes nothing, so it starts at once."""

    method: str
    name: str
    run: Runner
    timeout_seconds: float
    output: CompiledSchema | None = None
    read_only: bool = True


async def answered(exchange: Exchange, reading: Reading, arguments: dict[str, str]) -> bytes:
    """Run a reading and answer with what it gives. Raises RpcError, and Cancelled when nobody waits for it."""
    invocation = invocation_of(exchange, reading.name, dict(arguments))
    say = sayer(exchange, hearing_of(exchange, invocation))
    return answer_of(await read(invocation, reading, say, exchange.sender.may_return), exchange)


async def refused(exchange: Exchange, name: str, arguments: dict[str, str], refusal: RpcError) -> RpcError:
    """Record a reading that was refused before it ran, and give the refusal back."""
    return await refuse(invocation_of(exchange, name, dict(arguments)), exchange.era, refusal)
