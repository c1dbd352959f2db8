"""The webhook dispatcher, and its last checks before a connection."""

from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest

from accounts.models import User
from chains.bounded_http import Failed
from proving.models import Lane
from proving.webhooks import delivery
from proving.webhooks.delivery import _next, post
from proving.working import worker
from proving.working.lanes import LaneKind, LaneLost, LaneName
from queries.models import Batch, Webhook
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
    return finish(submit(key, {**request(ALICE, block=block), "webhook": {"url": url}}))


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


@pytest.mark.long
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
