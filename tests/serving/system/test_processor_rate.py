"""The web server refuses a client address that uses more than its share of a processor, and nobody else."""

import itertools
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from tests.serving.process import ANSWER_SECONDS, Answer, WebServer, serving

pytestmark = [pytest.mark.outside, pytest.mark.long]

PAGE = {"Accept": "text/html"}
MOST_BYTES = 4096
# A share of 1 % is used up by some pages on any machine, because it takes a page 100 times as long to be repaid.
ENOUGH = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[WebServer]:
    with serving(tmp_path_factory.mktemp("limited"), PROCESSOR_PERCENT="1") as server:
        yield server


def get(server: WebServer, path: str, source: str, **headers: str) -> Answer:
    """Request a path from an address of this machine."""
    connection = HTTPConnection("127.0.0.1", server.port, ANSWER_SECONDS, (source, 0))
    connection.request("GET", path, headers={"Host": "127.0.0.1", **headers})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return Answer(answer.status, answer.headers, body)


def until_refused(server: WebServer, path: str, source: str, **headers: str) -> Answer:
    answers = (get(server, path, source, **PAGE, **headers) for _ in itertools.repeat(None, ENOUGH))
    return next(answer for answer in answers if answer.status == 429)


def test_an_address_above_its_share_gets_a_short_page_and_programs_get_json(server):
    page = until_refused(server, "/sign-in", "127.0.1.1")
    seconds = int(page.headers["Retry-After"])
    assert seconds > 0
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert len(page.body) < MOST_BYTES
    assert f"Wait for {seconds} second" in re.sub(r"\s+", " ", page.body.decode())
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["Content-Security-Policy"]
    programs = {
        "/": {"Accept": "application/json"},
        "/explorer.csv": PAGE,
        "/facts.csv": PAGE,
        "/chains.json": PAGE,
        "/facts": {"Accept": "application/json"},
    }
    for path, headers in programs.items():
        answer = get(server, path, "127.0.1.1", **headers)
        assert (path, answer.status, int(answer.headers["Retry-After"]) > 0) == (path, 429, True)
        assert json.loads(answer.body)["code"] == "too_many_requests"


def test_probes_static_files_the_api_and_other_addresses_are_not_refused(server):
    page = get(server, "/sign-in", "127.0.2.2").body.decode()
    (style,) = re.findall(r'href="(/static/[^"]*\.css)"', page)
    until_refused(server, "/sign-in", "127.0.2.1")
    for path in ("/healthz", "/livez", "/readyz", "/metrics", "/batch-query-status", "/facts/", style):
        assert (path, get(server, path, "127.0.2.1").status) != (path, 429)
    assert get(server, style, "127.0.2.1").status == 200
    assert get(server, "/sign-in", "127.0.2.1", **PAGE).status == 429
    assert get(server, "/sign-in", "127.0.2.3", **PAGE).status == 200


def test_requests_for_pages_leave_open_pages_their_share_which_is_limited_too(server):
    refresh = {"HX-Request": "true"}
    until_refused(server, "/sign-in", "127.0.3.1")
    assert get(server, "/explorer/query/none", "127.0.3.1", **refresh).status == 404
    refused = until_refused(server, "/explorer/query/none", "127.0.3.1", **refresh)
    assert json.loads(refused.body)["code"] == "too_many_requests"
    assert get(server, "/sign-in", "127.0.3.2", **PAGE).status == 200


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/facts?apiKey=", {}), ("/facts?apiKey=&apiKey=a", {}), ("/facts?xapiKey=a", {}), ("/facts", {"api-key": ""})],
)
def test_an_empty_key_makes_a_page_no_request_of_a_program(server, path, headers):
    until_refused(server, "/sign-in", "127.0.4.1")
    assert get(server, path, "127.0.4.1", **PAGE, **headers).status == 429
    for key in ("/facts?apiKey=a", "/facts?APIKEY=a", "/facts?api%4Bey=a"):
        assert get(server, key, "127.0.4.1", **PAGE).status == 401
