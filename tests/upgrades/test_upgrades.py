"""A database as the last version left it, taken to this one; and what the last version does with it then.

The last version is the state of each `0001_initial`. Its rows are written with its own columns, as its code did.
"""

from collections.abc import Iterator
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps.registry import Apps
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.db import connection
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey, User
from devnet.devchain import PROJECT
from proving.models import ChainWatch, Share, Signer, Stop, Transaction
from queries.models import Batch, Block, Query, Step
from tests.factories import log_of_operators
from tests.service import ALICE, BOB, SECOND_SIGNER, SIGNER, chains_toml, header, key_columns, request, submit, work
from tests.side_by_side import meet

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]
LAST = [(app, "0001_initial") for app in ("accounts", "queries", "proving")]
ULID = "01M7W1MRHW703BTRFFPT53VVP5"


@pytest.fixture
def last_version() -> Iterator[Apps]:
    """The models of the last version, on an empty database of it."""
    executor = MigrationExecutor(connection)
    executor.migrate(LAST)
    yield executor.loader.project_state(LAST).apps
    call_command("migrate", verbosity=0)


def test_no_migration_is_edited():
    """Databases have it as it was. What is to be different takes another one, whose line is added to the file."""
    found = [
        f"{sha256(path.read_bytes()).hexdigest()[:16]} {path.relative_to(PROJECT)}"
        for path in sorted(PROJECT.glob("*/migrations/0*.py"))
    ]
    assert "\n".join(found) == (Path(__file__).parent / "migrations.txt").read_text("utf-8").strip()


def upgrade() -> None:
    call_command("migrate", verbosity=0)


@pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another")
@pytest.mark.usefixtures("last_version")
def test_a_worker_of_the_last_version_that_meets_it_in_a_circle_is_no_end_of_it():
    """A migration locks the table of shares, and then that of transactions."""
    MigrationExecutor(connection).migrate([("proving", "0013_lanes")])

    def lock(model: type[Model], *more: str) -> None:
        with connection.cursor() as cursor:
            for statement in (f"LOCK TABLE {model._meta.db_table} IN ACCESS SHARE MODE", *more):
                cursor.execute(statement)

    # So that the other one is ended.
    met = meet(lambda: lock(Transaction, "SET LOCAL deadlock_timeout = '20s'"), upgrade, lambda: lock(Share))
    assert met.waited
    assert not MigrationExecutor(connection).migration_plan(MigrationLoader(connection).graph.leaf_nodes())


def written_by_the_last_version(models: Apps, identifier: str = ULID, number: int = 12) -> None:
    """A user with a key, and a batch that is DONE, sent by a transaction. In SQL each names all columns that it had."""

    def make(model: str, /, **values: Any) -> Any:
        return models.get_model(model)._default_manager.create(**values)

    users = models.get_model("accounts.User")._default_manager
    user = users.filter(address=ALICE).first() or make("accounts.User", address=ALICE, password="!")
    name = f"key {number}"
    key = make("accounts.ApiKey", user=user, name=name, **key_columns())
    now = timezone.now()
    batch = make(
        "queries.Batch",
        id=identifier,
        user=user,
        api_key=key,
        destination_chain_id=31337,
        fee=0,
        request="{}",
        size=1,
        block_count=1,
        stored_bytes=20_000,
        status="DONE",
        deadline_at=now,
        finished_at=now,
    )
    users.filter(pk=user.pk).update(stored_bytes=20_000)
    block = make("queries.Block", destination_chain_id=31337, source_chain_id=31337, number=number)
    query = make(
        "queries.Query", batch=batch, source_chain_id=31337, block=block, position=0, address=ALICE, fields=2, step=None
    )
    make("queries.Step", query=query, kind="INITIAL_STATE", status="COMPLETED", started_at=now)
    signers = models.get_model("proving.Signer")._default_manager
    signer, _ = signers.get_or_create(chain_id=31337, address=SIGNER)
    tx = make("proving.Transaction", signer=signer, nonce=number, data=b"data", gas_limit=1)
    tx.queries.set([query])
    make(
        "proving.SignedTransaction",
        transaction=tx,
        hash=f"0x{number:064x}",
        raw=b"raw",
        max_fee_per_gas=2,
        max_priority_fee_per_gas=1,
    )
    make(
        "proving.AccountProof",
        block=block,
        address=ALICE,
        nodes=["0xab"],
        nonce=1,
        balance=1,
        storage_root="0x" + "11" * 32,
        code_hash="0x" + "22" * 32,
    )


