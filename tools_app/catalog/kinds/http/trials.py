"""Trials of HTTP tools: the request of a definition that is not saved yet, sent once for an admin of its tenant.

A trial is not a call of a client: there is no key and no tool. It uses the tenant's secrets, so the change log records
who sends a request where, and with which secrets, before it is sent, and how it ended before the answer is shown. Both
entries have the same object. The tenant's limits on calls apply, as does a limit on trials.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from time import perf_counter
from typing import Any, Final
from uuid import UUID

import orjson
from asgiref.sync import async_to_sync

from tools_app.audit.changes import changes
from tools_app.catalog import authoring
from tools_app.catalog.kinds.http.config import HttpConfig
from tools_app.catalog.kinds.http.request import build_request
from tools_app.catalog.kinds.http.response import SUCCESSES, readable_body, to_result
from tools_app.catalog.kinds.http.runner import HttpSender, secret_names
from tools_app.catalog.kinds.templates import Values
from tools_app.catalog.shaping import Shaping, shape_in_thread, tokens_of_bytes
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core import large_work
from tools_app.core.encryption import DecryptionError
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import Reply, RequestPolicy
from tools_app.core.http.errors import RequestFailed
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.models import Action, Tenant, Tool
from tools_app.protocol import exact_json
from tools_app.tenants.limits import limits, quotas
from tools_app.tenants.limits.limits import OverLimit
from tools_app.tenants.limits.quotas import ConcurrencyLimit, Rate

MAX_TRIAL_SECONDS: Final = 30.0
MAX_TRIALS_PER_MINUTE: Final = 30
MAX_TRIALS_AT_ONCE: Final = 4
MAX_SHOWN_CHARACTERS: Final = 64 * 1024
MAX_RECORDED_NAMES: Final = 100
DOTS: Final = "••••••"


class TrialRefused(Exception):
    """The request was not sent. The message says why, and what to do."""


@dataclass(frozen=True)
class ShownRequest:
    """A request with dots in place of secrets."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: str | None


@dataclass(frozen=True)
class ShownReply:
    """A response without secrets, cut to what a page can show."""

    status: int
    headers: list[tuple[str, str]]
    body: str
    size: int

    @property
    def is_success(self) -> bool:
        """Whether a call would return the content, and not an error."""
        return self.status in SUCCESSES


@dataclass(frozen=True)
class ShownShaping:
    """What a client would receive of the result, and the sizes of both in bytes and about in tokens."""

    whole_bytes: int
    whole_tokens: int
    bytes: int
    tokens: int
    result: str
    problem: str


@dataclass(frozen=True)
class Preview:
    """How the result of a trial is shaped. `output_schema` decides whether it has structured content."""

    tenant_id: UUID
    shaping: Shaping
    output_schema: Mapping[str, Any] | None


@dataclass(frozen=True)
class Trial:
    """How a trial ended: with a response, or with a problem."""

    request: ShownRequest
    seconds: float
    reply: ShownReply | None = None
    problem: str = ""
    shaped: ShownShaping | None = None


@dataclass
class _Record:
    """The two entries of a trial in the change log."""

    tenant: Tenant
    name: str
    row: Tool = field(init=False)

    def __post_init__(self) -> None:
        self.row = Tool(tenant=self.tenant, name=self.name or "unnamed")

    def begin(self, config: HttpConfig, arguments: Mapping[str, Any]) -> None:
        """Record the request that is about to be sent, without the values of arguments: changes are never pruned."""
        facts = {
            "method": config.method,
            "base_url": config.base_url,
            "path": config.path,
            "arguments": sorted(arguments)[:MAX_RECORDED_NAMES],
            "secrets": sorted(secret_names(config)),
        }
        self._write(Action.CREATED, facts)

    def end(self, trial: Trial) -> None:
        """Record the status and size of the response, or the problem."""
        facts: dict[str, Any] = {"seconds": round(trial.seconds, 3)}
        if trial.reply is None:
            facts["problem"] = trial.problem
        else:
            facts |= {"status": trial.reply.status, "bytes": trial.reply.size}
        self._write(Action.CHANGED, facts)

    def _write(self, action: Action, facts: Mapping[str, Any]) -> None:
        with changes.change_log_transaction():
            changes.record(action, self.row, after=facts, kind="tool trial")


def try_request(
    tenant: Tenant,
    name: str,
    config: HttpConfig,
    arguments: dict[str, Any],
    timeout_seconds: float,
    *,
    preview: Preview | None = None,
) -> Trial:
    """Send the request of `config` once, and record it; with `preview`, shape its result.

    Raises ToolError for arguments that do not fit the request.

    Raises TrialRefused for a secret that is not set, a disabled tenant, and an exceeded limit.
    """
    if not tenant.is_active:
        raise TrialRefused("The tenant is disabled. Enable it first.")
    secrets = _sender_of(tenant, config)
    request = shown_request(config, arguments)
    seconds = min(timeout_seconds, MAX_TRIAL_SECONDS)
    scrubber = Scrubber(secrets.values())
    policy = RequestPolicy(
        parse_networks(tenant.allowed_networks), seconds, config.max_response_bytes, tenant=tenant.pk
    )
    sender = HttpSender(config, secrets, policy, scrubber)
    record = _Record(tenant, name)
    slot = ConcurrencyLimit("tenant", "trials", MAX_TRIALS_AT_ONCE, f"trials:tenant:{tenant.pk}")
    places = (*quotas.concurrent_calls("tenant", tenant), slot)
    id = str(record.row.pk)
    full = limits.acquire_blocking(places, id, MAX_TRIAL_SECONDS)
    if full is not None:
        raise TrialRefused("Too many calls or trials of this tenant are running. Wait until one has ended.")
    try:
        _count(tenant)
        record.begin(config, arguments)
        trial = async_to_sync(_run_trial)(sender, request, arguments, seconds, preview)
        record.end(trial)
    finally:
        limits.release_of([place.key for place in places], id)
    return trial


