"""What is kept of how a batch went, beyond where it stands."""

from datetime import timedelta

import pytest
from django.utils import timezone

from database import leases
from queries import progress
from queries.models import Batch, Block, Step, StepKind, Wait
from tests.explorer.batches import a_batch, accept, complete, finish, queries_of

pytestmark = pytest.mark.django_db

WHY = "Chain 31337 was reorganised."


def test_a_step_that_went_back_tells_when_and_why_also_after_it_completed_again():
    batch = a_batch()
    finish(batch)
    before = timezone.now()
    progress.reopen(queries_of(batch), StepKind.HEADER_ACCUMULATED, reason=WHY)
    complete(batch, StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED)
    for row in (Step.objects.get(kind=StepKind.HEADER_ACCUMULATED), Batch.objects.get()):
        assert row.went_back_because == WHY
        assert row.went_back_at
        assert before <= row.went_back_at <= timezone.now()
    assert not Step.objects.exclude(kind=StepKind.HEADER_ACCUMULATED).exclude(went_back_at=None).exists()


def test_a_batch_whose_queries_stayed_did_not_go_back():
    batch = a_batch()
    finish(batch)
    progress.reopen([], StepKind.HEADER_ACCUMULATED, reason=WHY)
    assert Batch.objects.get().went_back_at is None


def test_failures_in_a_row_are_dated_from_the_first_until_one_succeeds():
    accept(a_batch())
    seen = []
    for attempts in (1, 2, 0):
        lease = leases.claim(Block.objects.all(), Block.objects.get().pk)
        assert lease
        lease.release(timezone.now(), attempts=attempts)
        seen.append(Block.objects.get().failing_since)
    assert seen[0]
    assert seen == [seen[0], seen[0], None]


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
