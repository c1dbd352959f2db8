"""Blocks that are ready at the same time share a transaction. None pays or waits for another.

These tests call a worker's turn with a set of blocks: one list of questions, one write and one transaction serve all of
them.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chains.contract_artifacts import DEPLOYER
from config.configured_chains import get_chains, get_rpc
from proving import money
from proving.models import FactsRegistry, Transaction, TransactionState
from proving.packing import packs
from proving.registries import registry_setup
from proving.working import heads, lanes
from queries.columns import AccountField
from queries.models import Batch, BatchStatus, Block, Step, StepKind
from tests.chains.lying_node import error
from tests.inside.working import accept_all, work_once, work_side_by_side
from tests.proving import chain_state, prices
from tests.service import (
    ALICE,
    BOB,
    a_key,
    changed_replies,
    fresh,
    reconfigure,
    request,
    submit,
    waiting,
    work_until_done,
)


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
    nonce = chain_state.signer_nonce(service)
    until_done(batches)
    assert chain_state.signer_nonce(service) == nonce + 1
    tx = Transaction.objects.get(queries__batch=batches[0])
    assert set(tx.accumulates.values_list("number", flat=True)) == set(blocks)
    for number, batch in zip(blocks, batches, strict=True):
        assert chain_state.field_on_chain(service, ALICE, number, AccountField.BALANCE) == chain_state.balance_at(
            service, ALICE, number
        )
        shown = Step.objects.filter(query__batch=batch, kind=StepKind.HEADER_ACCUMULATED)
        assert list(shown.values_list("transaction_hash", flat=True)) == [tx.hash]
    assert len(chain_state.events(service, chain_state.HEADER_ACCUMULATED)) == len(blocks)


def test_a_fact_confirmed_after_the_block_that_a_turn_reads_is_not_paid_for_again(service, key, blocks, monkeypatch):
    """The turn reads the registry at a block before the transaction, but reads rows after the
    transaction is confirmed.
    """
    first = at_blocks(key, blocks[:1])
    accept_all()
    seen = heads.read(get_chains().chain(31337), get_rpc(31337))
    work_side_by_side(lanes.LaneKind.CONNECTION)
    work_side_by_side(lanes.LaneKind.DESTINATION)
    assert Transaction.objects.get(queries__batch=first[0]).state == TransactionState.CONFIRMED
    second = at_blocks(key, blocks[:1], BOB)
    accept_all()
    with monkeypatch.context() as turn:
        turn.setattr(heads, "recent", lambda *_: seen)
        work_side_by_side(lanes.LaneKind.CONNECTION)
    until_done(first + second)
    assert Transaction.objects.filter(queries__batch=first[0]).count() == 1


def test_one_that_the_registry_refuses_keeps_no_other_from_being_proven(service, blocks, monkeypatch):
    """The block's proof is damaged after verification, so only the registry's simulation finds it."""
    batches = at_blocks(a_key(), blocks[:3])
    accept_all()
    spoilt = Block.objects.get(number=blocks[1])
    packed = packs.intents

    def spoil(block, *arguments, **named):
        for intent in packed(block, *arguments, **named):
            if block.pk == spoilt.pk:
                yield replace(intent, data=intent.data[:-1] + bytes([intent.data[-1] ^ 1]))
            else:
                yield intent

    monkeypatch.setattr(packs, "intents", spoil)
    for _ in range(4):
        work_once()
    assert [fresh(batch).status for batch in batches] == [BatchStatus.DONE, BatchStatus.IN_PROGRESS, BatchStatus.DONE]
    assert "The registry does not accept the proof" in str(Block.objects.get(pk=spoilt.pk).wait)
    assert Transaction.objects.filter(queries__batch=batches[0]).count() == 1


def test_a_user_who_cannot_pay_the_price_is_left_out(costly, key):
    costly.mine(10)
    prices.mine_at(costly, 1)
    numbers = range(costly.head() - 4, costly.head())
    rich = at_blocks(key, numbers[:3], fee=prices.ETHER)
    poor = at_blocks(key, numbers[3:], fee=prices.ETHER)[0]
    accept_all()
    # The fee covers the next block's gas price, but not the offer, which is twice as high for later blocks.
    Batch.objects.filter(pk=poor.pk).update(fee=int(150_000 * 1.2 * prices.price_of(costly)))
    work_side_by_side(lanes.LaneKind.CONNECTION)
    of_poor = Transaction.objects.filter(queries__batch=poor)
    of_rich = Transaction.objects.get(queries__batch=rich[0])
    assert of_rich.queries.count() == 3
    assert of_poor.exclude(pk=of_rich.pk).count() == of_poor.count() == 1
    costly.mine()
    work_once()
    costly.mine()
    work_once()
    assert {fresh(batch).status for batch in rich} == {BatchStatus.DONE}


@pytest.mark.long
def test_a_block_about_to_leave_the_window_makes_no_other_blocks_transaction_revert(service, settings):
    """A user could request the oldest block for which the source vouches, and make others pay for a revert."""
    reconfigure(settings, 'block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 40')
    FactsRegistry.objects.all().delete()
    registry_setup.deploy(31337, 31337)
    service.mine(60)
    head = service.head()
    sent = Transaction.objects.count()
    [edge] = at_blocks(a_key(BOB), [head - 38])
    others = at_blocks(a_key(), range(head - 6, head - 2))
    until_done([edge, *others])
    assert Transaction.objects.count() == sent + 2
    assert Transaction.objects.get(queries__batch=edge).queries.count() == 1


@pytest.mark.long
def test_after_one_that_reverted_each_goes_alone(service, blocks):
    """A shared transaction may revert because of one block. The other blocks must be proven nevertheless."""
    batches = at_blocks(a_key(), blocks[:3])
    service.rpc("evm_setAutomine", False)
    accept_all()
    work_side_by_side(lanes.LaneKind.CONNECTION)
    # The registry fails in the transaction's block, after a successful simulation.
    address = chain_state.registry().address
    code = service.rpc("eth_getCode", address, "latest")
    service.rpc("anvil_setCode", address, "0xfe")
    service.mine()
    service.rpc("anvil_setCode", address, code)
    service.rpc("evm_setAutomine", True)
    work_side_by_side(lanes.LaneKind.DESTINATION)
    assert Transaction.objects.get(queries__batch=batches[0]).succeeded is False
    nonce = chain_state.signer_nonce(service)
    work_side_by_side(lanes.LaneKind.CONNECTION)
    assert chain_state.signer_nonce(service) == nonce + 3
    assert all(tx.accumulates.count() == 1 for tx in Transaction.objects.order_by("-pk")[:3])


@pytest.mark.long
def test_what_has_failed_is_estimated_after_the_others_are_sent(service, key, blocks, settings):
    """A node that takes long to estimate a transaction must not delay the others at each try."""
    seen: list[str] = []

    def refuse(question: Any, reply: Any) -> list[Any]:
        is_slow = question["method"] == "eth_estimateGas" and BOB[2:].lower() in question["params"][0]["data"]
        seen.append("a slow estimate" if is_slow else question["method"])
        return [error(question, -32000, "execution aborted (timeout = 5s)") if is_slow else reply]

    (slow,) = at_blocks(key, blocks[:1], BOB)
    with changed_replies(settings, service, refuse) as url:
        work_once()
        (other,) = at_blocks(key, blocks[1:2])
        accept_all()
        seen.clear()
        work_side_by_side(lanes.LaneKind.CONNECTION)
        assert seen.index("eth_sendRawTransaction") < seen.index("a slow estimate")
        reconfigure(settings, url, service.url)
    until_done([slow, other])
    assert {fresh(slow).status, fresh(other).status} == {BatchStatus.DONE}


# --- Self-funded batches ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_nothing_is_ever_shared_with_who_is_self_funded(service, key):
    """This check is the last line of defence, because no code stores such a transaction."""
    work_until_done(submit(key, request(ALICE, block=service.head())), service)
    tx = Transaction.objects.exclude(to=DEPLOYER).get()
    tx.shares.all().delete()
    Batch.objects.update(sender="self")
    with pytest.raises(money.NotOurs):
        money.portions_of(tx, packs.Intent(tx.to, b""))
