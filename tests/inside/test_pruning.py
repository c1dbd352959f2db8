"""A worker's turn at pruning."""

from datetime import timedelta

import pytest
from django.utils import timezone

from proving import pruning
from proving.models import AccountProof
from queries.models import Batch, Pruning
from tests.explorer.batches import a_batch, finish, settle

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def old(settings) -> None:
    """A batch that was done long ago."""
    settings.KEEP_PROOFS_DAYS = 30
    batch = a_batch()
    finish(batch)
    settle(batch)
    AccountProof.objects.update(nodes=["0xab"])
    Batch.objects.update(finished_at=timezone.now() - timedelta(days=31))


def test_who_has_lost_the_lease_prunes_nothing(monkeypatch):
    prune_one = pruning._prune_proofs

    def lose_the_lease(before):
        changed = prune_one(before)
        Pruning.objects.update(lease_token="another's")
        return changed

    monkeypatch.setattr(pruning, "KINDS", (pruning.Kind("proofs", "KEEP_PROOFS_DAYS", lose_the_lease),))
    pruning.wake()
    pruning.prune_when_due(1)
    assert AccountProof.objects.exclude(nodes=[]).exists()


def test_a_worker_prunes_for_a_moment_and_goes_on_later(monkeypatch):
    monkeypatch.setattr(pruning, "_TURN_SECONDS", 0)
    pruning.wake()
    pruning.prune_when_due(1)
    assert AccountProof.objects.exclude(nodes=[]).exists()
    row = Pruning.objects.get()
    assert row.due_at is not None
    assert row.due_at < timezone.now() + timedelta(seconds=3)
