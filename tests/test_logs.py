"""Rules for every log line."""

import io
import json
import logging
from datetime import datetime
from typing import Any

import pytest
from django.http import HttpRequest

from config import logs
from config.logs import JsonLines, RedactKeys, redact

KEY = "bqs_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def logged(message: str, *arguments: object) -> str:
    record = logging.LogRecord("test", logging.INFO, "", 0, message, arguments, None)
    assert RedactKeys().filter(record)
    return record.getMessage()


@pytest.mark.parametrize(
    "text",
    [
        f"GET /batch-query-status?apiKey={KEY}&batchQueryId=1",
        f"Invalid HTTP request line: 'GET /?apikey={KEY}'",
        f"{{'api-key': '{KEY}'}}",
        f'"apiKey": "{KEY}"',
        f"GET /;apiKey={KEY}",
        f"a key alone: {KEY}",
        "api-key: a-key-of-another-form",
    ],
)
def test_no_key_is_left_in_a_line(text):
    assert KEY not in redact(text)
    assert "another-form" not in redact(text)
    assert "redacted" in redact(text)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Error 111 connecting to redis://:hunter2@h:6379/0.", "Error 111 connecting to redis://:[redacted]@h:6379/0."),
        ("amqps://bqs:hunter%2F2@h//vhost refused", "amqps://bqs:[redacted]@h//vhost refused"),
        (
            "['postgresql://u:hunter2@h/db', 'redis://:hunter2@h']",
            "['postgresql://u:[redacted]@h/db', 'redis://:[redacted]@h']",
        ),
    ],
)
def test_no_password_of_a_url_is_left_in_a_line(text, redacted):
    assert redact(text) == redacted


@pytest.mark.parametrize("text", ["GET http://h:8000/a@b", "from http://[::1]:80/ to a:b@c", "https://h/?a=b:c@d"])
def test_what_is_no_password_stays(text):
    assert redact(text) == text


def test_the_rest_of_a_line_stays():
    assert redact(f"GET /?apiKey={KEY}&batchQueryId=1 200") == "GET /?apiKey=[redacted]&batchQueryId=1 200"


def test_django_quotes_no_long_path():
    path = "/" + "\x01" * 4000
    record = logging.LogRecord("django.request", logging.WARNING, "", 0, "Not Found: %s", (path,), None)
    assert RedactKeys().filter(record)
    assert record.getMessage().startswith("Not Found: /\\x01")
    assert len(record.getMessage()) < 1700
    assert logged("%s", "x" * 4000) == "x" * 4000


def test_no_request_forges_a_line_or_commands_a_terminal():
    assert logged("GET %s", "/x\n2026-11-20 INFO all is well\x1b[8m\x9b") == (
        "GET /x\\x0a2026-11-20 INFO all is well\\x1b[8m\\x9b"
    )


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lines():
    """Return a logger, and a function that reads its lines."""
    # Drop the log fields that an earlier test's request left in this thread.
    logs.enter({})
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    handler.addFilter(RedactKeys())
    logger = logging.Logger("test")  # noqa: LOG001 (no other test sees it)
    logger.addHandler(handler)

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in written.getvalue().splitlines()]

    return logger, read


def test_a_line_of_json_has_what_it_is_about(lines):
    logger, read = lines
    with logs.about(request="r-1", batch="B"):
        with logs.about(chain=5):
            logger.warning("a %s", "message", extra={"batches": ["B", "C"]})
        logger.info("inner fields are gone")
    logger.info("and all")
    first, second, third = read()
    assert datetime.fromisoformat(first.pop("time")).utcoffset() is not None
    about = {"request": "r-1", "batch": "B", "chain": 5, "batches": ["B", "C"]}
    assert first == {"level": "WARNING", "logger": "test", "message": "a message"} | about
    assert (second["batch"], "chain" in second) == ("B", False)
    assert third.keys() == {"time", "level", "logger", "message"}


def test_no_key_is_left_in_any_field_of_json(lines):
    logger, read = lines
    with logs.about(batch=KEY):
        try:
            int(f"{KEY}, api-key: a-key-of-another-form")
        except ValueError:
            extra = {
                "headers": {"Api-Key": "a-key-of-another-form", "authorization": "Bearer a-key-of-another-form"},
                "nested": [{"deep": (f"apiKey={KEY}", KEY.encode(), {KEY: 1})}],
                "thing": type("Thing", (), {"__str__": lambda _: f"api_key={KEY}"})(),
            }
            logger.exception("GET /?apiKey=%s", KEY, extra=extra, stack_info=True)
    (line,) = read()
    text = json.dumps(line)
    assert "0123456789abcdef" not in text
    assert "another-form" not in text
    assert line["message"] == "GET /?apiKey=[redacted]"
    assert line["exception"].startswith("Traceback (most recent call last):")
    assert "bqs_[redacted]" in line["exception"]


def test_no_request_forges_a_line_of_json(lines):
    logger, read = lines
    logger.info('%s"}\n{"level": "CRITICAL"}', "x", extra={"path": '/"}\n{"level": "CRITICAL"}\x9b'})
    (line,) = read()
    assert line["level"] == "INFO"


def test_django_s_request_does_not_hide_the_id(lines):
    logger, read = lines
    with logs.about(request="r-1"):
        logger.info("Not Found", extra={"request": HttpRequest(), "status_code": 404})
    logger.info("Not Found", extra={"request": HttpRequest()})
    first, second = read()
    assert (first["request"], first["status_code"]) == ("r-1", 404)
    assert "request" not in second
