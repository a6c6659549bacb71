"""How log records are written: one line of text or one JSON object each, with what they are about, without secrets.

Whatever is logged in this process passes here, by the hub, its tools or a library: `mcphub.settings` makes this the
formatter of the only handler.
"""

import logging
from collections.abc import Mapping
from typing import Any

import orjson
import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from tools_app.telemetry import about
from tools_app.telemetry.scrubbing import HIDDEN, scrubbed

# Where the parts of a line stand; what else there is follows as name=value.
PLACED = ("timestamp", "level", "logger", "event", "exception")
# Django hands its request along, which says nothing that the message does not.
LEFT_OUT = ("request",)


def formatter(style: str) -> logging.Formatter:
    """The formatter of a handler: `style` is "text" or "json", in either case."""
    structlog.configure(
        processors=[*_shared(), ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer = _as_json if style.lower() == "json" else _as_text
    return ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            _scrub,
            renderer,
        ],
    )


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _tell_what_it_is_about,
    ]


def _tell_what_it_is_about(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in about.fields().items():
        event.setdefault(name, value)
    return event


def _scrub(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Every text without secrets; what is no text, number or switch becomes one."""
    return {name: _scrubbed(name, value) for name, value in event.items() if name not in LEFT_OUT}


def _scrubbed(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    # Together with its name, which may say that it is secret.
    safe = scrubbed(str(value))
    return HIDDEN if HIDDEN in scrubbed(f"{name}=x") else safe


def _as_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    names = {"timestamp": "time", "level": "level", "logger": "logger", "event": "message"}
    placed = {told: event.pop(name, "") for name, told in names.items()}
    return orjson.dumps({**placed, **event}, default=str).decode()


def _as_text(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    line = f"{event.get('timestamp')} {str(event.get('level')).upper()} {event.get('logger')}: {_one_line(event)}"
    return "\n".join([line, str(event["exception"])]) if event.get("exception") else line


def _one_line(event: Mapping[str, Any]) -> str:
    """The message and the rest on one line: what a client sent cannot pretend to be a line of its own."""
    rest = [f"{name}={value}" for name, value in event.items() if name not in PLACED]
    return " ".join([str(event.get("event", "")), *rest]).replace("\r", "\\r").replace("\n", "\\n")
