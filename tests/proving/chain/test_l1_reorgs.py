"""Reorganisations of L1, which take blocks of its rollup with them.

The rollup at once mines the dropped transactions again, in one block with an older L1 origin, as op-geth does. So
another L1 block is recorded than before, and what builds on it reverts.
"""

from collections.abc import Callable

import pytest

from devnet.devchain import DevChain
from proving.models import SignedTransaction, Transaction
from queries.models import BatchStatus
from tests import chain_fixtures
from tests.contracts.l1_block import L1Block
from tests.proving.chain_state import balance_at
from tests.proving.sources import THERE, balance_proven, connect, grow, of_chains
from tests.service import fresh, reconfigure, submit, work, work_until_done
from tests.users import BOB, CHARLIE, SECOND_SIGNER, SIGNER

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.long]

# Blocks of L1: the older origin, the block that is asked for, and the newer origin.
_OLDER, _ASKED, _NEWER = 20, 22, 30

# No block of the rollup is final.
chain = chain_fixtures.chain_fixture(lambda chain: chain.mine(5), scope="function", slots_in_an_epoch=32)
there = chain_fixtures.chain_fixture(lambda chain: grow(chain, _NEWER), scope="function", chain_id=THERE)


@pytest.fixture
def l1_block(chain, there, db, settings, tmp_path) -> L1Block:
    """Configure the service on a rollup, whose origin is the older one."""
    l1_block = L1Block(chain)
    connect(settings, tmp_path, chain, there.url)
    l1_block.tell_of(there, _OLDER)
    return l1_block


def replace_blocks(there: DevChain, value: int) -> None:
    """Replace the blocks of L1 above the older origin. In the first new one, Charlie gets so much."""
    nonce = there.rpc("eth_getTransactionCount", BOB, hex(_OLDER))
    gift = {"from": BOB, "to": CHARLIE, "value": hex(value), "gas": hex(21_000), "nonce": nonce}
    there.rpc("anvil_reorg", there.head() - _OLDER, [[gift, 0]])


def mine_together(chain: DevChain, first: int) -> None:
    """Replace the blocks from a number on. The first new one has the service's transactions."""
    sent = SignedTransaction.objects.filter(transaction__block_number__gte=first).order_by("transaction__nonce")
    raw = ["0x" + bytes(version.raw).hex() for version in sent]
    chain.rpc("anvil_reorg", chain.head() - first + 1, [[each, 0] for each in raw])


def mine_again_when_broadcast(chain: DevChain, first: int) -> None:
    """Replace the blocks from a number on. The service has the same transactions mined later."""
    chain.rpc("anvil_reorg", chain.head() - first + 1, [])
    chain.rpc("anvil_dropAllTransactions")
    work(3)


def failed() -> list[bool]:
    """Return for each failed transaction whether a reorganisation was the cause, as stored."""
    return [tx.failure == "outdated" for tx in Transaction.objects.filter(succeeded=False)]


@pytest.mark.parametrize("reorganise", [mine_together, mine_again_when_broadcast])
def test_facts_are_proven_again_after_many_reorgs_of_l1(
    chain, there, l1_block, key, reorganise: Callable[[DevChain, int], None]
):
    first = chain.head() + 1
    l1_block.tell_of(there)
    batch = work_until_done(submit(key, of_chains(there=[_ASKED])), chain, rounds=20)
    for times in range(1, 6):
        replace_blocks(there, times)
        reorganise(chain, first)
        l1_block.tell_of(there)
        work()
        assert fresh(batch).status == BatchStatus.IN_PROGRESS
        # The proofs for each of the earlier blocks.
        assert failed() == [True] * times
        work_until_done(batch, chain, rounds=20)
        assert balance_proven(chain, _ASKED) == balance_at(there, CHARLIE, _ASKED)
        assert failed() == [True] * times


def test_what_was_pending_during_a_reorg_is_no_failed_try(chain, there, l1_block, key):
    batch = submit(key, of_chains(there=[_ASKED]))
    for times in range(1, 4):
        first = chain.head() + 1
        l1_block.tell_of(there)
        chain.rpc("evm_setAutomine", False)
        work(1, chain)
        # The record is mined. The proof that builds on it isn't.
        work()
        assert Transaction.objects.filter(succeeded=None).count() == 1
        chain.rpc("anvil_reorg", chain.head() - first + 1, [])
        work(3)
        chain.mine()
        work()
        assert failed() == [True] * times
        chain.rpc("evm_setAutomine", True)
    l1_block.tell_of(there)
    work_until_done(batch, chain, rounds=20)
    assert balance_proven(chain, _ASKED) == balance_at(there, CHARLIE, _ASKED)
    assert len(failed()) == times


# The proof is mined after the monitor has seen the reorganisation, or before. Then the first signer is monitored first.
@pytest.mark.parametrize(("records", "proves", "rounds"), [(SIGNER, SECOND_SIGNER, 3), (SECOND_SIGNER, SIGNER, 0)])
def test_what_another_signer_had_pending_during_a_reorg_is_no_failed_try(
    chain, there, l1_block, key, settings, records, proves, rounds
):
    both = "\n".join(f'[[chains.signers]]\nkey_file = "{name}.key"' for name in ("signer", "second"))
    reconfigure(settings, '[chains.signer]\nkey_file = "signer.key"', both)
    batch = submit(key, of_chains(there=[_ASKED]))
    for times in range(1, 4):
        first = chain.head() + 1
        l1_block.tell_of(there)
        chain.rpc("evm_setAutomine", False)
        fund(chain, records, but_not=proves)
        work(1, chain)
        fund(chain, proves, but_not=records)
        work()
        assert [tx.signer.address for tx in Transaction.objects.filter(succeeded=None)] == [proves]
        chain.rpc("anvil_reorg", chain.head() - first + 1, [])
        fund(chain, records, proves)
        work(rounds)
        chain.mine()
        work()
        assert failed() == [True] * times
        chain.rpc("evm_setAutomine", True)
    l1_block.tell_of(there)
    work_until_done(batch, chain, rounds=20)
    assert balance_proven(chain, _ASKED) == balance_at(there, CHARLIE, _ASKED)


def fund(chain: DevChain, *signers: str, but_not: str = "") -> None:
    for signer in (*signers, but_not):
        if signer:
            chain.rpc("anvil_setBalance", signer, hex(0 if signer == but_not else 10**20))
