"""Paths to old blocks: what is kept for them, and what those pay who ride along."""

import random

import pytest
from eth_utils.crypto import keccak

from campaigns.benchmarks import gas as bench
from campaigns.benchmarks.gas import Case, Lab
from chains import packed
from chains.packed import AccountToProve
from proving.budget import cost_allocation
from proving.gas_model.remaining_work import HOP_GAS, RIDER_GAS, unproven
from proving.models import Share, Transaction
from proving.reconcile.block import reconcile
from proving.transactions.transaction_monitor import monitor
from queries import progress, submission
from queries.models import Batch, Block, PathUnit
from tests.contracts import tries
from tests.inside.working import admitted
from tests.proving.money import ETHER, mine_at, price_of, set_fee
from tests.proving.paths import extending, old_block
from tests.proving.transactions import age
from tests.service import BOB, CHARLIE, a_key, asking, balances, request, work


@pytest.fixture
def two_old_blocks(costly, key, settings) -> tuple[Batch, Block]:
    """A batch that asks for them, and the first, whose path is next."""
    block = old_block(costly, settings, depth=100)
    mine_at(costly, 1)
    batch = admitted(key, asking(balances([block, block - 1]), fee=ETHER))
    return batch, Block.objects.get(number=block)


def need_hops(batch: Batch, block: Block, count: int) -> None:
    """Plan `count` hops for the path to the batch's other block."""
    others = Block.objects.filter(queries__batch=batch).exclude(pk=block.pk)
    others.update(path_unit=PathUnit.HOPS, path_left=count)
    Batch.objects.update(estimated_gas=10**8)


# --- What is kept for them --------------------------------------------------------------------------------------------


def test_a_path_is_not_begun_where_the_fee_does_not_do_for_the_other_paths(costly, two_old_blocks):
    batch, block = two_old_blocks
    need_hops(batch, block, 20)
    price = price_of(costly) * 5 // 4
    set_fee(batch, 10 * HOP_GAS * price)
    reconcile(block.pk)
    assert not Transaction.objects.exists()
    set_fee(batch, 30 * HOP_GAS * price)
    reconcile(block.pk)
    assert Transaction.objects.get().extends_id is not None


def test_a_path_is_not_raised_above_what_the_other_paths_leave(costly, two_old_blocks):
    batch, block = two_old_blocks
    reconcile(block.pk)
    tx = Transaction.objects.get()
    assert tx.extends_id is not None
    costly.rpc("anvil_dropAllTransactions")
    need_hops(batch, block, 20)
    rest = unproven(batch, with_paths=False).gas
    offered = tx.newest.max_fee_per_gas
    set_fee(batch, (tx.gas_limit + rest) * offered * 2)
    mine_at(costly, 8)
    age()
    work()
    assert tx.versions.count() == 1
    set_fee(batch, (tx.gas_limit + rest + 20 * HOP_GAS) * offered * 2)
    age()
    work()
    assert tx.versions.count() == 2


def test_what_completes_queries_is_raised_though_the_fee_does_not_do_for_the_paths(costly, key):
    mine_at(costly, 1)
    head = costly.head()
    batch = admitted(key, asking(balances([head, head - 1]), fee=ETHER))
    block = Block.objects.get(number=head)
    reconcile(block.pk)
    tx = Transaction.objects.get()
    costly.rpc("anvil_dropAllTransactions")
    need_hops(batch, block, 20)
    rest = unproven(batch, with_paths=False).gas
    set_fee(batch, (tx.gas_limit + rest) * tx.newest.max_fee_per_gas * 2)
    mine_at(costly, 8)
    age()
    monitor(tx.signer_id)
    assert tx.versions.count() == 2


# --- Those who ride along ---------------------------------------------------------------------------------------------


def test_who_rides_along_pays_no_path_when_a_reorg_moves_the_other_to_another_block(costly, key, settings):
    block = old_block(costly, settings, depth=60)
    mine_at(costly, 1)
    far = admitted(key, request(CHARLIE, block=block, fee=ETHER))
    near = admitted(a_key(BOB), request(BOB, block=block + 3, fee=ETHER))
    reconcile(Block.objects.get(number=block).pk)
    (path,) = extending()
    before = Share.objects.get(batch=near).wei
    assert 0 < before < Share.objects.get(batch=far).wei
    # As a reorg of the source chain does with what names a time.
    pair = (31337, block + 1)
    moved = submission.find_blocks(31337, {pair})[pair]
    progress.move([far.queries.get().pk], moved, reason="The chain was reorganised.")
    cost_allocation.divide(cost_allocation.weights_of(path))
    assert Share.objects.get(batch=near).wei <= before


@pytest.mark.parametrize("count", [1, 20])
def test_what_rides_along_takes_no_more_than_is_counted_for_it(count):
    """The history contract's storage is the real trie of a full ring."""
    chance = random.Random(17)
    ring = tries.build(
        {keccak(slot.to_bytes(32)): tries.encode(chance.randrange(1, 2**256)) for slot in range(bench.WINDOW)}
    )
    number = 17_463_226
    used = []
    with Lab(number) as lab:
        for riders in (0, count):
            slots = [(number + place * 7) % bench.WINDOW for place in range(riders + 1)]
            account_key = keccak(packed.HISTORY_ADDRESS)
            account = tries.account(1, 0, ring.root_hash, chance.randbytes(32))
            root, proofs = tries.shaped({account_key: account}, chance)
            hashes = {slot: tries.proof(ring, keccak(slot.to_bytes(32))) for slot in slots}
            history = AccountToProve(packed.HISTORY_ADDRESS, 0, proofs[account_key], {}, hashes)
            header = bench.prague_header(number, root, chance.randbytes(32), chance)
            data, before = packed.encode(number, root, [history]), [packed.encode(header, root)]
            used.append(lab.run(Case("path", number, keccak(header), data, before=before)).tx)
    assert used[1] - used[0] <= count * RIDER_GAS
