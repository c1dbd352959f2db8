"""What every log line goes through."""

import logging

import pytest

from config.logs import NoTracebackOfRefusals, RedactKeys, redact

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


@pytest.mark.parametrize(("logger", "kept"), [("django.security.DisallowedHost", False), ("django.request", True)])
def test_of_what_is_refused_there_is_no_traceback_and_of_defects_there_is(logger, kept):
    error = (ValueError, ValueError("why"), None)
    record = logging.LogRecord(logger, logging.ERROR, "", 0, "what", (), error)
    assert NoTracebackOfRefusals().filter(record)
    assert (record.exc_info == error) is kept
