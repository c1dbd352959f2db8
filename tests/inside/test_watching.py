"""Workers' observations of clocks and the database."""

from datetime import timedelta

import pytest
from django.utils import timezone

from proving.health import findings
from proving.models import ChainWatch
from proving.transactions import replacement
from queries import clock
from queries.models import ServiceClock
from tests.explorer.batches import DEAD_NODE, SOURCE, connect_source
from tests.inside.working import observe
from tests.service import work

pytestmark = pytest.mark.django_db(transaction=True)


def seen(chain_id: int = 31337) -> list[str]:
    """Return the codes that a worker has stored about a chain."""
    return [code for code, *_ in ChainWatch.objects.get(pk=chain_id).problems]


def test_an_error_at_one_chain_is_logged_and_the_others_are_looked_at(service, tmp_path, monkeypatch, caplog):
    connect_source(tmp_path, DEAD_NODE)
    examine = findings.examine

    def fail(chain, *values):
        if chain.id == 31337:  # the chain that is observed first
            raise ZeroDivisionError("a defect")
        return examine(chain, *values)

    monkeypatch.setattr(findings, "examine", fail)
    observe()
    assert "a defect" in caplog.text
    assert ChainWatch.objects.get(pk=31337).looked_at is None
    assert seen(SOURCE) == ["chain_unavailable"]


def test_a_version_that_a_clock_ahead_has_signed_is_not_waited_for():
    for seconds, is_past in ((-20, True), (-5, False), (0, False), (5, False), (20, True)):
        signed_at = timezone.now() + timedelta(seconds=seconds)
        assert replacement.is_past(signed_at, timedelta(seconds=10)) == is_past


def test_a_node_that_tells_a_wrong_time_begins_no_window_anew_and_forgets_nothing():
    for hours in (25, -25, 9600):
        ServiceClock.objects.update_or_create(pk=1, defaults={"at": timezone.now() + timedelta(hours=hours)})
        assert clock.earliest() <= timezone.now()
        assert timezone.now() - timedelta(seconds=1) <= clock.latest() < timezone.now() + timedelta(days=3)


def test_one_node_that_tells_a_time_far_ahead_does_not_silence_the_others(service):
    work()
    honest = ServiceClock.objects.get().at
    ChainWatch.objects.update(timestamp=int((timezone.now() + timedelta(days=4)).timestamp()))
    findings._note_newest_block()
    assert ServiceClock.objects.get().at == honest
