"""A block 20,000 blocks back, by real windows of 8,191: `make old-blocks`.

A target of its own, because anvil takes minutes and gigabytes of disk for so many blocks whose states it keeps.
"""

import functools
import time

import pytest

from devnet.devchain import DevChain
from proving.registry.deploying import deploy
from queries.models import Batch, BatchStatus, Block
from queries.properties import AccountField
from tests.factories import until
from tests.inside.working import a_worker
from tests.proving.chain_state import balance_at, field_on_chain
from tests.service import ALICE, a_key, chains_toml, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

BLOCKS = 20_000
PER_CALL = 500


def is_decided(batch: Batch) -> bool:
    return Batch.objects.get(pk=batch.pk).finished_at is not None


def test_a_block_20_000_blocks_back_is_proven_by_two_hops(settings, tmp_path, transactional_db, report):
    with DevChain(extra_args=["--max-persisted-states", str(2 * BLOCKS)]) as chain:
        chain.mine(5)
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        deploy(31337, 31337)
        block = chain.head()
        began = time.monotonic()
        for _ in range(BLOCKS // PER_CALL):
            chain.mine(PER_CALL)
        report(f"mining {BLOCKS:,} blocks, s", round(time.monotonic() - began))
        chain.rpc("evm_setIntervalMining", 1)
        batch = submit(a_key(), request(ALICE, block=block))
        with a_worker():
            until(functools.partial(is_decided, batch), "DONE", 300)
        batch = Batch.objects.get(pk=batch.pk)
        assert batch.status == BatchStatus.DONE, batch.rejection_reason
        assert field_on_chain(chain, ALICE, block, AccountField.BALANCE) == balance_at(chain, ALICE, block)
        row = Block.objects.get(number=block)
        assert (row.path_unit, row.path_length) == ("hops", 2)
        report(f"a balance {chain.head() - block:,} blocks back, gas in all", f"{batch.gas_used:,}")
        assert batch.finished_at is not None
        report("and seconds", f"{(batch.finished_at - batch.created_at).total_seconds():.1f}")
