"""Fixtures for inside tests of budgets: shared ones, and a block of these tests."""

import pytest

from proving.models import Transaction
from tests.proving.prices import ETHER
from tests.service import SIGNER, request, submit, work, work_until_done


@pytest.fixture
def one_by_one(costly, key, monkeypatch) -> int:
    """Return the number of a block with an accumulated header, where three accounts need two transactions."""
    monkeypatch.setattr("proving.packing.packs.MAX_BYTES", 1000)
    block: int = costly.head()
    costly.rpc("evm_setAutomine", True)
    work_until_done(submit(key, request(SIGNER, block=block, fee=ETHER)), costly)
    costly.rpc("evm_setAutomine", False)
    work()
    Transaction.objects.all().delete()
    return block
