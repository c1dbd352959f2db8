"""The other kinds of facts that a query can name: slots, headers, times."""

from typing import Any

import pytest
from eth_utils.crypto import keccak

from chains.contract_artifacts import DEPLOYER
from devnet.devchain import DevChain
from proving.models import Transaction
from queries.models import Batch, BatchStatus, Query, Step, StepKind
from tests import deployed, headers, users
from tests.chains import geth_answers
from tests.chains.lying_node import error
from tests.proving.chain_state import HeaderField, call, header_on_chain, signer_nonce
from tests.service import (
    asking,
    chains_toml,
    changed_replies,
    done,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

NOBODY = "0x000000000000000000000000000000000000dEaD"


def slot_on_chain(chain, account: str, block: int, slot: int) -> int:
    return call(chain, "0x7e445a26", int(account, 16), block, slot)


def block_at(chain, timestamp: int) -> int:
    return call(chain, "0x" + keccak(text="blockAtTimestamp(uint256)")[:4].hex(), timestamp)


def at_block(block: int | str, **parts) -> dict[str, Any]:
    selector = f"block:{block}" if isinstance(block, int) else block
    return asking({selector: parts})


# --- Slots ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def contract(service) -> str:
    """Return a contract with thirty slots. Slot 5 has the largest value, and slot 1000 is empty."""
    address = "0x" + "c0de" * 10
    service.rpc("anvil_setCode", address, "0x00")
    for slot in range(30):
        service.rpc("anvil_setStorageAt", address, hex(slot), f"0x{2**256 - 1 if slot == 5 else slot + 1:064x}")
    service.mine()
    return address


def test_full_and_empty_slots_are_proven_in_any_spelling(service, key, contract):
    block = service.head()
    slots = ["0x5", f"{7:064x}", "0x" + "0" * 63 + "8", f"0x{1000:x}"]
    empty = {users.ALICE: {"slots": ["0x0"]}, NOBODY: {"slots": ["0x1"], "props": ["BALANCE"]}}
    done(submit(key, at_block(block, accounts={contract: {"slots": slots}} | empty)))
    values = [slot_on_chain(service, contract, block, slot) for slot in (5, 7, 8, 1000)]
    assert values == [2**256 - 1, 8, 9, 0]
    assert slot_on_chain(service, users.ALICE, block, 0) == slot_on_chain(service, NOBODY, block, 1) == 0


@pytest.mark.long
def test_hundreds_of_slots_fill_transactions_and_none_is_above_what_nodes_take(service, key, contract):
    block = service.head()
    slots = [hex(slot) for slot in range(700)]
    done(submit(key, at_block(block, accounts={contract: {"slots": slots}})), rounds=20)
    assert [slot_on_chain(service, contract, block, slot) for slot in (0, 29, 30, 699)] == [1, 30, 0, 0]
    sizes = [len(tx.data) for tx in Transaction.objects.exclude(to=DEPLOYER)]
    assert max(sizes) < 128 * 1024
    assert 1 < len(sizes) <= 4


# --- Headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_header_property_is_proven_with_only_the_steps_that_it_needs(service, key):
    block = service.head()
    batch = done(submit(key, at_block(block, header=list(HeaderField.__members__)[: len(headers.PRAGUE)])))
    kinds = list(Step.objects.filter(query__batch=batch).order_by("pk").values_list("kind", flat=True))
    assert kinds == [StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED]
    told = service.rpc("eth_getBlockByNumber", hex(block), False)
    for field, name in zip(HeaderField, headers.PRAGUE, strict=False):
        word = keccak(hexstr=told[name]).hex() if name in {"logsBloom", "extraData"} else told[name]
        assert header_on_chain(service, block, field) == int(word, 16), name


@pytest.mark.long
def test_a_property_that_the_fork_does_not_know_is_rejected_and_holds_up_nobody(tmp_path, db, settings):
    with DevChain(hardfork="cancun") as old:
        settings.CHAINS_FILE = chains_toml(tmp_path, old.url)
        deployed.deploy()
        old.mine(3)
        key, block = users.a_key(), old.head()
        bad = submit(key, at_block(block, header=["TIMESTAMP", "REQUESTS_HASH"]))
        done(submit(key, at_block(block, header=["WITHDRAWALS_ROOT"], accounts={users.ALICE: {"props": ["BALANCE"]}})))
        work_until_done(bad)
        assert (bad.status, bad.rejection_code) == (BatchStatus.REJECTED, "header_property_missing")
        assert "no REQUESTS_HASH" in bad.rejection_reason


@pytest.mark.long
def test_a_state_root_is_there_once_the_header_is_and_its_properties_are_added(service, key):
    block = service.head()
    work_until_done(submit(key, request(users.ALICE, block=block)))
    before = signer_nonce(service)
    body = at_block(block, header=["STATE_ROOT", "BLOCK_NUMBER"])
    assert work_until_done(submit(key, body)).status == BatchStatus.DONE
    assert signer_nonce(service) == before
    assert work_until_done(submit(key, at_block(block, header=["TIMESTAMP"]))).status == BatchStatus.DONE
    time = service.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"]
    assert header_on_chain(service, block, HeaderField.TIMESTAMP) == int(time, 16)


# --- Times ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def uneven(service) -> list[int]:
    """Return the times of blocks by number. The intervals between blocks vary."""
    for pause in (1, 100, 3, 3, 5000, 12, 12, 12, 700, 1, 60):
        service.rpc("evm_increaseTime", pause)
        service.mine()
    return times(service)


def times(chain: DevChain) -> list[int]:
    """Return the times of the chain's blocks by number."""
    blocks = (chain.rpc("eth_getBlockByNumber", hex(number), False) for number in range(chain.head() + 1))
    return [int(block["timestamp"], 16) for block in blocks]


@pytest.mark.long
def test_a_time_is_found_in_few_requests_where_no_node_serves_the_first_thousand_headers(service, key, settings):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 12")
    service.rpc("anvil_mine", hex(2000), hex(12))
    work()  # the deployment becomes final
    block = service.rpc("eth_getBlockByNumber", hex(service.head() - 700), False)
    requested_numbers: list[str] = []

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] != "eth_getBlockByNumber":
            return [reply]
        requested_numbers.append(question["params"][0])
        refusal = error(question, *geth_answers.REFUSALS["a pruned block"])
        return [refusal if requested_numbers[-1] in map(hex, range(1200)) else reply]

    with changed_replies(settings, service, change):
        body = at_block(f"timestamp:{int(block['timestamp'], 16) + 5}", accounts={users.ALICE: {"props": ["BALANCE"]}})
        batch = work_until_done(submit(key, body), rounds=20)
    assert batch.status == BatchStatus.DONE
    assert block_at(service, int(block["timestamp"], 16) + 5) == int(block["number"], 16)
    assert len(set(requested_numbers)) <= 12


