"""Requests made to break something, at each endpoint that the API's description has. `make attack` sends many more."""

import json
from collections.abc import Iterator

import pytest

from campaigns.attacks.hostile import Known, operations
from campaigns.attacks.sender import send
from tests.serving.askers import askers
from tests.serving.process import WebServer, ask, serving

# Of each operation.
REQUESTS = 60


@pytest.fixture
def web(tmp_path) -> Iterator[WebServer]:
    """Yield a server of this test's own: the test leaves much behind."""
    with serving(tmp_path) as server:
        yield server


def test_each_is_answered_truthfully_and_soon(web):
    users = askers(web)[:2]
    described = ask(web.port, b"GET /api/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    asked = operations(json.loads(described.body))
    assert len(asked) >= 14
    known = Known([user.key for user in users], [user.batch for user in users], ["msg_01M7W1MRHW703BTRFFPT53VVP5"])
    tally = send(web.port, asked, known, count=REQUESTS * len(asked), seed=1)
    assert not tally.faults, "\n".join(tally.faults)
    assert tally.slowest < 10
    # They get past the first checks, and break HTTP as well.
    answered = {(name, status) for name, status in tally.counts}
    assert {("POST /submit-batch-query", status) for status in ("200", "400", "401", "405")} <= answered
    # No chain answers here, and nothing was told by a webhook.
    unanswered = {
        *("POST /estimate-batch-query", "GET /batch-queries/{internalId}/transactions"),
        "POST /webhook-deliveries/{deliveryId}/send-again",
    }
    expected = {str(each) for each in asked if each.is_of_api} - unanswered
    assert expected <= {name for name, status in answered if status == "200"}
    assert ("malformed HTTP", "400") in answered
    assert "Traceback" not in web.installation.log("web").read_text()