def test_nothing_is_lost_and_the_service_goes_on(unreachable_chain, last_version, settings, client: Client):
    written_by_the_last_version(last_version)
    upgrade()
    batch, user = Batch.objects.get(), User.objects.get()
    assert (batch.pk, batch.status, batch.stored_bytes, user.stored_bytes) == (ULID, "DONE", 20_000, 20_000)
    assert [model.objects.count() for model in (Block, Query, Step, Transaction)] == [1, 1, 1, 1]
    assert bytes(Transaction.objects.get().data) == b"data"
    assert client.get(f"/explorer/query/{ULID}").status_code == 200
    key = ApiKey.objects.get()
    status = client.get("/batch-query-status", {"batchQueryId": ULID}, headers=header(key))
    assert status.json() == {"queryStatus": "DONE"}
    # What is new holds for old rows: no limit of their own, no stop, nothing said to be removed.
    assert (user.daily_limits_wei, Stop.objects.exists()) == (None, False)
    assert (batch.why_no_proofs, batch.why_no_steps) == ("", "")
    assert submit(key, request(ALICE, block=12)).status == "RECEIVED"
    settings.KEEP_PROOFS_DAYS = 1
    call_command("prune", stdout=StringIO())


def test_the_last_version_goes_on_with_the_new_schema(last_version):
    """While the two run side by side, and after going back to it."""
    upgrade()
    written_by_the_last_version(last_version)
    Batch.objects.update(status="IN_PROGRESS")
    Signer.objects.update(nonce_problem="A test.")
    # It reads and writes its own columns, and leaves the others alone.
    row = last_version.get_model("queries.Batch")._default_manager.get()
    row.status = "DONE"
    row.save()
    signer = last_version.get_model("proving.Signer")._default_manager.get()
    signer.notice = "A notice."
    signer.save()
    assert Batch.objects.get().status == "DONE"
    assert Signer.objects.get().nonce_problem == "A test."


def test_the_two_write_side_by_side(unreachable_chain, last_version):
    upgrade()
    written_by_the_last_version(last_version)
    submit(ApiKey.objects.get(), request(ALICE, block=99))
    written_by_the_last_version(last_version, "01M7W1MRHW703BTRFFPT53VVP6", 13)
    assert Batch.objects.count() == 3


BEFORE_STOPS = [("proving", "0010_beacon_data")]
NOT_BELIEVED = "Nodes say again and again what can't be true of its transactions."


@pytest.fixture
def before_stops() -> Iterator[Apps]:
    """The models of the version that knew stops and pauses, on an empty database of it."""
    executor = MigrationExecutor(connection)
    executor.migrate(BEFORE_STOPS)
    yield executor.loader.project_state(BEFORE_STOPS).apps
    call_command("migrate", verbosity=0)


