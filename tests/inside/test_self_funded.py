"""Self-funded batches don't use other users' turns and money."""

from datetime import timedelta

import pytest
from django.utils import timezone

from contracts import DEPLOYER
from proving import money
from proving.models import Transaction
from proving.reconcile import observe
from queries.models import Batch, BatchStatus, Block
from tests.inside.working import accept_all
from tests.proving.self_funded import itself, left_of, send
from tests.service import ALICE, BOB, CHARLIE, a_key, fresh, request, submit, work, work_until_done


def test_a_batch_that_is_self_funded_takes_no_turn_from_others_and_cuts_no_pause_short(service, key):
    block = service.head()
    paid = submit(key, request(ALICE, block=block))
    accept_all()
    later = timezone.now() + timedelta(seconds=30)
    Block.objects.update(due_at=later, attempts=3)
    oneself = submit(a_key(BOB), itself(request(ALICE, block=block)))
    accept_all()
    row = Block.objects.get()
    assert row.queued_for_id == paid.user_id
    assert row.due_at
    assert abs(row.due_at - later) < timedelta(seconds=1)
    # The block has no open batch for the operator to pay, so it is treated like others.
    Batch.objects.filter(pk=paid.pk).update(status=BatchStatus.REJECTED)
    submit(oneself.api_key, itself(request(BOB, block=block)))
    accept_all()
    row.refresh_from_db()
    assert row.due_at < later - timedelta(seconds=1)


def test_nothing_is_ever_shared_with_who_is_self_funded(service, key):
    """This check is the last line of defence, because no code stores such a transaction."""
    work_until_done(submit(key, request(ALICE, block=service.head())), service)
    tx = Transaction.objects.exclude(to=DEPLOYER).get()
    tx.shares.all().delete()
    Batch.objects.update(sender="self")
    with pytest.raises(money.NotOurs):
        money.portions_of(tx, ())


def test_of_a_crowd_that_waits_for_others_all_are_looked_at_in_time(service, key, monkeypatch):
    monkeypatch.setattr(observe, "_QUERIES_PER_LOOK", 2)
    block = service.head()
    other = a_key(BOB)
    nobody_sends = [submit(other, itself(request(f"0x{number:040x}", block=block))) for number in range(1, 5)]
    paid = submit(key, request(BOB, block=block))
    oneself = submit(key, itself(request(CHARLIE, block=block)))
    work_until_done(paid, service)
    send(service, left_of(oneself)["transactions"])
    for _ in range(60):
        work()
        if fresh(oneself).status == BatchStatus.DONE:
            break
    assert oneself.status == BatchStatus.DONE
    assert {fresh(batch).status for batch in nobody_sends} == {BatchStatus.IN_PROGRESS}
