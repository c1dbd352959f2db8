"""Logs without API keys and passwords. Each record is one line of text or JSON.

A lasting failure has a line when it begins, one per minute, and one when it has ended.
"""

import logging
import re
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from typing import Any, TextIO

from pythonjsonlogger.json import JsonFormatter

from config.error_answers import why_unavailable

logger = logging.getLogger(__name__)

_fields: ContextVar[Mapping[str, str | int]] = ContextVar("log_context")


def fields() -> Mapping[str, str | int]:
    return _fields.get({})


@contextmanager
def about(**more: str | int) -> Iterator[None]:
    """Add these fields to log lines while the block runs."""
    before = _fields.set({**fields(), **more})
    try:
        yield
    finally:
        _fields.reset(before)


def enter(only: Mapping[str, str | int]) -> None:
    """Replace the fields of log lines from now on."""
    _fields.set(only)


# The query parameter and the header with an API key, as in URLs, JSON and printed headers.
_NAMED = re.compile(r"(?i)(api[-_]?key[\"']?\s*[=:]\s*[\"']?)(?!\[redacted\])[^\s&\"',;)}\]]+")
_KEY = re.compile(r"(bqs_)[0-9A-Za-z_-]{8,}")
# A password in a URL, for example of a broker or a database. Libraries quote these URLs in errors.
_PASSWORD = re.compile(r"(://[^\s:/?#@]*:)[^\s/?#@]+@")


def redact(text: str) -> str:
    """Replace keys, values whose names mean a key, and passwords in URLs by `[redacted]`."""
    if "://" in text:
        text = _PASSWORD.sub(r"\1[redacted]@", text)
    # Most lines lack the word "key". Searching for it is far faster than the regular expression.
    return redact_keys(_NAMED.sub(r"\1[redacted]", text) if "key" in text.lower() else text)


def redact_keys(text: str) -> str:
    """Replace keys by `[redacted]` in texts that are shown or stored."""
    return _KEY.sub(r"\1[redacted]", text) if "bqs_" in text else text


_NAME_OF_KEY = re.compile(r"(?i)api[-_]?key|authorization|cookie")


def redact_all(value: Any, redact: Callable[[str], str] = redact) -> Any:
    """Return the value in JSON's types, with every text redacted, and with values whose names mean a key replaced."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return {
            redact(str(name)): "[redacted]" if _NAME_OF_KEY.search(str(name)) else redact_all(entry, redact)
            for name, entry in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_all(entry, redact) for entry in value]
    return redact(value.decode(errors="replace") if isinstance(value, bytes) else str(value))


def to_console(log_format: str) -> dict[str, Any]:
    """Return the part of a logging configuration that writes redacted lines, as `line` or as `json`."""
    console = {"class": "config.logs.Console", "formatter": log_format, "filters": ["redact"]}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"redact": {"()": RedactKeys}},
        "formatters": {
            "line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
            "json": {"()": JsonLines},
        },
        "handlers": {"console": console},
    }


class JsonLines(JsonFormatter):
    """A formatter that writes a JSON object per record: `time`, `level`, `logger`, `message`, context and extras."""

    def __init__(self) -> None:
        super().__init__(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "exception"},
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's name)
        return f"{super().formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{record.msecs:03.0f}{time.strftime('%z')}"

    def process_log_record(self, log_record: dict[str, Any]) -> dict[str, Any]:
        # Django adds its request object under this name. It contains the whole request.
        extras = {name: value for name, value in log_record.items() if name != "request" or isinstance(value, str)}
        redacted: dict[str, Any] = redact_all({**extras, **fields()})
        return redacted


# A path may contain encoded line ends and terminal commands. Decoded in a log, they would forge lines.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


# Maximum characters of a line from Django, before control characters are escaped. It may quote a path of kilobytes.
_MOST_OF_DJANGO = 400


class RedactKeys(logging.Filter):
    """A filter that removes keys and control characters from each record's message and exception."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = redact(record.getMessage())
        if record.name.startswith("django.") and len(text) > _MOST_OF_DJANGO:
            text = f"{text[:_MOST_OF_DJANGO]}..."
        record.msg = text if text.isprintable() else text.translate(_CONTROLS)
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        return True