def test_what_was_stopped_stays_stopped_in_both_directions(before_stops):
    signing_stop, pause, signer = (
        before_stops.get_model("proving", name)._default_manager
        for name in ("SigningStop", "ConnectionPause", "Signer")
    )
    now = timezone.now()
    signing_stop.create(chain_id=1, reason="A test.", since=now)
    pause.create(destination_chain_id=2, source_chain_id=1, reason="A node lies.", since=now)
    signer.create(chain_id=2, address=ALICE, paused_at=now, paused_because=NOT_BELIEVED)
    signer.create(chain_id=2, address=BOB, paused_at=now, paused_because="Its key moves.")
    signer.create(chain_id=2, address=SIGNER)
    upgrade()
    columns = ("chain_id", "source_chain_id", "signer", "code", "reason", "since")
    moved = [
        (1, 0, "", "operator", "A test.", now),
        (2, 0, ALICE, "not_believed", "", now),
        (2, 0, BOB, "operator", "Its key moves.", now),
        (2, 1, "", "operator", "A node lies.", now),
    ]
    assert sorted(Stop.objects.values_list(*columns)) == sorted(moved)

    # What the last version reads is as it was; whoever migrates back finds what is stopped by then.
    assert signing_stop.exists()
    assert pause.exists()
    assert signer.exclude(paused_at=None).count() == 2
    Stop.objects.filter(signer=BOB).delete()
    Stop.objects.filter(chain_id=1).delete()
    Stop.objects.create(chain_id=3, reason="New.", since=now, by="manage.py")
    call_command("migrate", "proving", "0010", verbosity=0)
    assert list(signing_stop.values_list("chain_id", "reason", "since")) == [(3, "New.", now)]
    assert list(pause.values_list("destination_chain_id", "source_chain_id", "reason")) == [(2, 1, "A node lies.")]
    paused = signer.exclude(paused_at=None).values_list("address", "paused_because", "paused_at")
    assert list(paused) == [(ALICE, NOT_BELIEVED, now)]


def test_the_log_of_operators_moves_into_django_s(last_version):
    executor = MigrationExecutor(connection)
    before = [("accounts", "0003_webhook_secrets")]
    executor.migrate(before)
    deeds = executor.loader.project_state(before).apps.get_model("accounts", "OperatorDeed")._default_manager
    at = timezone.now()
    deeds.create(at=at, operator=ALICE, kind="cancelled_batch", subject=ULID, detail="It was open.", reason="A test.")
    deeds.create(at=at, operator="manage.py", kind="stopped", subject="chain 1")
    moved = [
        (ALICE, ULID, "Cancelled a batch. It was open. Why: A test."),
        ("manage.py", "chain 1", "Stopped sending on a chain."),
    ]
    # Also where the last version ran in between.
    for _ in range(2):
        upgrade()
        assert log_of_operators() == moved
        assert set(LogEntry.objects.values_list("action_time", flat=True)) == {at}
        assert deeds.count() == 2
        call_command("migrate", "accounts", "0003", verbosity=0)


def test_what_two_signers_had_sent_counts_after_an_upgrade(unreachable_chain, last_version):
    """Pending or displaced, it may still be mined, by the old key as by the new one."""
    for address in (SIGNER, SECOND_SIGNER):
        signer = last_version.get_model("proving.Signer")._default_manager.create(chain_id=31337, address=address)
        for nonce, state in enumerate(["PENDING", "DISPLACED"]):
            tx = last_version.get_model("proving.Transaction")._default_manager.create(
                signer=signer, nonce=nonce, data=b"", gas_limit=100_000, state=state
            )
            last_version.get_model("proving.SignedTransaction")._default_manager.create(
                transaction=tx, hash=f"0x{tx.pk:064x}", raw=b"", max_fee_per_gas=2 * 10**9, max_priority_fee_per_gas=1
            )
    upgrade()
    work()
    assert ChainWatch.objects.get(chain_id=31337).spent_in_day == 4 * 100_000 * 2 * 10**9


def test_a_user_s_budget_of_gas_becomes_a_limit_in_wei(last_version, settings, tmp_path):
    """At most what it costs at the cap of fees. A budget of nothing stays nothing, on what is configured later too."""
    costly = 'test_network = false\nmax_fee_per_gas_gwei = 100\ndaily_limit_per_user = "0.5"'
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain=costly)
    executor = MigrationExecutor(connection)
    before = [("accounts", "0004_log_of_operators")]
    executor.migrate(before)
    users = executor.loader.project_state(before).apps.get_model("accounts", "User")._default_manager
    for number, (budget, own) in enumerate([(None, None), (0, {"31337": "7"}), (10**6, None), (10**9, {"5": "9"})]):
        users.create(address=f"0x{number:040x}", daily_gas_budget=budget, daily_limits_wei=own)
    upgrade()
    limits = User.objects.order_by("address").values_list("daily_limits_wei", flat=True)
    assert list(limits) == [None, {"*": "0"}, {"31337": str(10**17)}, {"5": "9"}]


