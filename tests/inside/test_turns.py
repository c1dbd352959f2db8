"""Whose turn it is: a user with thousands of waiting blocks holds up nobody."""

from collections.abc import Iterator, Sequence

import pytest
from django.core.management import call_command
from django.utils import timezone

from accounts.models import ApiKey
from chains import together
from proving.models import Transaction
from proving.transactions import signers
from proving.worker.due import Poll, Task, Turns, due
from queries import submission
from queries.models import Batch, BatchStatus, Block
from tests.deployed import deploy
from tests.inside.working import accept_all
from tests.proving.paths import connect
from tests.proving.sources import grow
from tests.service import ALICE, BOB, CHARLIE, a_key, request, submit, work, work_until_done


@pytest.fixture
def heavy(service) -> ApiKey:
    service.mine(60)
    return a_key(ALICE, "heavy")


@pytest.fixture
def newcomer(service) -> ApiKey:
    return a_key(BOB, "newcomer")


def of_blocks(numbers: Sequence[int]) -> dict[str, object]:
    body = request(ALICE, block=numbers[0])
    entry = next(iter(body["data"]["31337"].values()))
    body["data"]["31337"] = {f"block:{number}": entry for number in numbers}
    return body


def users(tasks: Iterator[Task]) -> list[int | None]:
    """In whose turns it would be done, in that order."""
    return [task.user for task in tasks if task.user]


def taken_up(count: int) -> list[int | None]:
    """By a worker with one thread, which does nothing, so that everything stays due."""
    has_had = Turns()
    taken = []
    for _ in range(count):
        task = next(task for task in due(has_had) if task.user)
        has_had.note(task.user, task.queue)
        taken.append(task.user)
    return taken


# --- In which order ---------------------------------------------------------------------------------------------------


def test_a_newcomers_block_is_due_beside_the_first_of_many(heavy, newcomer):
    batch = submit(heavy, of_blocks(range(10, 50)))
    accept_all()
    submit(newcomer, request(BOB, block=9))
    accept_all()
    assert users(due())[:3].count(newcomer.user_id) == 1
    # It is the same after all of them were looked at, and are due again.
    work()
    Block.objects.update(due_at=timezone.now(), leased_until=None)
    assert batch.status != BatchStatus.DONE
    assert newcomer.user_id in users(due())[:2]


def test_a_batch_is_admitted_beside_a_long_queue_of_blocks(heavy, newcomer):
    submit(heavy, of_blocks(range(10, 40)))
    accept_all()
    submit(newcomer, request(BOB, block=9))
    assert newcomer.user_id in taken_up(2)
    # And so is another one of the same user.
    submit(heavy, of_blocks([9]))
    kinds = [task.kind for task in due() if task.user == heavy.user_id]
    assert "batch" in kinds[:2]


def test_users_take_turns_with_whatever_they_have(heavy, newcomer):
    for first in (10, 20):
        submit(heavy, of_blocks(range(first, first + 10)))
    accept_all()
    submit(newcomer, of_blocks([8, 9]))
    accept_all()
    third = a_key(CHARLIE)
    submit(third, request(CHARLIE, block=7))
    order = taken_up(9)
    everybody = {heavy.user_id, newcomer.user_id, third.user_id}
    assert [set(order[place : place + 3]) for place in (0, 3, 6)] == [everybody] * 3


# --- Transactions -----------------------------------------------------------------------------------------------------


def test_each_user_may_have_as_many_transactions_under_way_as_there_is_room(service, heavy, newcomer, monkeypatch):
    monkeypatch.setattr(signers, "_TRANSACTIONS", 8)
    service.rpc("evm_setAutomine", False)
    submit(heavy, of_blocks(range(10, 20)))
    for _ in range(3):
        work()
    sent = Transaction.objects.filter(queries__batch__user=heavy.user).distinct()
    assert sent.count() == 4
    assert any("Waiting until transactions" in said for said in Block.objects.values_list("waiting_for", flat=True))
    submit(newcomer, of_blocks(range(30, 40)))
    for _ in range(3):
        work()
    assert sent.count() == 4
    assert Transaction.objects.filter(queries__batch__user=newcomer.user).distinct().count() == 2
    # However little room is left, each may have one.
    third = submit(a_key(CHARLIE), request(CHARLIE, block=50))
    monkeypatch.setattr(signers, "_TRANSACTIONS", 1)
    for _ in range(2):
        work()
    assert Transaction.objects.filter(queries__batch=third).distinct().count() == 1
    service.rpc("evm_setAutomine", True)
    service.mine()
    assert work_until_done(third).status == BatchStatus.DONE


def test_the_room_is_of_gas_too(service, heavy, newcomer, monkeypatch):
    service.rpc("evm_setAutomine", False)
    submit(heavy, of_blocks([10]))
    work()
    sent = Transaction.objects.filter(queries__batch__user=heavy.user).distinct()
    monkeypatch.setattr(signers, "_GAS", 5 * sent.get().gas_limit)
    submit(heavy, of_blocks(range(11, 20)))
    for _ in range(3):
        work()
    assert sent.count() == 3  # two and a half, rounded up
    last = submit(newcomer, request(BOB, block=20))
    work()
    assert Transaction.objects.filter(queries__batch=last).count() == 1
    service.rpc("evm_setAutomine", True)
    service.mine()
    assert work_until_done(last).status == BatchStatus.DONE


def test_a_block_that_somebody_else_made_due_has_a_turn(service, heavy):
    """A reorganised chain does so when it moves a time to another block."""
    submission.find_blocks(31337, {(31337, 5)})
    Block.objects.update(due_at=timezone.now())
    assert [task.kind for task in due() if task.kind == "block"] == ["block"]


def test_many_blocks_of_who_cannot_pay_hold_up_a_path_no_longer_than_one(chain, key, settings, tmp_path):
    connect(chain, settings, tmp_path, "max_hops = 200", "test_network = false\nminimum_signer_balance = '0'")
    settings.ALLOWED_ADDRESSES = ["*"]
    deploy(31337, 31337)
    grow(chain, 100)
    oldest = chain.head() - 90
    poor = submit(key, of_blocks(range(oldest, oldest + 8)) | {"fee": str(10**18)})
    call_command("stop")
    work()
    call_command("resume")
    Batch.objects.filter(pk=poor.pk).update(fee=1)
    # As if a leg of another one's had been under way.
    Block.objects.update(due_at=timezone.now(), waits_for_path=True, attempts=0)
    for _ in range(2):
        together.run(list(due(poll=Poll(kinds={"block"}))))
        Block.objects.exclude(due_at=None).update(due_at=timezone.now())
    assert not Block.objects.filter(waits_for_path=True).exists()
