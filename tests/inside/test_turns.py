"""Whose turn it is: a user with thousands of waiting blocks holds up nobody."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.models import Signer, Transaction
from proving.reconcile.block import reconcile
from proving.transactions import pending_limits, transaction_monitor
from proving.worker import groups, worker
from proving.worker.due import Poll, Task, Turns, due, round_robin
from proving.worker.groups import Group, Groups
from queries import submission, turns
from queries.models import Batch, BatchStatus, Block
from tests.deployed import deploy_on
from tests.explorer.batches import SOURCE, connect_source, of_two_sources
from tests.inside.working import accept_all
from tests.service import ALICE, BOB, CHARLIE, a_key, chains_toml, request, submit, work, work_until_done


def test_queues_take_turns_and_none_is_asked_before_its_turn():
    def two(name: str) -> Iterator[str]:
        for number in (1, 2):
            asked.append(name)
            yield f"{name}{number}"

    asked: list[str] = []
    order = round_robin([two("a"), iter(()), two("b")])
    assert list(itertools.islice(order, 2)) == ["a1", "b1"]
    assert asked == ["a", "b"]
    assert list(order) == ["a2", "b2"]


def test_who_had_no_turn_yet_comes_first_and_the_others_in_their_order(monkeypatch):
    had = Turns()
    had.note("a")
    had.note("b")
    assert sorted("bac", key=had.last) == ["c", "a", "b"]
    had.note("a")
    assert sorted("bac", key=had.last) == ["c", "b", "a"]
    monkeypatch.setattr("proving.worker.due._REMEMBERED", 2)
    for name in "defg":
        had.note(name)
    assert len(had._last) <= 3


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


def test_a_newcomers_batch_is_due_beside_the_first_of_many(heavy, newcomer):
    for first in range(10, 30):
        submit(heavy, of_blocks([first]))
    submit(newcomer, request(BOB, block=9))
    assert set(users(due())[:2]) == {heavy.user_id, newcomer.user_id}


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


def test_a_user_with_several_queues_gets_no_more_turns(heavy, newcomer):
    submit(heavy, of_blocks(range(10, 20)))
    accept_all()
    submit(heavy, of_blocks([9]))
    submit(newcomer, request(BOB, block=8))
    order = taken_up(6)
    assert order.count(newcomer.user_id) == 3


def test_what_one_user_waits_for_takes_turns_too(heavy):
    submit(heavy, of_blocks(range(10, 20)))
    accept_all()
    submit(heavy, of_blocks([9]))
    has_had = Turns()
    kinds = []
    for _ in range(4):
        task = next(task for task in due(has_had) if task.user)
        has_had.note(task.user, task.queue)
        kinds.append(task.kind)
    assert sorted(kinds) == ["batch", "batch", "block", "block"]


def test_a_later_batch_of_the_same_user_waits_for_the_first_few_blocks_only(heavy):
    submit(heavy, of_blocks(range(10, 50)))
    accept_all()
    Block.objects.update(due_at=timezone.now())
    small = submit(heavy, of_blocks([9]))
    accept_all()
    order = [task.key for task in due() if task.kind == "block"]
    assert order.index(small.queries.get().block_id) < 5


def test_what_is_for_all_comes_first(heavy):
    submit(heavy, of_blocks(range(10, 20)))
    accept_all()
    Signer.objects.update(due_at=timezone.now())
    assert next(due()).kind == "signer"


# --- In whose turns ---------------------------------------------------------------------------------------------------


def whose(block: Block) -> int | None:
    (asking,) = turns.asking([block])
    return turns.whose(block, asking.in_turns)


def turn_of(number: int) -> int | None:
    return Block.objects.get(number=number).turn_of_id


def test_a_shared_block_takes_the_turns_of_whoever_gets_to_it_first(heavy, newcomer):
    submit(heavy, of_blocks(range(10, 40)))
    accept_all()
    assert turn_of(39) == heavy.user_id
    submit(newcomer, request(BOB, block=39))
    accept_all()
    assert turn_of(39) == newcomer.user_id
    assert Block.objects.get(number=39).queue_at <= timezone.now()
    assert turn_of(38) == heavy.user_id


def test_nobody_moves_anothers_block_back_by_asking_for_it_too(heavy, newcomer):
    submit(newcomer, request(BOB, block=39))
    accept_all()
    place = Block.objects.get(number=39).queue_at
    submit(heavy, of_blocks(range(10, 40)))
    accept_all()
    assert turn_of(39) == newcomer.user_id
    assert Block.objects.get(number=39).queue_at == place


def test_who_asks_for_anothers_block_and_then_for_thousands_does_not_take_its_turns(heavy, newcomer):
    submit(newcomer, request(BOB, block=9))
    accept_all()
    submit(heavy, of_blocks([9]))
    accept_all()
    assert turn_of(9) == newcomer.user_id
    submit(heavy, of_blocks(range(10, 40)))
    accept_all()
    assert newcomer.user_id in users(due())[:2]


def test_a_block_leaves_whoever_came_to_have_more_due_and_then_stays(heavy, newcomer):
    submit(heavy, of_blocks([9]))
    submit(newcomer, request(BOB, block=9))
    accept_all()
    assert turn_of(9) == heavy.user_id
    submit(heavy, of_blocks(range(10, 40)))
    submit(newcomer, of_blocks([8]))
    accept_all()
    for _ in range(3):
        block = Block.objects.get(number=9)
        assert whose(block) == newcomer.user_id
        Block.objects.filter(pk=block.pk).update(turn_of=newcomer.user_id)
    Block.objects.filter(turn_of=heavy.user_id).update(due_at=None)
    assert whose(Block.objects.get(number=9)) == heavy.user_id


def test_a_block_stays_where_it_is_while_its_users_have_as_many_due(heavy, newcomer):
    for key in (heavy, newcomer):
        submit(key, request(BOB, block=9))
        accept_all()
    for user in (heavy.user_id, newcomer.user_id):
        Block.objects.update(turn_of=user)
        assert whose(Block.objects.get(number=9)) == user


def test_a_reconcile_gives_a_block_back(heavy, newcomer):
    submit(heavy, of_blocks([9]))
    submit(newcomer, request(BOB, block=9))
    submit(heavy, of_blocks(range(10, 40)))
    accept_all()
    Block.objects.update(turn_of=heavy.user_id, due_at=timezone.now())
    reconcile(Block.objects.get(number=9).pk)
    assert turn_of(9) == newcomer.user_id


def test_a_block_goes_on_in_the_turns_of_who_still_has_something_open_there(heavy, newcomer):
    submit(newcomer, request(BOB, block=39))
    submit(heavy, of_blocks(range(30, 40)))
    accept_all()
    assert turn_of(39) == newcomer.user_id
    Batch.objects.filter(user=newcomer.user_id).update(status=BatchStatus.REJECTED)
    reconcile(Block.objects.get(number=39).pk)
    assert turn_of(39) == heavy.user_id


# --- Threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def idle() -> Groups:
    """Return the groups of four threads, which a test tells what is in hand."""
    return Groups(threads=4)


def some(user: int | None, key: int, *, is_long: bool = False) -> Task:
    return Task("block", key, (31337, 31337), print, user, is_long=is_long)


def leaves_threads(idle: Groups, in_hand: Sequence[Task], task: Task) -> bool:
    idle.all = [Group([one], Future()) for one in in_hand]
    return idle.take(task)


def test_one_user_leaves_half_of_the_threads_to_others(service, idle):
    of_one = [some(1, key) for key in range(2)]
    assert leaves_threads(idle, of_one[:1], some(1, 9))
    assert not leaves_threads(idle, of_one, some(1, 9))
    assert leaves_threads(idle, of_one, some(2, 9))
    assert leaves_threads(idle, of_one, some(None, 9))


def test_who_has_much_makes_nobody_wait_for_all_of_it(service, idle):
    for task in (some(1, 0), *(some(2, key) for key in range(1, 12)), some(3, 12)):
        assert idle.take(task)
    assert [[task.user for task in group.tasks] for group in idle.all] == [[1, *[2] * 8, 3], [2] * 3]


def test_one_user_alone_has_all_in_one_group(service, idle):
    assert all(idle.take(some(1, key)) for key in range(64))
    assert [len(group.tasks) for group in idle.all] == [64]


def test_what_takes_long_leaves_half_of_the_threads(service, idle):
    assert leaves_threads(idle, [some(1, 1, is_long=True)], some(2, 9, is_long=True))
    assert not leaves_threads(idle, [some(1, 1, is_long=True)], some(1, 9, is_long=True))
    two = [some(1, 1, is_long=True), some(2, 2, is_long=True)]
    assert not leaves_threads(idle, two, some(3, 9, is_long=True))
    assert leaves_threads(idle, two, some(3, 9))
    assert leaves_threads(idle, two, some(1, 9))


@pytest.fixture
def connected(idle, monkeypatch) -> Callable[..., None]:
    """Has the worker find these connections, as (destination, source)."""

    def connect(*lanes: tuple[int, int]) -> None:
        connections = [SimpleNamespace(destination_id=destination, source_id=source) for destination, source in lanes]
        monkeypatch.setattr(groups, "get_chains", lambda: SimpleNamespace(connections=connections))

    return connect


def a_task(key: int, *lane: int, sources: Iterable[int] = ()) -> Task:
    return Task("batch" if sources else "block", key, lane, print, user=key, sources=frozenset(sources))


def test_a_destination_that_hangs_leaves_half_of_the_threads_whatever_its_sources(idle, connected):
    connected((1, 5), (1, 6), (2, 5))
    for in_hand in ([a_task(1, 1, 5), a_task(2, 1, 6)], [a_task(1, 1, 6), a_task(2, 1)]):
        for refused in (a_task(3, 1, 5), a_task(3, 1, 6), a_task(3, 1), a_task(3, 1, sources=[6])):
            assert not leaves_threads(idle, in_hand, refused)
        assert leaves_threads(idle, in_hand, a_task(3, 2, 5))
        assert leaves_threads(idle, in_hand[:1], a_task(3, 1, 6))


def test_a_source_that_hangs_leaves_half_of_the_threads_also_where_batches_wait_for_it(idle, connected):
    connected((1, 5), (1, 6), (2, 5))
    in_hand = [a_task(1, 1, sources=[5]), a_task(2, 2, 5)]
    for refused in (a_task(3, 1, 5), a_task(3, 2, 5), a_task(3, 2, sources=[5]), a_task(3, 1, sources=[5, 6])):
        assert not leaves_threads(idle, in_hand, refused)
    assert leaves_threads(idle, in_hand, a_task(3, 1, 6))
    assert leaves_threads(idle, in_hand, a_task(3, 1, sources=[6]))


def test_batches_of_several_sources_leave_room_to_each_of_them(idle, connected):
    connected((1, 5), (1, 6))
    of_both = [a_task(key, 1, sources=[5, 6]) for key in (1, 2)]
    assert not leaves_threads(idle, of_both[:1], of_both[1])
    assert leaves_threads(idle, of_both[:1], a_task(3, 1, sources=[6]))
    assert leaves_threads(idle, [of_both[0], a_task(2, 1, 5)], a_task(3, 1, 6))


def test_a_chain_that_is_in_every_connection_takes_all_threads(idle, connected):
    connected((1, 5), (1, 6))
    assert leaves_threads(idle, [a_task(1, 1, 5), a_task(2, 1, 5), a_task(3, 1, 6)], a_task(4, 1, 6))
    connected((1, 5))
    assert leaves_threads(idle, [a_task(key, 1, 5) for key in (1, 2, 3)], a_task(4, 1, 5))


def test_a_batch_asks_the_sources_of_what_is_not_admitted(service, tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    (task,) = [task for task in due() if task.kind == "batch"]
    assert task.chains == {31337, SOURCE}
    assert task.sources == {31337, SOURCE}
    batch.queries.filter(source_chain_id=SOURCE).update(is_admitted=True)
    (task,) = [task for task in due() if task.kind == "batch"]
    assert task.sources == {31337}


def test_accepting_a_batch_of_many_blocks_takes_long(heavy, newcomer):
    submit(heavy, of_blocks(range(1, 102)))
    submit(newcomer, of_blocks(range(1, 101)))
    assert {task.user: task.is_long for task in due() if task.user} == {heavy.user_id: True, newcomer.user_id: False}


def sized(key: int, size: int) -> Task:
    return Task("block", key, (31337, 31337), print, 1, size=size)


def groups_of(idle: Groups, *sizes: int) -> list[list[int]]:
    for key, size in enumerate(sizes):
        idle.take(sized(key, size))
    return [[task.size for task in group.tasks] for group in idle.all]


def test_a_group_asks_only_for_so_much_in_all(service, idle):
    """The tasks of a group ask in one exchange, during which they can't keep their leases."""
    assert groups_of(idle, 100, 100, 99, 2, 1) == [[100, 100, 99, 1], [2]]
    assert not idle.all[0].may_grow
    assert idle.all[1].may_grow