@pytest.mark.long
@pytest.mark.parametrize("final", [True, False])
def test_times_before_the_oldest_readable_header_are_rejected_at_once(service, key, settings, final):
    """The service can't read early headers, as those of Celo before it was an L2. Without `final`, it can't read the
    final header either.
    """
    service.rpc("anvil_mine", hex(60), hex(12))
    work()  # the deployment becomes final
    first = service.head() - 9

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockByNumber" and (
            int(reply["result"]["number"], 16) < first or (question["params"][0] == "finalized" and not final)
        ):
            del reply["result"]["sha3Uncles"]
        return [reply]

    at = int(service.rpc("eth_getBlockByNumber", hex(first), False)["timestamp"], 16)
    with changed_replies(settings, service, change):
        early, late = (
            submit(key, at_block(f"timestamp:{time}", accounts={users.ALICE: {"props": ["BALANCE"]}}))
            for time in (at - 1, at)
        )
        assert work_until_done(late, rounds=20).status == BatchStatus.DONE
        work_until_done(early)
    assert (early.status, early.rejection_code) == (BatchStatus.REJECTED, "timestamp_before_first_block")
    assert block_at(service, at) == first


@pytest.mark.long
def test_a_time_selects_its_block_and_is_a_fact_of_its_own(service, key, uneven):
    number = len(uneven) - 4
    time = uneven[number] + 1 if uneven[number + 1] > uneven[number] + 1 else uneven[number]
    body = at_block(f"timestamp:{time}", accounts={users.ALICE: {"props": ["BALANCE"]}}, header=["TIMESTAMP"])
    done(submit(key, body), rounds=20)
    assert block_at(service, time) == number
    assert {query.block.number for query in Query.objects.select_related("block") if query.block} == {number}
    assert header_on_chain(service, number, HeaderField.TIMESTAMP) == uneven[number]


