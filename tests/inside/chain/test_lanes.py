"""Lanes are renewed while they are held, and are divided fairly among users."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError
from django.db import InternalError, OperationalError, connection
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from accounts.models import User
from api import health
from config.database import due_rows
from config.database.due_rows import Claim
from proving.health.service_metrics import ServiceMetrics
from proving.models import AccountProof, FactsRegistry, Lane, Signer, Transaction
from proving.reconcile import proofs, turn
from proving.registries import replacing
from proving.sending import orders, transaction_monitor
from proving.working import lanes, worker
from proving.working.lanes import HeldLane, LaneKind, LaneName
from queries.models import Batch, BatchStatus, Block, Pruning
from tests import deployed, factories, metrics
from tests.explorer.batches import SOURCE, connect_source
from tests.inside.working import admitted, reconcile_block
from tests.proving.chain_state import registry
from tests.service import ALICE, BOB, CHARLIE, a_key, asking, balances, expire_leases, fresh, request, submit, work

HOUSE = LaneName(LaneKind.HOUSE)
CONNECTION = LaneName(LaneKind.CONNECTION, 31337, 31337)
ADMISSION = LaneName(LaneKind.ADMISSION, 31337)


@pytest.mark.django_db(transaction=True)
def test_a_lane_is_renewed_while_it_is_held_and_free_again_after_it(settings):
    settings.LEASE_SECONDS = 1
    with lanes.hold(HOUSE) as lane:
        assert lane
        first = Lane.objects.get().until
        factories.until(lambda: Lane.objects.exclude(until=first).exists(), "the renewal")
    with lanes.hold(HOUSE) as another:
        assert another


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_lane_that_hangs_for_long_is_anothers(settings, monkeypatch):
    settings.LEASE_SECONDS = 1
    monkeypatch.setattr(lanes, "LONGEST_SECONDS", 0)

    def is_free() -> bool:
        with lanes.hold(HOUSE) as another:
            return another is not None

    with lanes.hold(HOUSE) as lane:
        assert lane
        factories.until(is_free, "another holder")
        with pytest.raises(lanes.LaneLost):
            lane.write(lambda: None)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_lane_whose_holder_keeps_it_is_renewed_for_longer(settings, pass_time):
    settings.LEASE_SECONDS = 1
    with lanes.hold(HOUSE) as lane:
        assert lane
        pass_time(lanes.LONGEST_SECONDS)
        lane.keep()
        first = Lane.objects.get().until
        factories.until(lambda: Lane.objects.exclude(until=first).exists(), "the renewal")


def due_blocks(address: str, numbers: range, **columns: object) -> None:
    ends = {"destination_chain_id": 31337, "source_chain_id": 31337}
    whose = {"queued_for": User.objects.for_address(address), "due_at": timezone.now()}
    Block.objects.bulk_create(Block(number=number, **ends, **whose, **columns) for number in numbers)


@pytest.mark.django_db
def test_users_take_turns_and_nobody_has_over_half_of_a_turn_while_others_wait():
    due_blocks(ALICE, range(100))
    assert len(worker._pick(CONNECTION)) == 50
    due_blocks(BOB, range(200, 201))
    due_blocks(BOB, range(201, 202), attempts=1)
    chosen = worker._pick(CONNECTION)
    numbers = dict(Block.objects.values_list("pk", "number"))
    taken = [numbers[pk] for pk in chosen]
    assert {200, 201} <= set(taken[:4])
    assert sum(number < 100 for number in taken) == 25


@pytest.mark.django_db
def test_of_users_with_thousands_hundreds_and_one_block_none_waits_for_the_others():
    for address, numbers in ((ALICE, range(2000)), (BOB, range(3000, 3300)), (CHARLIE, range(4000, 4001))):
        due_blocks(address, numbers)
    shares: list[Counter[Any]] = []
    for _ in range(13):
        chosen = Block.objects.filter(pk__in=worker._pick(CONNECTION))
        shares.append(Counter(chosen.values_list("queued_for__address", flat=True)))
        chosen.update(due_at=None)
    assert shares[0][CHARLIE] == 1
    assert sum(share[BOB] for share in shares) == 300
    assert max(share[ALICE] for share in shares) == 25


@pytest.mark.parametrize(("waiting", "fetched"), [([], 3), ([ALICE], 3), ([BOB], 1)])
def test_a_turn_that_takes_long_fetches_no_further_proofs_where_another_user_waits(
    service, key, monkeypatch, waiting, fetched
):
    monkeypatch.setattr(turn, "_SECONDS", 0)
    monkeypatch.setattr(proofs, "_ACCOUNTS_PER_FETCH", 1)
    batch = admitted(key, request(ALICE, BOB, CHARLIE, block=1))
    for address in waiting:
        due_blocks(address, range(2, 3))
    block = Block.objects.get(number=1)
    for count in (fetched, min(3, 2 * fetched), 3):
        reconcile_block(block.pk)
        assert AccountProof.objects.filter(block__queries__batch=batch).distinct().count() == count
        assert due_rows.due(Block.objects.filter(pk=block.pk)).exists() == (count < 3)


@pytest.mark.long
@pytest.mark.parametrize("loses", [(transaction_monitor, "monitor_all"), (orders, "submit_all")])
def test_a_command_goes_on_when_another_takes_its_lane_and_sends_nothing_twice(service, monkeypatch, loses):
    does, taken = getattr(*loses), iter([True])

    def loses_it(*arguments):
        if next(taken, False):
            with lanes.seize(LaneName(LaneKind.DESTINATION, 31337)):
                pass
        return does(*arguments)

    monkeypatch.setattr(*loses, loses_it)
    service.rpc("anvil_setCode", registry().address, "0x00")
    before = Transaction.objects.count()
    deployed.deploy(31337, 31337, "--replace")
    assert not next(taken, False)
    assert Transaction.objects.count() == before + 2


@pytest.mark.long
def test_a_command_that_was_paused_for_longer_than_its_lease_replaces_nothing(service, monkeypatch):
    deployed.use_earlier_registry(service)

    def pause(lane, *_):
        with lanes.seize(lane.name):
            pass

    monkeypatch.setattr(replacing, "await_final", pause)
    with pytest.raises(CommandError, match="Another process works on the connection now, so nothing was replaced"):
        deployed.deploy(31337, 31337, "--replace")
    assert FactsRegistry.objects.count() == 1


@pytest.mark.long
def test_a_registry_that_another_command_has_just_replaced_is_not_replaced_again(service, monkeypatch):
    row, seize = deployed.use_earlier_registry(service), lanes.seize

    def seize_late(name):
        monkeypatch.setattr(lanes, "seize", seize)
        deployed.deploy(31337, 31337, "--replace")
        return seize(name)

    monkeypatch.setattr(lanes, "seize", seize_late)
    with pytest.raises(CommandError, match=f"Another command has already replaced the facts registry at {row}"):
        deployed.deploy(31337, 31337, "--replace")
    assert FactsRegistry.objects.count() == 2


@pytest.mark.django_db
def test_rows_that_fail_together_are_worked_on_one_by_one_as_they_are_stored_by_then():
    signers = [Signer.objects.create(chain_id=31337, address=address) for address in (ALICE, BOB)]
    seen: list[list[int]] = []
    given_up: list[Signer] = []

    def work(rows: Sequence[Signer]) -> None:
        seen.append([row.attempts for row in rows])
        Signer.objects.update(attempts=7)
        assert rows[0] != signers[0]

    lane, claim = HeldLane(LaneName(LaneKind.DESTINATION, 31337)), Claim(signers, None, {})
    assert lanes.work_on(lane, claim, signers, work, given_up.append) == 1
    assert (seen, given_up) == ([[0, 0], [7], [7]], signers[:1])


OF_BATCH = 'INSERT INTO "queries_block"'
OF_REGISTRY = 'UPDATE "proving_factsregistry" SET "due_at" = CASE'


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "statement", "error", "cause"),
    [
        ("batch", OF_BATCH, OperationalError, psycopg.errors.DiskFull),
        ("batch", OF_BATCH, InternalError, psycopg.errors.IdleInTransactionSessionTimeout),
        ("registry", OF_REGISTRY, OperationalError, psycopg.errors.DiskFull),
    ],
)
def test_rows_that_the_database_made_fail_keep_their_age_and_are_no_defects(
    service, key, kind, statement, error, cause
):
    batch = submit(key, asking({"latest": balances([1])["block:1"]}))
    for model in (Batch, FactsRegistry):
        model.objects.update(due_at=timezone.now() - timedelta(hours=1))

    def fail(execute: Any, sql: str, *how: Any) -> Any:
        if sql.startswith(statement):
            raise error from cause()
        return execute(sql, *how)

    def age() -> float:
        exposed = Client().get("/metrics", REMOTE_ADDR="127.0.0.1").text
        return metrics.value(exposed, "batchquery_queue_oldest_due_seconds", kind=kind) or 0

    for _ in range(2):
        with connection.execute_wrapper(fail), pytest.raises(CommandError, match="1 turns failed"):
            work()
        batch.refresh_from_db()
        if kind == "batch":
            assert (batch.wait, batch.attempts) == (None, 0)
        health.service_metrics = ServiceMetrics()
        assert age() >= 3600
    expire_leases()
    work()
    assert fresh(batch).status in {BatchStatus.IN_PROGRESS, BatchStatus.DONE}
    assert batch.failing_since is None
    assert FactsRegistry.objects.get().failing_since is None


@pytest.mark.django_db
def test_the_house_has_a_turn_where_pruning_is_due():
    Pruning.objects.create(due_at=Now() + timedelta(minutes=1))
    assert not worker._due_names([HOUSE, ADMISSION]).exists()
    Pruning.objects.update(due_at=Now())
    assert list(worker._due_names([HOUSE, ADMISSION])) == [("house",)]


@pytest.mark.django_db
def test_batches_that_name_a_chain_that_hangs_wait_for_it_by_themselves(service, tmp_path):
    connect_source(tmp_path)
    bodies = [asking(balances([1]), source=source) for source in (31337, SOURCE, 31337, SOURCE)]
    batches = [submit(key, body).pk for key in (a_key(ALICE), a_key(BOB)) for body in bodies]
    assert set(worker._pick(ADMISSION)) == set(batches[::2])
    Batch.objects.filter(pk__in=batches[::2]).update(due_at=None)
    assert set(worker._pick(ADMISSION)) == set(batches[1::2])