def test_a_block_is_as_large_as_its_accounts_and_slots(heavy):
    body = request(ALICE, BOB, block=10)
    submit(heavy, body)
    accounts = next(iter(body["data"]["31337"].values()))["accounts"]
    accounts[ALICE] = {"props": [], "slots": [hex(slot) for slot in range(120)]}
    submit(heavy, body)
    submit(heavy, request(ALICE, CHARLIE, block=11))
    accept_all()
    tasks = [task for task in due() if task.kind == "block"]
    assert sorted((task.size, task.is_large) for task in tasks) == [(2, False), (124, True)]


def test_a_batch_is_as_large_as_its_blocks_are_many(heavy):
    submit(heavy, of_blocks(range(1, 31)))
    assert [task.size for task in due() if task.kind == "batch"] == [30]


def test_a_worker_takes_up_users_by_turns(heavy, newcomer, monkeypatch):
    """One thread, and work that stays due."""
    submit(heavy, of_blocks(range(10, 30)))
    submit(newcomer, of_blocks([8, 9]))
    accept_all()
    single = worker.Worker(threads=1)
    done: list[int | None] = []
    monkeypatch.setattr(groups, "_MOST_TOGETHER", 1)
    monkeypatch.setattr(worker, "_do", lambda tasks: done.extend(task.user for task in tasks))
    while len(done) < 6:
        single._take_up_what_is_due()
        for group in single._in_hand.all:
            assert group.running
            group.running.result()
    single._pool.shutdown()
    of_users = [user for user in done if user]
    assert abs(of_users.count(heavy.user_id) - of_users.count(newcomer.user_id)) <= 1


