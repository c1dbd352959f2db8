"""Requests with malformed query parameters."""

import gc
import logging

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.test import Client

from tests.service import a_key, header

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

REQUESTS = 20


@pytest.fixture
def no_logs():
    """Disable logging, because pytest keeps log records and their requests."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def kept() -> int:
    gc.collect()
    # `isinstance` would evaluate lazy objects of other tests, so types are compared.
    return sum(type(each) is WSGIRequest for each in gc.get_objects())


@pytest.mark.parametrize(
    ("time", "cause"),
    [
        *(
            (number, "not a time")
            for number in ("0", "-1", "1764158400.5", "1764158400000", "20261126", "20261126120000")
        ),
        *(
            (basic, "not a time")
            for basic in ("20261126T120000Z", "2026-11-26", "2026-W48-4T12:00Z", "2026-330T12:00Z")
        ),
        *(
            (other, "not a time")
            for other in ("2026-11-26T12:00:00", "2026-11-26 12:00:00Z", "2026-13-26T12:00Z", "now")
        ),
        ("\u0662026-11-26T12:00Z", "not a time"),
        *((f"2026-11-26T12:00:00{zone}", "arrived as a space") for zone in (" 02:00", " 0200", " 02")),
        ("0001-01-01T00:00:00+14:00", "beyond the calendar"),
        ("2026-11-26T12:00:00+02:00", ""),
        *((f"2026-11-26T12:00{more}", "") for more in ("Z", "+0200", "-02", ":00.123456789Z", ":00,5-00:00")),
        ("2026-11-26t12:00z", ""),
    ],
)
def test_a_time_is_iso_8601_with_an_offset_or_refused_with_the_cause(time, cause):
    fields = header(a_key())
    for name in ("createdAfter", "createdBefore"):
        answer = Client().get("/batch-queries", {name: time}, headers=fields)
        assert answer.status_code == (400 if cause else 200)
        assert not cause or (name in answer.json()["error"] and cause in answer.json()["error"])


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (
            "/batch-query-status?batchQueryId=1&waits=5",
            "There is no query parameter waits here. Those of this path are: ",
        ),
        ("/batch-queries?beginning=2026-01-01&status=DONE", "There is no query parameter beginning here. "),
        ("/facts?block=1&height=2&a%00{x}=1", "There is no query parameter a"),
        ("/chains.json?a=1&b=2", "There is no query parameter a, b here. This path has none."),
        ("/explorer/query/01ARZ3NDEKTSV4RRFFQ69G5FAV.json?page=2", "Those of this path are: limit, cursor."),
    ],
)
def test_a_parameter_that_the_document_does_not_name_is_refused(path, names):
    refused = Client().get(path, headers=header(a_key()))
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert names in refused.json()["error"]


def test_a_parameter_that_is_repeated_is_refused():
    refused = Client().get("/batch-queries?status=DONE&limit=5&status=REJECTED", headers=header(a_key()))
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert refused.json()["error"] == "The query parameter status is given more than once."


def test_of_many_long_names_few_are_told():
    names = "&".join(f"{number:02}{'a' * 500}=1" for number in range(50))
    assert len(Client().get(f"/chains.json?{names}").json()["error"]) < 1000


def test_a_probe_may_add_a_parameter():
    assert Client().get("/healthz?nocache=1").json() == Client().get("/healthz").json()


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("path", ["/v1/batch-query-status", "/nothing", "/explorer/nothing"])
def test_a_program_learns_in_json_that_nothing_is_at_a_path(path, method):
    answer = getattr(Client(), method)(path, headers={"accept": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    # Programs often ask for anything, as curl does, or name nothing.
    for accept in ({"accept": "*/*"}, {"accept": "application/json, text/plain, */*"}, {}):
        assert getattr(Client(), method)(path, headers=accept).json()["code"] == "not_found"
    assert "text/html" in Client().get(path, headers={"accept": "text/html,*/*;q=0.8"}).headers["Content-Type"]


PATHS = (
    *("/facts?account=x", "/facts?block=x", "/facts?block=1&slot=x", "/facts?block=1&sourceChainId=x"),
    *("/batch-queries?account=x", "/batch-queries?createdAfter=0001-01-01T00:00:00%2B14:00"),
    *("/batch-queries?limit=x", "/batch-query-status?wait=x", "/webhook-deliveries?cursor=x"),
)


@pytest.mark.long
def test_no_request_stays_in_memory(no_logs):
    fields, before = header(a_key()), kept()
    for path in PATHS:
        for _ in range(REQUESTS):
            assert Client().get(path, headers=fields).status_code == 400
    assert kept() - before < REQUESTS / 2