def test_what_was_admitted_in_part_goes_on_as_a_whole(last_version):
    """Of three blocks two were to come: they are waited for, and a fee that is the estimate does for them too."""
    executor = MigrationExecutor(connection)
    before = [("queries", "0014_due_blocks"), ("proving", "0014_reserved_gwei")]
    executor.migrate(before)
    models = executor.loader.project_state(before).apps
    written_by_the_last_version(models)
    batch, query = models.get_model("queries.Batch"), models.get_model("queries.Query")
    auto = {"fee_is_estimate": True, "fee": 5, "estimated_wei": 5, "estimated_gas": 7}
    batch._default_manager.update(status="IN_PROGRESS", finished_at=None, **auto)
    query._default_manager.update(is_admitted=True)
    for position in (1, 2):
        block = models.get_model("queries.Block")._default_manager.create(
            destination_chain_id=31337, source_chain_id=31337, number=100 + position
        )
        query._default_manager.create(
            batch_id=ULID, source_chain_id=31337, block=block, position=position, address=ALICE, fields=2
        )
    upgrade()
    whole = Batch.objects.get()
    assert (whole.fee, whole.estimated_wei, whole.estimated_gas) == (15, 15, 21)
    due = Block.objects.filter(due_at__lte=timezone.now(), queued_for=whole.user)
    assert set(due.values_list("number", flat=True)) == {101, 102}


def test_a_batch_that_checks_would_have_rejected_goes_on_where_it_was(last_version):
    executor = MigrationExecutor(connection)
    before = [("queries", "0015_admitted_in_part"), ("proving", "0016_receipt_problem")]
    executor.migrate(before)
    models = executor.loader.project_state(before).apps
    rows = {"RECEIVED": "fee_too_low", "REJECTED": "fee_too_low", "IN_PROGRESS": ""}
    for number, (status, code) in enumerate(rows.items()):
        written_by_the_last_version(models, status, number)
        row = models.get_model("queries.Batch")._default_manager.filter(pk=status)
        row.update(status=status, rejection_code=code, attempts=6)
    upgrade()
    counts = dict(Batch.objects.values_list("pk", "rejecting_checks"))
    assert counts == {"RECEIVED": 6, "REJECTED": 0, "IN_PROGRESS": 0}


def test_each_migration_only_adds():
    """An expand step: what is taken away, renamed or made stricter would break the last version while it runs."""
    loader = MigrationExecutor(connection).loader
    allowed = {
        "AddField",
        "CreateModel",
        "AddIndex",
        "AddConstraint",
        "AlterModelOptions",
        "RunPython",
        "SeparateDatabaseAndState",
    }
    for (app, name), migration in loader.disk_migrations.items():
        if app not in {"accounts", "queries", "proving"} or name == "0001_initial":
            continue
        operations: list[Any] = list(migration.operations)
        made = {op.name_lower for op in operations if type(op).__name__ == "CreateModel"}
        for operation in operations:
            if type(operation).__name__ == "AlterField" and _only_offers_more(loader, migration, operation):
                continue
            assert type(operation).__name__ in allowed, f"{app} {name}: {operation.describe()}"
            # A model may go, its table stays.
            assert not getattr(operation, "database_operations", ()), f"{app} {name}: {operation.describe()}"
            if type(operation).__name__ == "AddField" and operation.model_name_lower not in made:
                field = operation.field
                assert field.null or field.has_db_default(), f"{app} {name}: {operation.describe()}"
            if type(operation).__name__ == "AddConstraint":
                assert operation.model_name.lower() in made, f"{app} {name}: {operation.describe()}"


def _only_offers_more(loader: MigrationLoader, migration: Migration, operation: Any) -> bool:
    """Return whether only the field's choices change, which the database doesn't know."""
    before = loader.project_state(migration.dependencies).models[migration.app_label, operation.model_name_lower]
    described = []
    for field in (before.fields[operation.name], operation.field):
        _, kind, arguments, options = field.deconstruct()
        described.append((kind, arguments, {**options, "choices": None}))
    return described[0] == described[1]
