"""The webhook dispatcher, and its last checks before a connection."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from ipaddress import ip_address, ip_network

import pytest
from django.db.models import F

from accounts.models import User
from chains.bounded_http import Failed
from proving import worker
from proving.lanes import LaneKind, LaneLost, LaneName
from proving.models import Lane
from proving.webhooks import delivery
from proving.webhooks.delivery import _next, post
from queries.models import Batch, Webhook, WebhookDelivery
from tests.chains.hostile_node import Exchange, hostile_node
from tests.explorer.batches import finish
from tests.proving.receiver import Received, Receiver, receiver
from tests.service import ALICE, BOB, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def webhooks_to_this_machine(unreachable_chain, settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as hook:
        yield hook


def done(url: str, *, user: str = ALICE, block: int = 12) -> Batch:
    key = User.objects.for_address(user).api_keys.first() or a_key(user)
    batch = submit(key, {**request(ALICE, block=block), "webhook": {"url": url}})
    finish(batch)
    return batch


def attempts(batch: Batch) -> list[str]:
    return [attempt["outcome"] for attempt in batch.webhook.deliveries.get().attempts]


def test_whose_lane_is_lost_notes_nothing():
    def lose(_: Received) -> int:
        Lane.objects.update(token="another's")
        return 500

    with receiver(lose) as hook:
        batch = done(hook.url)
        with pytest.raises(LaneLost):
            worker.turn(LaneName(LaneKind.WEBHOOKS))
    assert attempts(batch) == []


def test_a_pause_that_is_longer_than_rows_wait_is_kept():
    with receiver(lambda _: 500) as hook:
        done(hook.url)
        WebhookDelivery.objects.update(failures=12)
        worker.turn(LaneName(LaneKind.WEBHOOKS))
        # The webhook is due after ten minutes, but its next delivery only much later.
        ten_minutes = timedelta(minutes=10, seconds=1)
        Webhook.objects.update(due_at=F("due_at") - ten_minutes)
        WebhookDelivery.objects.update(next_try_at=F("next_try_at") - ten_minutes)
        worker.turn(LaneName(LaneKind.WEBHOOKS))
        assert len(hook.received) == 1


def test_users_and_receivers_have_so_many_at_a_time(hook):
    for block in range(12):
        done(hook.url, block=block)
        done(f"http://127.0.0.{block + 2}:9/", block=block)
    done("http://127.0.0.1:9/", user=BOB, block=30)
    chosen = list(Webhook.objects.filter(pk__in=_next([])))
    assert [sum(webhook.user_id == user.pk for webhook in chosen) for user in User.objects.order_by("pk")] == [8, 1]
    assert Counter(webhook.receiver for webhook in chosen).most_common(1)[0][1] <= 4
    # The chosen webhooks are excluded from the next choice.
    assert _next(chosen) == []


SPELLINGS = [
    *("127.0.0.1", "localhost", "0x7f.1", "0x7f000001", "017700000001", "2130706433", "127.1", "0", "0.0.0.0"),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
    *("127.0.0.1.", "localhost.", "①②⑦.0.0.1", "%31%32%37.0.0.1", "user@127.0.0.1", "example.org@127.0.0.1"),
]


def test_no_spelling_of_this_machine_is_sent_to(settings, hook):
    """The host is checked when the service connects, even if it was stored before."""
    settings.WEBHOOK_ALLOW = []
    for host in SPELLINGS:
        with pytest.raises((Failed, ValueError)):
            post(f"http://{host}:{hook.url.rsplit(':', 1)[1]}", {}, b"{}")
        assert hook.received == [], host


def test_no_address_of_this_machine_is_sent_to_though_it_be_public(monkeypatch, settings):
    settings.WEBHOOK_ALLOW = []
    monkeypatch.setattr("queries.webhook_targets._is_public", lambda _: True)
    assert delivery._is_of_this_machine(ip_address("127.0.0.1"))
    assert not delivery._may_connect(ip_address("127.0.0.1"))
    assert delivery._may_connect(ip_address("8.8.8.8"))


# --- The status of an answer ------------------------------------------------------------------------------------------

OK, NO_CONTENT = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 No Content\r\n"
INTERIM, BROKE_OFF = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "broke off its answer"
ANSWERS: dict[str, tuple[Sequence[bytes], int | str]] = {
    "a body that must not be there": ([NO_CONTENT + b"Content-Length: 5\r\n\r\nhello"], 204),
    "chunks that must not be there": ([NO_CONTENT + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], 204),
    "another answer": ([NO_CONTENT + b"\r\n" + NO_CONTENT + b"\r\nnull"], 204),
    "a space in a header's name": ([OK + b"X Powered By: x\r\n\r\n"], 200),
    "a control character": ([OK + b"Set-Cookie: a=\x01\0\r\nContent-Length: 0\r\n\r\n"], 200),
    "no colon": ([OK + b"Access-Control-Allow-Origin\r\n\r\n"], 200),
    "a name of other letters": ([OK + "\N{GREEK SMALL LETTER ALPHA}: 1\r\n\r\n".encode()], 200),
    "a line that goes on": ([OK + b" folded: 1\r\n\tmore\r\n\r\n"], 200),
    "two lengths": ([OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok"], 200),
    "a length and chunks": ([OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok"], 200),
    "a length that is none": ([OK + b"Content-Length: -1\r\n\r\n"], 200),
    "a chunk that is none": ([OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"], 200),
    "another protocol's end": ([OK + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n\0\0\0"], 200),
    "bare line feeds": ([b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"], 200),
    "no reason": ([b"HTTP/1.0 200\r\n\r\n"], 200),
    "an odd reason": ([b"HTTP/1.1 200 \xff\x01\r\n\r\n"], 200),
    "an endless reason": ([b"HTTP/1.1 200 " + b"x" * 100_000], 200),
    "a long header": ([OK + b"X: " + b"x" * 100_000 + b"\r\n\r\n"], 200),
    "many headers": ([OK + b"X: x\r\n" * 10_000 + b"\r\n"], 200),
    "nothing more": ([OK], 200),
    "bit by bit": ([bytes([byte]) for byte in INTERIM + b"\r\n" + NO_CONTENT], 204),
    "interim answers": ([INTERIM * 3, b"HTTP/1.1 100 Con", b"tinue\r\nX Y: 1\r\n\r\n" + OK + b"\r\n"], 200),
    "an interim answer in two packets": ([b"HTTP/1.1 100 ", b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 500 No\r\n\r\n"], 500),
    "an interim answer without its end": ([b"HTTP/1.1 100 Continue\r\n" + OK + b"\r\n"], 200),
    "another error": ([INTERIM + b"HTTP/1.1 503 Busy\r\nX Y: 1\r\n\r\n"], 503),
    "a redirect": ([b"HTTP/1.1 302 Found\r\nX Y: 1\r\nLocation: /\r\n\r\n"], 302),
    "another protocol": (
        [b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n" + OK],
        101,
    ),
    "gone": ([b"HTTP/1.1 410 Gone\r\nX Y: 1\r\n\r\n"], 410),
    "half a status": ([b"HTTP/1.1 20"], BROKE_OFF),
    "four digits": ([b"HTTP/1.1 2000 OK\r\n\r\n"], BROKE_OFF),
    "no status": ([b"SSH-2.0-x\r\n" + OK], BROKE_OFF),
    "interim answers alone": ([INTERIM * 5_000], BROKE_OFF),
    "an endless line": ([b"x" * 100_000], BROKE_OFF),
}


def test_the_status_counts_whatever_follows_it():
    got: dict[str, int | str] = {}
    for name, (parts, _) in ANSWERS.items():

        def answer(exchange: Exchange, parts: Sequence[bytes] = parts) -> None:
            for part in parts:
                exchange.send(part)

        with hostile_node(answer, chain_id=None) as url:
            try:
                got[name] = post(url, {}, b"1")
            except Failed as failed:
                got[name] = str(failed)
    assert got == {name: expected for name, (_, expected) in ANSWERS.items()}