# --- One poll ---------------------------------------------------------------------------------------------------------


def test_a_poll_that_takes_too_long_ends_and_the_next_one_goes_on_behind_it(heavy, newcomer, monkeypatch):
    submit(heavy, of_blocks([1, 2]))
    submit(newcomer, of_blocks([3, 4]))
    accept_all()
    single = worker.Worker(threads=1)
    monkeypatch.setattr(single._in_hand, "take", lambda _: False)
    monkeypatch.setattr(Poll, "is_over", lambda poll: bool(poll.asked))
    asked = []
    for _ in range(4):
        single._take_up_what_is_due()
        asked.append(max((heavy.user_id, newcomer.user_id), key=single._turns.last))
    single._pool.shutdown()
    assert asked in ([heavy.user_id, newcomer.user_id] * 2, [newcomer.user_id, heavy.user_id] * 2)


def test_a_worker_says_that_it_runs_however_much_there_is_that_it_can_not_take_up(service, monkeypatch):
    """One poll alone would take for ever."""
    monkeypatch.setattr(worker, "_MOST_POLL_SECONDS", 0.1)
    monkeypatch.setattr(worker, "_BEAT_SECONDS", 0.01)
    monkeypatch.setattr(worker, "due", lambda *_: map(some, itertools.repeat(1), itertools.count()))
    busy = worker.Worker(threads=4)
    monkeypatch.setattr(busy._in_hand, "take", lambda _: False)
    beats: list[bool] = []

    def beat(*, is_first: bool) -> None:
        beats.append(is_first)
        if len(beats) == 3:
            busy.stop()

    monkeypatch.setattr(busy, "_beat", beat)
    running = threading.Thread(target=busy.run, daemon=True)
    running.start()
    running.join(30)
    assert not running.is_alive()
    assert beats == [True, False, False]


