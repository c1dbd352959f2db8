"""What a batch says that it waits for."""

from datetime import timedelta

import pytest
from django.utils import timezone

from queries.models import Block, Wait
from tests.explorer.batches import a_batch, accept

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def test_waiting_is_told_with_how_long_and_when_next_for_what_fails():
    now = timezone.now()
    assert str(Wait("Waiting for block 3.")) == "Waiting for block 3."
    wait = Wait("The node is down.", now - timedelta(seconds=40), now + timedelta(seconds=8.2))
    assert str(wait) == "The node is down. This has lasted for 40 s; the next attempt is in 8 s."
    assert str(Wait("The node is down.", now, now)).endswith("the next attempt is now.")


def test_a_batch_tells_each_sentence_of_its_blocks_once_with_the_oldest_failure():
    batch = a_batch()
    accept(batch)
    now = timezone.now()
    Block.objects.update(waiting_for="The node is down.", failing_since=now, due_at=now)
    assert batch.waits() == [Wait("The node is down.", now, now, (31337,))]