def shown_request(config: HttpConfig, arguments: dict[str, Any]) -> ShownRequest:
    """Return the request with dots in place of its secrets. Raises ToolError for arguments that do not fit it."""
    # No header holds a dot: a mark takes its place until the request is built.
    mark = f"secret{token_hex(8)}"
    built = build_request(config, Values(arguments, dict.fromkeys(secret_names(config), mark)))

    def hidden(text: str) -> str:
        return text.replace(mark, DOTS)[:MAX_SHOWN_CHARACTERS]

    body = None if built.body is None else hidden(built.body.decode())
    headers = [(name, hidden(value)) for name, value in built.headers]
    return ShownRequest(built.method, hidden(str(built.url)), headers, body)


def _sender_of(tenant: Tenant, config: HttpConfig) -> dict[str, str]:
    opened: dict[str, str] = {}
    for secret in tenant.secrets.filter(name__in=secret_names(config)):
        try:
            opened[secret.name] = authoring.decrypt_secret(secret)
        except DecryptionError as problem:
            raise TrialRefused(f"The secret {secret.name} cannot be decrypted. Set its value again.") from problem
    if missing := sorted(secret_names(config) - opened.keys()):
        raise TrialRefused(f"There is no secret {missing[0]}. Add it first.")
    return opened


def _count(tenant: Tenant) -> None:
    """Count a trial as a call of the tenant. Raises TrialRefused if a limit is exceeded."""
    trials = Rate("tenant", "trials", MAX_TRIALS_PER_MINUTE, quotas.MINUTE, f"trials:60:tenant:{tenant.pk}")
    over: OverLimit | None = async_to_sync(limits.take)((trials, *quotas.of_tenant(tenant).calls))
    if over is not None:
        rate = over.rate
        raise TrialRefused(
            f"Rate limit exceeded: {rate.most} {rate.what} per {rate.seconds} s for this tenant."
            f" Try again in {over.retry_after} s."
        )


async def _run_trial(
    sender: HttpSender, request: ShownRequest, arguments: dict[str, Any], seconds: float, preview: Preview | None
) -> Trial:
    """Send the request within `seconds`."""
    began = perf_counter()
    try:
        async with asyncio.timeout(seconds):
            reply = await sender.reply(arguments)
    except RequestFailed as failure:
        return Trial(request, perf_counter() - began, problem=sender.scrubber.text(failure.message))
    except ToolError as failure:
        return Trial(request, perf_counter() - began, problem=sender.scrubber.text(str(failure)))
    except TimeoutError:
        problem = f"No complete response within {seconds:g} s. Check the URL, or raise the timeout."
        return Trial(request, perf_counter() - began, problem=problem)
    took = perf_counter() - began
    shaped = None if preview is None else await _previewed(preview, reply, sender.scrubber)

    def shown_reply() -> ShownReply:
        headers = [(sender.scrubber.text(name), sender.scrubber.text(value)) for name, value in reply.headers.items()]
        body = readable_body(reply, sender.scrubber, MAX_SHOWN_CHARACTERS)
        return ShownReply(reply.status, headers, body, len(reply.body))

    shown = await large_work.run(len(reply.body), shown_reply)
    return Trial(request, took, shown, shaped=shaped)


async def _previewed(preview: Preview, reply: Reply, scrubber: Scrubber) -> ShownShaping | None:
    """Return what a client would receive of a response, without the link to the whole; None of an error."""

    def serialized() -> bytes:
        result = to_result(reply, preview.output_schema, scrubber)
        return b"" if result.is_error else exact_json.dumps(result.as_json())

    wire = await large_work.run(len(reply.body), serialized)
    if not wire:
        return None
    shaped = await shape_in_thread(preview.tenant_id, preview.shaping, wire)

    def shown() -> ShownShaping:
        sent = wire if shaped is None else exact_json.dumps(shaped.result.as_json())
        indented = exact_json.dumps(exact_json.loads(sent), option=orjson.OPT_INDENT_2)
        return ShownShaping(
            whole_bytes=len(wire),
            whole_tokens=tokens_of_bytes(len(wire)),
            bytes=len(sent),
            tokens=tokens_of_bytes(len(sent)),
            result=indented.decode()[:MAX_SHOWN_CHARACTERS],
            problem="" if shaped is None else shaped.problem,
        )

    return await large_work.run(len(wire), shown)
