"""The client accepts only deliveries with the service's signature."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks

from batch_query_client import InvalidWebhook, verify_webhook

pytestmark = pytest.mark.outside

SECRET, OLD, OTHERS = ("whsec_" + letter * 32 for letter in "abc")
BODY = json.dumps(
    {
        "type": "batch_query.rejected",
        "timestamp": "2026-01-01T00:00:00Z",
        "data": {"internalId": "01M7", "queryStatus": "REJECTED", "code": "block_too_old", "retryable": False},
    }
)


def headers(body: str = BODY, *secrets: str, ago: float = 0, changed: dict[str, str] | None = None) -> dict[str, str]:
    moment = datetime.now(UTC) - timedelta(seconds=ago)
    signatures = [standardwebhooks.Webhook(secret).sign("msg_1", moment, body) for secret in secrets or (SECRET,)]
    fields = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(moment.timestamp())),
        "Webhook-Signature": " ".join(signatures),
    }
    return fields | (changed or {})


def test_an_event_is_read_from_what_was_signed():
    event = verify_webhook(BODY.encode(), headers(), SECRET)
    assert (event.type, event.id) == ("batch_query.rejected", "msg_1")
    assert (event.data.internal_id, event.data.code, event.data.retryable) == ("01M7", "block_too_old", False)


def test_while_the_secret_is_rotated_either_will_do():
    assert verify_webhook(BODY, headers(BODY, OLD, SECRET), SECRET)
    assert verify_webhook(BODY, headers(BODY, OLD), SECRET, OLD)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (BODY.replace("false", "true"), headers()),
        (BODY + " ", headers()),
        (BODY, headers(BODY, OTHERS)),
        # A function makes these headers, because minutes may pass between collection and the test.
        (BODY, lambda: headers(ago=400)),
        (BODY, lambda: headers(ago=-400)),
        (BODY, headers(changed={"Webhook-Id": "msg_2"})),
        (BODY, headers(changed={"Webhook-Signature": ""})),
        (BODY, headers(changed={"Webhook-Signature": "v1,"})),
        (BODY, headers(changed={"Webhook-Signature": "v1"})),
        (BODY, headers(changed={"Webhook-Signature": "v1,ä"})),
        (BODY, headers(changed={"Webhook-Timestamp": "now"})),
        (BODY, headers(changed={"Webhook-Timestamp": "1e400"})),
        (BODY, {}),
        (b"\xff", headers()),
        (" " * 2_000_000, headers()),
        ("{}", headers("{}")),
        ("[" * 100_000, headers("[" * 100_000)),
    ],
)
def test_anything_else_is_refused(body, fields):
    fields = fields() if callable(fields) else fields
    with pytest.raises(InvalidWebhook):
        verify_webhook(body, fields, SECRET)


@pytest.mark.parametrize("secrets", [(), ("whsec_",), ("whsec_ä",)])
def test_without_a_secret_nothing_can_be_verified(secrets):
    with pytest.raises(ValueError, match="secret"):
        verify_webhook(BODY, headers(), *secrets)
