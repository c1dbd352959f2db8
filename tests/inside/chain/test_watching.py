"""Workers' observations of clocks and the database."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from proving.health import chain_watch
from proving.models import ChainWatch
from proving.reading import provable_blocks
from proving.working import lanes
from proving.working.lanes import LaneKind, LaneName
from queries import clock
from queries.models import ServiceClock
from tests.service import changed_replies, work

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_node_that_tells_a_wrong_time_begins_no_window_anew_and_forgets_nothing():
    for hours in (25, -25, 9600):
        ServiceClock.objects.update_or_create(pk=1, defaults={"at": timezone.now() + timedelta(hours=hours)})
        assert clock.earliest() <= timezone.now()
        assert timezone.now() - timedelta(seconds=1) <= clock.latest() < timezone.now() + timedelta(days=3)


def test_one_node_that_tells_a_time_far_ahead_does_not_silence_the_others(service):
    work()
    honest = ServiceClock.objects.get().at
    ChainWatch.objects.update(timestamp=int((timezone.now() + timedelta(days=4)).timestamp()))
    chain_watch._note_newest_block()
    assert ServiceClock.objects.get().at == honest


@pytest.mark.long
def test_a_measurement_of_slow_nodes_ends_for_the_other_chains(service, settings, monkeypatch):
    service.mine(200)
    monkeypatch.setattr(provable_blocks, "_MEASURING_SECONDS", 1)
    proofs: list[float] = []

    def answer_late(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getProof":
            proofs.append(time.monotonic())
            time.sleep(1.5)
        return [reply]

    work()
    # Nodes that didn't tell the head when the chain was observed aren't waited for.
    ChainWatch.objects.update(proofs_measured_at=None, looked_at=timezone.now())
    with changed_replies(settings, service, answer_late), lanes.hold(LaneName(LaneKind.WATCH)) as lane:
        assert lane
        provable_blocks.measure_next_proofs(lane)
        assert (len(proofs), ChainWatch.objects.get().proofs_measured_at) == (0, None)
        ChainWatch.objects.update(looked_at=F("seen_at"))
        provable_blocks.measure_next_proofs(lane)
    assert len(proofs) == 1
    assert ChainWatch.objects.get().proves_back == 0
