"""Formatting of log records as one line of text or one JSON object, with their context and without secrets.

All log records of a process pass through this module, those of the hub, its tools and libraries: `mcphub.settings`
makes this the formatter of the only handler.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

import orjson
import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from tools_app.core.telemetry import log_context
from tools_app.core.telemetry.scrubbing import HIDDEN, scrubbed

# Fields with a fixed position in a line; all others follow as name=value.
PLACED = ("timestamp", "level", "logger", "event", "exception")
# The prefix of each line of a traceback.
CONTINUED = "  | "
# Control characters of C0 and C1, line separators, and characters that change the direction of a text.
_RAW_IN_JSON = (*range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_IN_TEXT = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *_RAW_IN_JSON)}
_IN_JSON = {code: f"\\u{code:04x}" for code in _RAW_IN_JSON}
# Django adds its request, which repeats the message.
LEFT_OUT = ("request",)


MAX_NAMED: Final = 3
MAX_NAMED_LENGTH: Final = 300


def first_of(texts: Sequence[str]) -> str:
    """Return the first texts for one line, and how many more there are: tenants decide how many rows they have."""
    shown = "; ".join(text[:MAX_NAMED_LENGTH] for text in texts[:MAX_NAMED])
    return shown if len(texts) <= MAX_NAMED else f"{shown}; and {len(texts) - MAX_NAMED} more"


class WithoutTraceback(logging.Filter):
    """Removes tracebacks from loggers with complete messages that any unauthenticated client can trigger."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let the record pass, without its traceback."""
        record.exc_info = None
        return True


def formatter(style: str) -> logging.Formatter:
    """Return the formatter of a handler: `style` is "text" or "json", in either case."""
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
        _add_context,
    ]


def _add_context(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in log_context.fields().items():
        event.setdefault(name, value)
    return event


def _scrub(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Redact every string; a value that is not a string, number or boolean becomes one."""
    safe: dict[str, Any] = {}
    for name, value in event.items():
        if value is None or isinstance(value, bool | int | float):
            safe[name] = value
        elif name not in LEFT_OUT:
            # The name may mark it as secret.
            safe[name] = HIDDEN if HIDDEN in scrubbed(f"{name}=x") else scrubbed(str(value))
    return safe


def _as_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    names = {"timestamp": "time", "level": "level", "logger": "logger", "event": "message"}
    placed = {json_name: event.pop(name, "") for name, json_name in names.items()}
    return orjson.dumps({**placed, **event}, default=str).decode().translate(_IN_JSON)


def _as_text(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Return a record as one line. A traceback follows on lines that start with CONTINUED, which no record does.

    Text of a client in a message, a field or an exception can neither start a line nor control a terminal.
    """
    rest = [f"{name}={value}" for name, value in event.items() if name not in PLACED]
    text = " ".join([f"{event.get('logger')}:", str(event.get("event", "")), *rest])
    line = f"{event.get('timestamp')} {str(event.get('level')).upper()} {text.translate(_IN_TEXT)}"
    traceback = str(event.get("exception") or "").splitlines()
    return "\n".join([line, *(f"{CONTINUED}{part.translate(_IN_TEXT)}" for part in traceback)])
