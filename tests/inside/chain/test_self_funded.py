"""Self-funded batches don't use other users' turns and money."""

import pytest

from chains.contract_artifacts import DEPLOYER
from proving import money
from proving.models import Transaction
from queries.models import Batch
from tests.service import ALICE, request, submit, work_until_done


@pytest.mark.long
def test_nothing_is_ever_shared_with_who_is_self_funded(service, key):
    """This check is the last line of defence, because no code stores such a transaction."""
    work_until_done(submit(key, request(ALICE, block=service.head())), service)
    tx = Transaction.objects.exclude(to=DEPLOYER).get()
    tx.shares.all().delete()
    Batch.objects.update(sender="self")
    with pytest.raises(money.NotOurs):
        money.portions_of(tx, ())
