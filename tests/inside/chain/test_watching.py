"""Workers' observations of clocks and the database."""

from datetime import timedelta

import pytest
from django.utils import timezone

from proving.health import findings
from proving.models import ChainWatch
from queries import clock
from queries.models import ServiceClock
from tests.service import work

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
    findings._note_newest_block()
    assert ServiceClock.objects.get().at == honest