# --- Failures that last -----------------------------------------------------------------------------------------------

# Seconds between two lines about a lasting failure, and seconds without it after which it has ended.
_PAUSE_SECONDS = 60
# Loggers of libraries that warn of every refused request and every lost connection, which clients can cause.
_LIBRARIES = ("django.", "psycopg.")


@dataclass
class _LastingFailure:
    text: str
    seen_at: float  # `time.monotonic`, like the next field
    written_at: float = float("-inf")
    left_out: int = 0


_lasting: dict[Hashable, _LastingFailure] = {}
# The lock is reentrant, because garbage collection inside it may write a line.
_lasting_lock = threading.RLock()
# Maximum failures that are tracked at a time. Lines about further ones are always written.
_MOST_FAILURES = 1000


def note_ends() -> None:
    """Write a line for each failure that has ended. Every other log line calls this first."""
    now = time.monotonic()
    with _lasting_lock:
        ended = [kind for kind, failure in list(_lasting.items()) if now - failure.seen_at >= _PAUSE_SECONDS]
        failures = [_lasting.pop(kind) for kind in ended]
    for failure in failures:
        logger.warning("not again for a minute, %s: %s", _left_out(failure.left_out), failure.text)


def _left_out(lines: int) -> str:
    return f"{lines} line{'' if lines == 1 else 's'} left out"


class Console(logging.StreamHandler[TextIO]):
    """A handler that leaves out repeated lines about a failure for a minute.

    Failures of the database and requests that Django refuses are logged without a traceback.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        note_ends()
        may_repeat = record.levelno < logging.WARNING or record.levelno >= logging.CRITICAL
        written = record if may_repeat else _unrepeated(record)
        return written is not None and bool(super().handle(written))


def _unrepeated(record: logging.LogRecord) -> logging.LogRecord | None:
    """Return the record to write, which may be a copy with another text. None: it is left out."""
    error = record.exc_info[1] if record.exc_info else None
    status = getattr(record, "status_code", None)
    kind: Hashable
    # Other handlers get the unchanged record.
    short = copy(record)
    short.exc_info = short.exc_text = None
    if error and (why := why_unavailable(error)):
        line = (str(error).splitlines() or [""])[0]
        kind = why, line[:_MOST_OF_DJANGO]
        short.msg, short.args = f"{record.getMessage()}: {why} ({line})", None
    elif record.name.startswith(_LIBRARIES) and (error is None or (status or 500) < 500):
        kind = record.name, status or record.msg
    elif error:
        # Django's message quotes the path, which clients choose.
        message = record.msg if record.name.startswith(_LIBRARIES) else record.getMessage()[:_MOST_OF_DJANGO]
        kind, short = (record.name, message, type(error), _places(error)), copy(record)
    elif getattr(record, "lasts", False):
        kind = record.name, record.getMessage()
    else:
        return record
    return short if _is_written(kind, short) else None


def _places(error: BaseException) -> Hashable:
    """Return the files and lines of the error's traceback."""
    return tuple((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))


def _is_written(kind: Hashable, record: logging.LogRecord) -> bool:
    """Count a failure. Return whether its line is written. The line then says how many lines were left out."""
    now, text = time.monotonic(), record.getMessage()[: 2 * _MOST_OF_DJANGO]
    with _lasting_lock:
        if kind not in _lasting and len(_lasting) >= _MOST_FAILURES:
            return True
        failure = _lasting.setdefault(kind, _LastingFailure(text, now))
        failure.seen_at = now
        if now - failure.written_at < _PAUSE_SECONDS:
            failure.left_out += 1
            return False
        if failure.left_out:
            record.msg, record.args = f"{text} ({_left_out(failure.left_out)})", None
        failure.text, failure.written_at, failure.left_out = text, now, 0
        return True
