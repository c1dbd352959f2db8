"""Blocks that are ready at the same time share a transaction. None pays or waits for another.

These tests call a worker's turn with a set of blocks: one list of questions, one write and one transaction serve all of
them.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns.benchmarks.distant_node import DistantNode
from chains import nodes
from config.configured_chains import forget_chains, get_chains, get_rpc
from devnet.devchain import DevChain
from proving import heads, packing
from proving.deploying import deploy
from proving.lanes import LaneKind
from proving.models import FactsRegistry, Transaction, TransactionState
from queries.columns import AccountField
from queries.models import Batch, BatchStatus, Block, Step, StepKind
from tests.chains.lying_node import between, error
from tests.factories import until
from tests.inside.working import accept_all, work_once, work_side_by_side
from tests.proving.chain_state import (
    ACCOUNT_PROVEN,
    HEADER_ACCUMULATED,
    balance_at,
    events,
    field_on_chain,
    registry,
    signer_nonce,
)
from tests.proving.kills import exchanges
from tests.proving.prices import ETHER, mine_at, price_of
from tests.proving.transactions import age
from tests.service import ALICE, BOB, a_key, chains_toml, fresh, reconfigure, request, submit, waiting

recent = heads.recent


def until_done(batches: Sequence[Batch], rounds: int = 8) -> None:
    for _ in range(rounds):
        work_once()
        if all(fresh(batch).status in {BatchStatus.DONE, BatchStatus.REJECTED} for batch in batches):
            return
    raise AssertionError(f"{[batch.status for batch in batches]}: {waiting()}")


def at_blocks(user_key, numbers: Sequence[int], *accounts: str, **more) -> list[Batch]:
    return [submit(user_key, request(*(accounts or [ALICE]), block=number, **more)) for number in numbers]


@pytest.fixture
def blocks(service) -> list[int]:
    service.mine(20)
    return list(range(service.head() - 8, service.head()))


def test_blocks_that_are_ready_together_share_one_transaction(service, blocks):
    users = [a_key(), a_key(BOB)]
    batches = [batch for number, user in zip(blocks, itertools.cycle(users)) for batch in at_blocks(user, [number])]
    nonce = signer_nonce(service)
    until_done(batches)
    assert signer_nonce(service) == nonce + 1
    tx = Transaction.objects.get(queries__batch=batches[0])
    assert set(tx.accumulates.values_list("number", flat=True)) == set(blocks)
    for number, batch in zip(blocks, batches, strict=True):
        assert field_on_chain(service, ALICE, number, AccountField.BALANCE) == balance_at(service, ALICE, number)
        shown = Step.objects.filter(query__batch=batch, kind=StepKind.HEADER_ACCUMULATED)
        assert list(shown.values_list("transaction_hash", flat=True)) == [tx.hash]
    assert len(events(service, HEADER_ACCUMULATED)) == len(blocks)


def test_what_is_confirmed_after_the_block_that_a_turn_reads_is_not_paid_for_again(service, key, blocks, monkeypatch):
    """The turn reads the registry at a block before the transaction, but reads rows after the
    transaction is confirmed.
    """
    first = at_blocks(key, blocks[:1])
    accept_all()
    seen = heads.read(get_chains().chain(31337), get_rpc(31337))
    work_side_by_side(LaneKind.CONNECTION)
    work_side_by_side(LaneKind.DESTINATION)
    assert Transaction.objects.get(queries__batch=first[0]).state == TransactionState.CONFIRMED
    second = at_blocks(key, blocks[:1], BOB)
    accept_all()
    with monkeypatch.context() as turn:
        turn.setattr(heads, "recent", lambda *_: seen)
        work_side_by_side(LaneKind.CONNECTION)
    until_done(first + second)
    assert Transaction.objects.filter(queries__batch=first[0]).count() == 1


def test_one_that_the_registry_refuses_keeps_no_other_from_being_proven(service, blocks, monkeypatch):
    """The block's proof is damaged after verification, so only the registry's simulation finds it."""
    batches = at_blocks(a_key(), blocks[:3])
    accept_all()
    spoilt = Block.objects.get(number=blocks[1])
    packed = packing.intents

    def spoil(block, *arguments, **named):
        for intent in packed(block, *arguments, **named):
            if block.pk == spoilt.pk:
                yield replace(intent, data=intent.data[:-1] + bytes([intent.data[-1] ^ 1]))
            else:
                yield intent

    monkeypatch.setattr(packing, "intents", spoil)
    for _ in range(4):
        work_once()
    assert [fresh(batch).status for batch in batches] == [BatchStatus.DONE, BatchStatus.IN_PROGRESS, BatchStatus.DONE]
    assert "The registry does not accept the proof" in str(Block.objects.get(pk=spoilt.pk).wait)
    assert Transaction.objects.filter(queries__batch=batches[0]).count() == 1


def test_a_question_that_is_refused_about_one_block_holds_up_no_other(service, blocks, settings):
    first = f"{blocks[0]:064x}"

    def change(question, reply):
        is_refused = question["method"] == "eth_call" and question["params"][0]["data"].endswith(first)
        return [error(question, -32000, "not here") if is_refused else reply]

    batches = at_blocks(a_key(), blocks[:3])
    accept_all()
    with between(service.url, change) as url:
        reconfigure(settings, service.url, url)
        for _ in range(3):
            work_once()
    assert [fresh(batch).status for batch in batches] == [BatchStatus.IN_PROGRESS, BatchStatus.DONE, BatchStatus.DONE]
    reconfigure(settings, url, service.url)
    until_done(batches)


def test_who_cannot_pay_the_price_is_left_out_and_not_waited_for(costly, key):
    costly.mine(10)
    mine_at(costly, 1)
    numbers = range(costly.head() - 4, costly.head())
    rich = at_blocks(key, numbers[:3], fee=ETHER)
    poor = at_blocks(key, numbers[3:], fee=ETHER)[0]
    accept_all()
    # The fee covers the next block's gas price, but not the offer, which is twice as high for later blocks.
    Batch.objects.filter(pk=poor.pk).update(fee=int(150_000 * 1.2 * price_of(costly)))
    work_side_by_side(LaneKind.CONNECTION)
    of_poor = Transaction.objects.filter(queries__batch=poor)
    of_rich = Transaction.objects.get(queries__batch=rich[0])
    assert of_rich.queries.count() == 3
    assert of_poor.exclude(pk=of_rich.pk).count() == of_poor.count() == 1
    costly.mine()
    work_once()
    costly.mine()
    work_once()
    assert {fresh(batch).status for batch in rich} == {BatchStatus.DONE}


def test_who_cannot_pay_a_higher_price_later_does_not_keep_the_others_at_the_lower_one(costly, key):
    costly.mine(10)
    mine_at(costly, 1)
    numbers = range(costly.head() - 4, costly.head())
    rich = at_blocks(key, numbers[:3], fee=ETHER)
    poor = at_blocks(a_key(BOB), numbers[3:], fee=ETHER)[0]
    accept_all()
    Batch.objects.filter(pk=poor.pk).update(fee=302_000 * 4 * 10**9)
    work_side_by_side(LaneKind.CONNECTION)
    shared = Transaction.objects.get(queries__batch=poor)
    assert shared.queries.count() == 4
    for _ in range(6):
        mine_at(costly, 20)
        age()
        mine_at(costly, 20)
        work_once()
    assert {fresh(batch).status for batch in rich} == {BatchStatus.DONE}
    assert shared.newest.is_cancellation


def test_what_may_leave_the_window_of_hashes_takes_no_other_with_it(service, settings):
    """A user could request the oldest block for which the source vouches, and make others pay for a revert."""
    text = settings.CHAINS_FILE.read_text()
    settings.CHAINS_FILE.write_text(
        text.replace('block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 40')
    )
    forget_chains()
    FactsRegistry.objects.all().delete()
    deploy(31337, 31337)
    service.mine(60)
    head = service.head()
    sent = Transaction.objects.count()
    [edge] = at_blocks(a_key(BOB), [head - 38])
    others = at_blocks(a_key(), range(head - 6, head - 2))
    until_done([edge, *others])
    assert Transaction.objects.count() == sent + 2
    assert Transaction.objects.get(queries__batch=edge).queries.count() == 1


def test_after_one_that_reverted_each_goes_alone(service, blocks):
    """A shared transaction may revert because of one block. The other blocks must be proven nevertheless."""
    batches = at_blocks(a_key(), blocks[:3])
    service.rpc("evm_setAutomine", False)
    accept_all()
    work_side_by_side(LaneKind.CONNECTION)
    # The registry fails in the transaction's block, after a successful simulation.
    address = registry().address
    code = service.rpc("eth_getCode", address, "latest")
    service.rpc("anvil_setCode", address, "0xfe")
    service.mine()
    service.rpc("anvil_setCode", address, code)
    service.rpc("evm_setAutomine", True)
    work_side_by_side(LaneKind.DESTINATION)
    assert Transaction.objects.get(queries__batch=batches[0]).succeeded is False
    nonce = signer_nonce(service)
    work_side_by_side(LaneKind.CONNECTION)
    assert signer_nonce(service) == nonce, "trying again more slowly"
    work_side_by_side(LaneKind.CONNECTION)
    assert signer_nonce(service) == nonce + 3
    assert all(tx.accumulates.count() == 1 for tx in Transaction.objects.order_by("-pk")[:3])


@pytest.mark.long
def test_what_is_shared_is_done_once_wherever_the_worker_is_killed(service, killing):
    user = a_key()
    done = 0
    for exchange in exchanges():
        service.mine(10)
        work_once()
        work_once()
        numbers = range(service.head() - 4, service.head() - 1)
        nonce = signer_nonce(service)
        batches = at_blocks(user, numbers, ALICE, BOB)
        with killing.at(exchange, after=done % 2 == 0):
            until_done(batches)
        until_done(batches)
        work_once()
        assert signer_nonce(service) == signer_nonce(service, "pending") == nonce + 1, f"killed at exchange {exchange}"
        done += len(batches)
        if not killing.killed:
            break
    assert exchange > 7
    assert len(events(service, HEADER_ACCUMULATED)) == done
    assert len(events(service, ACCOUNT_PROVEN)) == 2 * done


def test_those_that_wait_for_each_other_share_although_they_came_one_after_another(service, blocks, settings):
    text = settings.CHAINS_FILE.read_text()
    settings.CHAINS_FILE.write_text(text.replace("[chains.signer]", "gather_seconds = 600\n[chains.signer]", 1))
    forget_chains()
    user = a_key()
    nonce = signer_nonce(service)
    batches = []
    for number in blocks[:3]:
        batches += at_blocks(user, [number])
        work_once()
        assert fresh(batches[-1]).status == BatchStatus.IN_PROGRESS
    assert waiting() == ["Waiting for other blocks to share a transaction with, for up to 600 s."] * 3
    assert signer_nonce(service, "pending") == nonce
    Step.objects.update(started_at=timezone.now() - timedelta(seconds=600))
    until_done(batches)
    assert signer_nonce(service) == nonce + 1


# --- Number of requests -----------------------------------------------------------------------------------------------


@pytest.fixture
def counted(chain: DevChain, db, settings, tmp_path, monkeypatch):
    """Yield a chain and a node before it that counts the service's exchanges."""
    # Heads are read once per poll interval. The interval is made so long that it doesn't end during a test.
    monkeypatch.setattr(heads, "recent", recent)
    monkeypatch.setattr(heads, "poll_seconds", lambda _: 1e6)
    # The chain id isn't checked again during a test either.
    monkeypatch.setattr(nodes, "CHAIN_CHECK_SECONDS", 1e6)
    with DistantNode(chain.url) as node:
        settings.CHAINS_FILE = chains_toml(tmp_path, node.url)
        settings.MAX_BATCHES_PER_MINUTE = 1000
        deploy(31337, 31337)
        # The first batch of a process needs additional requests, for example for the registry's code.
        rounds_until_done(chain, at_blocks(a_key(BOB), [chain.head()]))
        chain.mine(100)
        heads._last.clear()
        work_once()
        heads._last.clear()
        yield chain, node


def rounds_until_done(chain: DevChain, batches: Sequence[Batch]) -> None:
    accept_all()
    work_side_by_side(LaneKind.CONNECTION)
    last = Transaction.objects.latest("nonce").nonce
    # The node mines the transaction only after its answer.
    until(lambda: signer_nonce(chain) > last, "mined")
    work_side_by_side(LaneKind.DESTINATION)
    work_side_by_side(LaneKind.CONNECTION)
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}


@pytest.mark.parametrize(("accounts", "before", "most"), [(1, 6, 10), (40, 7, 11)])
def test_a_batch_takes_few_exchanges_with_its_node(counted, accounts, before, most):
    chain, node = counted
    batch = submit(a_key(), request(*(f"0x{number:040x}" for number in range(accounts)), block=chain.head()))
    node.forget()
    rounds_until_done(chain, [batch])
    # These exchanges precede the transaction, without proofs that admission has read. A poll and the read of facts
    # follow.
    assert [index for index, sent in enumerate(node.exchanges) if "eth_sendRawTransaction" in sent] == [before]
    assert len(node.exchanges) <= most
