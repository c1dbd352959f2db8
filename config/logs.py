"""Logs without API keys and passwords. Each record is one line of text or JSON.

A lasting failure has a line when it begins, and one per minute.
"""

import logging
import re
import threading
import time
import traceback
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
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


def redact_all(value: Any) -> Any:
    """Return the value in JSON's types, with every text redacted, and with values whose names mean a key replaced."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return {
            redact(str(name)): "[redacted]" if _NAME_OF_KEY.search(str(name)) else redact_all(entry)
            for name, entry in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_all(entry) for entry in value]
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
# Maximum characters of a line that is kept until its minute is over.
_MOST_KEPT = 2 * _MOST_OF_DJANGO


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

# Loggers of libraries that warn of every refused request and every lost connection, which clients can cause.
_LIBRARIES = ("django.", "psycopg.")
_MINUTE_SECONDS = 60
# Maximum failures that are tracked at a time. Lines about further ones are always written.
_MOST_FAILURES = 1000


@dataclass(frozen=True)
class _Failure:
    key: Hashable
    """One line a minute is written of those with an equal key."""
    record: logging.LogRecord
    """The record to write, which may be a copy with another text. Other handlers get the unchanged record."""


@dataclass
class _Minute:
    """The time after a failure's line in which further lines about it are counted."""

    console: "Console"
    logger: str
    level: int
    began: float  # `time.monotonic`
    left_out: int = 0
    last_text: str = ""


_minutes: dict[Hashable, _Minute] = {}
# The lock is reentrant, because garbage collection inside it may write a line.
_minutes_lock = threading.RLock()


class Console(logging.StreamHandler[TextIO]):
    """A handler that writes one warning or error about the same subject a minute.

    The subject is the first argument of the line's template, such as a host or a chain. Failures of the database and
    requests that Django refuses are logged without a traceback.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        write_left_out()
        if record.levelno < logging.WARNING or record.levelno >= logging.CRITICAL:
            return bool(super().handle(record))
        failure = _failure(record)
        with _minutes_lock:
            if minute := _minutes.get(failure.key):
                minute.left_out, minute.last_text = minute.left_out + 1, failure.record.getMessage()[:_MOST_KEPT]
                return False
            if len(_minutes) < _MOST_FAILURES:
                _minutes[failure.key] = _Minute(self, record.name, record.levelno, time.monotonic())
        return bool(super().handle(failure.record))

    def write(self, minute: _Minute) -> None:
        """Write the last line that a minute has left out."""
        lines = f"{minute.left_out} line{'' if minute.left_out == 1 else 's'} left out"
        text = f"{minute.last_text} ({lines} within a minute)"
        super().handle(logging.LogRecord(minute.logger, minute.level, "", 0, text, None, None))


def write_left_out() -> None:
    """Write a line for each minute that is over and has left out lines. Every other log line calls this first."""
    now = time.monotonic()
    with _minutes_lock:
        over = {key: minute for key, minute in list(_minutes.items()) if now - minute.began >= _MINUTE_SECONDS}
        for key, minute in over.items():
            if minute.left_out:
                _minutes[key] = replace(minute, began=now, left_out=0)
            else:
                _minutes.pop(key, None)
    for minute in over.values():
        if minute.left_out:
            minute.console.write(minute)


def _failure(record: logging.LogRecord) -> _Failure:
    error = record.exc_info[1] if record.exc_info else None
    status = getattr(record, "status_code", None)
    subject = str(record.args[0])[:_MOST_OF_DJANGO] if isinstance(record.args, tuple) and record.args else ""
    short = copy(record)
    short.exc_info = short.exc_text = None
    if error and (why := why_unavailable(error)):
        line = (str(error).splitlines() or [""])[0][:_MOST_OF_DJANGO]
        short.msg, short.args = f"{record.getMessage()}: {why} ({line})", None
        return _Failure((why, line), short)
    if record.name.startswith(_LIBRARIES):
        # Their messages quote the path, which clients choose.
        if error is None or (status or 500) < 500:
            return _Failure((record.name, status or str(record.msg)), short)
        subject = ""
    places = tuple(
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__ if error else None)
    )
    return _Failure((record.name, record.levelno, str(record.msg), subject, type(error), places), record)
