"""Shapes of generated calls: a few hundred for each tenant, of which every call has one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from uuid import UUID

from tools_app.core.packing import pack
from tools_app.models import Outcome

SHAPES: Final = 300
# The placeholder in a payload for the number of its call, by which the call can be found.
NUMBER: Final = "000000000000"

# How many calls in a thousand have each outcome.
OUTCOMES: Final = {
    Outcome.OK: 938,
    Outcome.TOOL_ERROR: 30,
    Outcome.REJECTED: 14,
    Outcome.DENIED: 8,
    Outcome.TIMEOUT: 4,
    Outcome.CANCELLED: 3,
    Outcome.INPUT_REQUIRED: 2,
    Outcome.LOST: 1,
}
# The relative frequency of each name, and its median duration in milliseconds.
TOOLS: Final = {
    "search_orders": (30, 40),
    "get_customer": (25, 12),
    "echo": (15, 1),
    "create_ticket": (10, 90),
    "summarise": (6, 1800),
    "reindex": (1, 45_000),
}
CLIENTS: Final = {
    ("claude-code", "2.1.0"): 40,
    ("cursor", "1.9.4"): 25,
    ("visual-studio-code", "1.118.0"): 20,
    ("nightly-report", "0.3"): 15,
}
CITIES: Final = ("Bern", "Córdoba", "Kraków", "Lagos", "Osaka", "Tromsø")
# One result in LONG has LONG_BYTES, and as many have PACKED_BYTES, enough to be packed.
LONG, LONG_BYTES, PACKED_BYTES = 50, 1500, 12_000


@dataclass(frozen=True)
class Owner:
    """A tenant that gets calls, and the keys that they use."""

    tenant_id: UUID
    keys: Sequence[UUID]


@dataclass(frozen=True, eq=False)
class Shape:
    """What calls of one shape have in common: values of their columns, and texts that contain NUMBER."""

    facts: dict[str, Any]
    arguments: str
    result: str
    packed: bytes | None
    middle_us: int


def shapes_of(owners: Sequence[Owner], random: Random) -> list[Shape]:
    """Return the shapes of these tenants, all equally frequent: names that are called more often have more shapes."""
    return [shape for owner in owners for shape in _shapes(owner, random)]


def _shapes(owner: Owner, random: Random) -> Iterator[Shape]:
    for outcome in random.choices(list(OUTCOMES), list(OUTCOMES.values()), k=SHAPES):
        yield _shape(owner, outcome, random)


def _shape(owner: Owner, outcome: Outcome, random: Random) -> Shape:
    tool = random.choices(list(TOOLS), [often for often, _ in TOOLS.values()])[0]
    client, version = random.choices(list(CLIENTS), list(CLIENTS.values()))[0]
    city = random.choice(CITIES)
    arguments = f'{{"ticket":"T-{NUMBER}","city":"{city}","limit":{random.randrange(1, 50)}}}'
    result, packed = _result(outcome, city, random), None
    if len(result) > LONG_BYTES * 2:
        packed = pack(arguments, result)
    facts = {
        "tenant_id": owner.tenant_id,
        "api_key_id": random.choice(owner.keys),
        "tool_name": tool,
        "tool_revision": 1,
        "method": "tools/call",
        "protocol_version": "2026-07-28",
        "client_name": client,
        "client_version": version,
        "remote_address": f"10.{random.randrange(4)}.{random.randrange(256)}.{random.randrange(1, 255)}",
        "outcome": outcome.value,
        "http_status": 403 if outcome == Outcome.DENIED else 200,
        "is_error": None if outcome in {Outcome.DENIED, Outcome.LOST} else outcome != Outcome.OK,
        "cause": "" if outcome == Outcome.OK else f"{outcome.label}: the service in {city} did not answer.",
        "arguments_size": len(arguments.encode()),
        "result_size": len(result.encode()),
    }
    if packed:
        return Shape(facts, "", "", packed, TOOLS[tool][1] * 1000)
    return Shape(facts, arguments, result, None, TOOLS[tool][1] * 1000)


def _result(outcome: Outcome, city: str, random: Random) -> str:
    if outcome in {Outcome.DENIED, Outcome.REJECTED, Outcome.LOST}:
        return ""
    kind = random.randrange(LONG)
    words = " ".join(random.choices(CITIES, k=(PACKED_BYTES if kind == 0 else LONG_BYTES if kind == 1 else 20) // 6))
    return f'{{"content":[{{"type":"text","text":"{city}: {words}"}}],"ticket":"T-{NUMBER}"}}'
