"""Logs without API keys and passwords, with one line of text or JSON for each record."""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pythonjsonlogger.json import JsonFormatter

_fields: ContextVar[Mapping[str, str | int]] = ContextVar("log_context")


def fields() -> Mapping[str, str | int]:
    return _fields.get({})


@contextmanager
def about(**more: str | int) -> Iterator[None]:
    """Add these fields to log lines within the block."""
    before = _fields.set({**fields(), **more})
    try:
        yield
    finally:
        _fields.reset(before)


def enter(only: Mapping[str, str | int]) -> None:
    """Set the fields of log lines from now on, in place of earlier ones."""
    _fields.set(only)


# The query parameter and the header with an API key, in URLs, in JSON and in printed headers.
_NAMED = re.compile(r"(?i)(api[-_]?key[\"']?\s*[=:]\s*[\"']?)(?!\[redacted\])[^\s&\"',;)}\]]+")
_KEY = re.compile(r"(bqs_)[0-9A-Za-z_-]{8,}")
# A URL's password, for example a broker's or a database's, which libraries quote in their errors.
_PASSWORD = re.compile(r"(://[^\s:/?#@]*:)[^\s/?#@]+@")


def redact(text: str) -> str:
    """Replace keys, values that are named as keys, and passwords in URLs by `[redacted]`."""
    if "://" in text:
        text = _PASSWORD.sub(r"\1[redacted]@", text)
    # Most lines lack the word "key", and searching for it is far faster than the expression.
    return redact_keys(_NAMED.sub(r"\1[redacted]", text) if "key" in text.lower() else text)


def redact_keys(text: str) -> str:
    """Replace texts with the form of a key by `[redacted]`, for texts that are shown or stored."""
    return _KEY.sub(r"\1[redacted]", text) if "bqs_" in text else text


_NAME_OF_KEY = re.compile(r"(?i)api[-_]?key|authorization|cookie")


def redact_all(value: Any, redact: Callable[[str], str] = redact) -> Any:
    """Return the value in JSON's types, with every text redacted, and every value that is named as a key."""
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
    console = {"class": "logging.StreamHandler", "formatter": log_format, "filters": ["redact"]}
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
    """A formatter with a JSON object for each record: `time`, `level`, `logger`, `message`, context and extras."""

    def __init__(self) -> None:
        super().__init__(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "exception"},
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's name)
        return f"{super().formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{record.msecs:03.0f}{time.strftime('%z')}"

    def process_log_record(self, log_record: dict[str, Any]) -> dict[str, Any]:
        # Django adds its request object under this name, with the whole request in it.
        extras = {name: value for name, value in log_record.items() if name != "request" or isinstance(value, str)}
        redacted: dict[str, Any] = redact_all({**extras, **fields()})
        return redacted


# A path may hold encoded line ends and terminal commands. Decoded in a log, they would forge lines.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


# Maximum characters of a line of Django's, before control characters are escaped. It may quote a path of kilobytes.
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