@pytest.mark.long
def test_a_time_that_the_head_has_not_passed_is_waited_for(service, key):
    now = int(service.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    batch = submit(key, at_block(f"timestamp:{now}", accounts={users.BOB: {"props": ["NONCE"]}}))
    work()
    batch.refresh_from_db()
    assert batch.status == BatchStatus.ACCEPTED
    assert "may still get a later block" in waiting()[0]
    expected = service.head()
    service.rpc("evm_increaseTime", 5)
    service.mine(2)
    assert work_until_done(batch, rounds=20).status == BatchStatus.DONE
    assert block_at(service, now) == expected


@pytest.mark.long
def test_a_time_far_ahead_or_before_the_first_block_is_rejected(service, key):
    now = int(service.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    too_far = "timestamp_too_far_ahead"
    # Once a worker has seen the head, the first time is refused at once.
    for time, code in ((1000 * now, too_far), (now + 10**4, too_far), (1, "timestamp_before_first_block")):
        batch = submit(key, at_block(f"timestamp:{time}", accounts={users.BOB: {"props": ["NONCE"]}}))
        work_until_done(batch)
        assert (batch.status, batch.rejection_code) == (BatchStatus.REJECTED, code)
    assert Batch.objects.filter(rejection_retryable=True).count() == 1


@pytest.mark.long
def test_a_reorg_that_moves_a_time_moves_its_queries_and_holds_up_nobody(service, key):
    service.rpc("evm_setAutomine", False)
    for pause in (10, 10, 10):
        service.rpc("evm_increaseTime", pause)
        service.mine()
    number = service.head() - 1
    time = int(service.rpc("eth_getBlockByNumber", hex(number), False)["timestamp"], 16) + 5
    timed = submit(key, at_block(f"timestamp:{time}", accounts={users.ALICE: {"props": ["BALANCE"]}}))
    plain = submit(key, request(users.BOB, block=number))
    work()
    assert {query.block_id for query in Query.objects.all()} == {plain.queries.get().block_id}
    # Two new blocks replace the newest two. The upper one's time is not after `time`.
    service.rpc("anvil_rollback", 2)
    for pause in (1, 1, 100, 5):
        service.rpc("evm_increaseTime", pause)
        service.mine()
    service.rpc("evm_setAutomine", True)
    for batch in (plain, timed):
        assert work_until_done(batch, service, rounds=30).status == BatchStatus.DONE
    number_at_time = max(number for number, made_at in enumerate(times(service)) if made_at <= time)
    assert number_at_time != number
    assert block_at(service, time) == number_at_time
    assert timed.queries.values_list("block__number", flat=True).get() == number_at_time


@pytest.mark.long
def test_a_fact_under_way_for_one_batch_is_not_paid_again_for_the_next(service, key, contract):
    block = service.head()
    body = at_block(block, accounts={contract: {"slots": ["0x1", "0x2"]}}, header=["TIMESTAMP"])
    service.rpc("evm_setAutomine", False)
    first_batch = submit(key, body)
    work(2)
    two = submit(key, body)
    work(2)
    service.rpc("evm_setAutomine", True)
    assert work_until_done(first_batch, service).status == BatchStatus.DONE
    assert work_until_done(two, service).status == BatchStatus.DONE
    assert Transaction.objects.exclude(to=DEPLOYER).count() == 1
