"""A batch that can't be paid for delays no other batch."""

import pytest
from eth_utils.crypto import keccak

from config.configured_chains import forget_chains, get_rpc
from devnet.devchain import DevChain
from proving.models import Share, Transaction
from queries.models import BatchStatus
from tests.contracts.l1_block import L1Block
from tests.inside.working import admitted
from tests.proving import sources
from tests.proving.prices import ETHER
from tests.service import ALICE, BOB, SIGNER, a_key, done, fresh, reconfigure, request, submit, work


def test_a_user_who_cannot_pay_holds_up_no_earlier_transaction(costly, key, one_by_one):
    first, second = sorted((ALICE, BOB), key=lambda address: keccak(bytes.fromhex(address[2:])))
    rich = admitted(key, request(first, block=one_by_one, fee=ETHER))
    admitted(a_key(BOB), request(second, block=one_by_one, fee=ETHER), fee=1)
    work()
    assert {tx.queries.get().batch_id for tx in Transaction.objects.all()} == {rich.pk}
    assert sorted(Share.objects.values_list("batch", flat=True)) == [rich.pk]


@pytest.mark.long
def test_a_user_who_cannot_pay_holds_up_nobody_before_a_recorded_hash(chain, key, settings, tmp_path):
    with DevChain(chain_id=sources.THERE) as there:
        sources.grow(there, 30)
        chain.rpc("anvil_setBalance", SIGNER, hex(1000 * ETHER))
        settings.ALLOWED_ADDRESSES = ["*"]
        l1 = L1Block(chain)
        sources.connect(settings, tmp_path, chain, there.url)
        reconfigure(settings, "test_network = true", "test_network = false\nminimum_signer_balance = '0'")
        block, head = there.head() - 5, get_rpc(sources.THERE).head()
        l1.tell(head.number, head.hash)
        poor = admitted(key, sources.of_chains(there=[block], address=ALICE) | {"fee": str(ETHER)}, fee=1)
        done(submit(a_key(BOB), sources.of_chains(there=[block]) | {"fee": str(ETHER)}), chain, rounds=20)
        assert (fresh(poor).status, poor.gas_used) == (BatchStatus.IN_PROGRESS, 0)
    forget_chains()
