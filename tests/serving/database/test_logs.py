"""Rules for all log lines."""

import io
import json
import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, ProgrammingError, connection
from django.http import HttpRequest
from django.test import Client

from config import logs
from config.logs import Console, JsonLines, RedactKeys, redact

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
def test_text_without_a_password_is_not_redacted(text):
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
    # An earlier test's request may have left log fields in this thread.
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


# --- Failures that last -----------------------------------------------------------------------------------------------

FULL = "The disk of this service is full or fails, so nothing can be stored."


@pytest.fixture
def console(monkeypatch) -> Callable[[], list[str]]:
    """Return a function that returns the console's lines since its last call."""
    monkeypatch.setattr(logs, "_minutes", {})
    written = io.StringIO()
    # A second console handler would count each line as a repetition.
    monkeypatch.setattr(logging.getLogger(), "handlers", [Console(written)])

    def read() -> list[str]:
        lines = written.getvalue().splitlines()
        written.seek(0)
        written.truncate()
        return lines

    return read


def fail(error: Exception, message: str = "a turn failed") -> None:
    try:
        raise error
    except type(error):
        logging.getLogger("test").exception(message)


def full_disk() -> OperationalError:
    error = OperationalError("could not extend file\nHINT: Check free disk space.")
    error.__cause__ = psycopg.errors.DiskFull()
    return error


def test_a_failure_of_the_database_is_one_line_at_its_begin_and_one_a_minute(console, pass_time):
    line = f"a turn failed: {FULL} (could not extend file)"
    for _ in range(100):
        fail(full_disk())
        fail(full_disk(), "another turn failed")
    assert console() == [line]
    pass_time(59)
    fail(full_disk())
    assert console() == []
    pass_time(60)
    fail(full_disk())
    assert console() == [f"{line} (200 lines left out within a minute)"]
    pass_time(119)
    logging.getLogger("test").warning("another line")
    assert console() == ["another line"]
    pass_time(120)
    logs.write_left_out()
    logs.write_left_out()
    assert console() == [f"{line} (1 line left out within a minute)"]
    pass_time(180)
    fail(full_disk())
    assert console() == [line]


def test_another_failure_keeps_its_traceback_and_is_not_repeated_either(console):
    for _ in range(10):
        fail(ZeroDivisionError("a defect"))
        fail(ValueError("another defect"))
    written = console()
    assert written.count("Traceback (most recent call last):") == 2
    assert [line for line in written if line.startswith(("ZeroDivision", "ValueError"))] == [
        "ZeroDivisionError: a defect",
        "ValueError: another defect",
    ]


def test_failures_are_told_apart_by_their_lines_and_an_end_of_the_process_is_always_written(console):
    for _ in range(3):
        for lane in ("house", "watch"):
            fail(ZeroDivisionError("a defect"), f"a turn of {lane} failed")
        for table in ("batch", "block"):
            error = ProgrammingError(f"permission denied for table {table}")
            error.__cause__ = psycopg.errors.InsufficientPrivilege()
            fail(error)
    told = [line for line in console() if "failed" in line]
    assert [sum(word in line for line in told) for word in ("house", "watch", "batch", "block")] == [1, 1, 1, 1]
    for _ in range(2):
        logging.getLogger("test").critical("the process ends", exc_info=ZeroDivisionError("a defect"))
    assert [line for line in console() if "ends" in line] == ["the process ends"] * 2


def test_no_more_than_some_failures_are_tracked_and_further_ones_are_written(console, monkeypatch):
    monkeypatch.setattr(logs, "_MOST_FAILURES", 2)
    for _ in range(2):
        for number in range(4):
            fail(ZeroDivisionError("a defect"), f"turn {number} failed")
    written = console()
    assert [written.count(f"turn {number} failed") for number in range(4)] == [1, 1, 2, 2]
    assert len(logs._minutes) == 2


def test_a_line_that_is_written_while_another_is_counted_holds_up_nothing(console):
    class Kind(type):
        """A type of errors whose look-up logs, as an object does that is garbage collected at this moment."""

        def __hash__(cls) -> int:
            logging.getLogger("test").warning("collected")
            return super().__hash__()

    class Defect(Exception, metaclass=Kind):
        pass

    done = threading.Event()

    def run() -> None:
        logging.getLogger("test").error("a line", exc_info=Defect())
        done.set()

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(10)
    assert "collected" in console()


def test_warnings_of_one_template_about_one_subject_are_one_line_a_minute_with_the_newest_values(console, pass_time):
    for number in range(3):
        for host in ("a.example", "b.example"):
            logging.getLogger("test").warning("%s refuses %s", host, number)
    assert console() == ["a.example refuses 0", "b.example refuses 0"]
    pass_time(61)
    logging.getLogger("test").warning("%s refuses %s", "a.example", 4)
    assert console() == [
        "a.example refuses 2 (2 lines left out within a minute)",
        "b.example refuses 2 (2 lines left out within a minute)",
    ]


def test_a_subject_is_told_once_by_each_logger_and_at_each_level(console):
    for name in ("proving", "queries"):
        for _ in range(2):
            logging.getLogger(name).warning("chain %d waits", 5)
            logging.getLogger(name).error("chain %d waits", 5)
    assert len(console()) == 4


def test_no_information_is_left_out(console):
    for _ in range(3):
        logging.getLogger("gunicorn.access").info("GET /")
    assert len(console()) == 3


def test_a_line_that_is_left_out_keeps_no_long_text(console, pass_time):
    for _ in range(2):
        logging.getLogger("test").warning("%s %s", "a subject", "x" * 100_000)
    console()
    pass_time(61)
    logs.write_left_out()
    assert len(console()[0]) < 1000


@pytest.mark.django_db
def test_refused_requests_and_an_unusable_database_write_a_line_each_in_a_minute(console, settings):
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)

    def no_room(_execute: object, _sql: object, *_: object) -> None:
        raise full_disk()

    for number in range(5):
        assert client.get("/", headers={"host": f"{number}.example"}).status_code == 400
        assert client.post("/sign-in/verify", {}).status_code == 403
        with connection.execute_wrapper(no_room):
            assert client.get(f"/explorer?q={number}").status_code == 503
    # The test client's requests are logged as well.
    warnings = [line for line in console() if not line.startswith("127.0.0.1 ")]
    assert [line.split(":")[0] for line in warnings] == [
        "Invalid HTTP_HOST header",
        "Forbidden (CSRF cookie not set.)",
        "Service Unavailable",
    ]
    assert FULL in warnings[2]
