"""Keeps API keys and passwords out of logs, and each record on one line."""

import logging
import re

# The query parameter and the header as they appear in URLs, in JSON and in printed headers.
_NAMED = re.compile(r"(?i)(api[-_]?key[\"']?\s*[=:]\s*[\"']?)[^\s&\"',;)}\]]+")
_KEY = re.compile(r"(bqs_)[0-9A-Za-z_-]{8,}")
# Of a URL, such as a broker's or a database's, also where libraries quote it in their errors.
_PASSWORD = re.compile(r"(://[^\s:/?#@]*:)[^\s/?#@]+@")


def redact(text: str) -> str:
    """The text with `[redacted]` for each key, each value that is named as a key, and each password in a URL."""
    if "://" in text:
        text = _PASSWORD.sub(r"\1[redacted]@", text)
    # Most lines have no such word, and to look for it takes far less time than the expression.
    return redact_keys(_NAMED.sub(r"\1[redacted]", text) if "key" in text.lower() else text)


def redact_keys(text: str) -> str:
    """The text with `[redacted]` in place of whatever has the form of a key, for texts that are shown or stored."""
    return _KEY.sub(r"\1[redacted]", text) if "bqs_" in text else text


# A path may hold encoded line ends and terminal commands. Decoded in a log, they would forge lines.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


# Django's lines quote paths, of kilobytes if a client likes. In characters, of which a control takes four.
_MOST_OF_DJANGO = 400


class RedactKeys(logging.Filter):
    """Rewrites each record's message, and the text of its exception, without keys and control characters."""

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


class NoTracebackOfRefusals(logging.Filter):
    """Drops the traceback of requests that Django refuses as suspicious, such as those with an unknown host name.

    The traceback shows only Django's own code, and gives each such request twenty lines in the log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("django.security."):
            record.exc_info = None
        return True