# --- Transactions -----------------------------------------------------------------------------------------------------


def test_each_user_may_have_as_many_transactions_under_way_as_there_is_room(service, heavy, newcomer, monkeypatch):
    monkeypatch.setattr(pending_limits, "_TRANSACTIONS", 8)
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
    monkeypatch.setattr(pending_limits, "_TRANSACTIONS", 1)
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
    monkeypatch.setattr(pending_limits, "_GAS", 5 * sent.get().gas_limit)
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


@pytest.fixture
def short_windows(chain: DevChain, db, settings, tmp_path) -> DevChain:
    """A chain on which a path to an old block takes hops of ten blocks."""
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 10")
    deploy_on(chain)
    chain.mine(100)
    return chain


def test_users_take_turns_with_paths_too(short_windows):
    """One at a time extends a registry, and the block that is reconciled first when it is mined sends the next."""
    heavy, newcomer = a_key(ALICE), a_key(BOB)
    head = short_windows.head()
    first, second, third = (head - back for back in (25, 45, 85))
    short_windows.rpc("evm_setAutomine", False)
    submit(heavy, of_blocks([first, second]))
    accept_all()
    submit(newcomer, request(BOB, block=third))
    accept_all()
    blocks = {number: Block.objects.get(number=number).pk for number in (first, second, third)}
    for number in (first, second, third):
        reconcile(blocks[number])
    paths = Transaction.objects.exclude(extends=None).order_by("pk")
    assert [path.leads_to_id for path in paths] == [blocks[first]]
    short_windows.mine()
    for signer in Signer.objects.all():
        transaction_monitor.monitor(signer.pk)
    # Many of the first user's blocks are reconciled before the other's one is due again.
    later = timezone.now() + timedelta(hours=1)
    Block.objects.filter(number=third).update(due_at=later, queue_at=later)
    reconcile(blocks[second])
    assert [path.leads_to_id for path in paths.all()] == [blocks[first]]
    assert Block.objects.filter(number=third, due_at__lt=timezone.now()).exists()
    reconcile(blocks[third])
    assert [path.leads_to_id for path in paths.all()] == [blocks[first], blocks[third]]


def test_a_block_that_somebody_else_made_due_has_a_turn(service, heavy):
    """A reorganised chain does so when it moves a time to another block."""
    submission.find_blocks(31337, {(31337, 5)})
    Block.objects.update(due_at=timezone.now())
    assert [task.kind for task in due() if task.kind == "block"] == ["block"]
