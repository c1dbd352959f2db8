"""Upgrade databases of released versions to this version.

The files in `baseline/` were written by each version's own code on each engine. A test of that version used HTTP,
commands and workers' turns on two chains of anvil: it is `test_baseline.py`. Batches and transactions are in every
state. A jump is under way and stopped, webhooks are pending, a self-funded batch waits for its user, and a contract
wallet has a key. Each table has rows. `anvil_dumpState` wrote the chains' state, including old states. Deadlines are a
hundred years ahead.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.test import Client

from accounts.models import ApiKey, User
from attesting.models import SignedBlock
from devnet.devchain import PROJECT, DevChain
from proving.models import SignedTransaction, Signer, Stop, Transaction, TransactionState
from queries.models import OPEN_STATUSES, Batch, DeliveryStatus, Query, QueryKind, Sender, WebhookDelivery
from tests.accounts import over_http, wallets
from tests.databases import all_that_is_stored, same_database
from tests.proving.self_funded import left_of, send
from tests.proving.sources import THERE
from tests.service import ALICE, BOB, CHARLIE, header, reconfigure, request, work
from tests.upgrades import baselines, writing
from tests.upgrades.schema import columns, rows, schema

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]

TOO_OLD = "The database lacks migrations of version 0.3.0, from which this version upgrades"


@pytest.fixture(params=baselines.VERSIONS)
def version(request) -> str:
    """Return the version that wrote the database."""
    return str(request.param)


@pytest.fixture
def old(version, transactional_db, settings, tmp_path, monkeypatch) -> Iterator[None]:
    """Load the version's database for this version."""
    settings.API_KEY_SECRET = writing.SECRET
    with baselines.database_of(baselines.read(version), tmp_path, monkeypatch):
        yield


@pytest.fixture
def there(version, tmp_path) -> Iterator[DevChain]:
    with DevChain(chain_id=THERE, hardfork="cancun", extra_args=as_it_was(version, tmp_path, "there")) as chain:
        yield chain


@pytest.fixture
def here(version, tmp_path) -> Iterator[DevChain]:
    arguments = [*as_it_was(version, tmp_path, "here"), "--no-mining"]
    with DevChain(slots_in_an_epoch=4, extra_args=arguments) as chain:
        yield chain


def as_it_was(version: str, folder: Path, name: str) -> list[str]:
    """Return arguments with which anvil loads a chain of the version."""
    (folder / name).write_bytes(baselines.read(version, name))
    return ["--load-state", str(folder / name)]


def values(statement: str) -> set[Any]:
    return {value for (value,) in rows(statement)}


def test_no_migration_is_edited():
    """Databases have applied these migrations. A change needs a new migration, with a new line in the file."""
    lines = [
        f"{sha256(path.read_bytes()).hexdigest()[:16]} {path.relative_to(PROJECT)}"
        for path in sorted(PROJECT.glob("*/migrations/0*.py"))
    ]
    assert "\n".join(lines) == (Path(__file__).parents[1] / "migrations.txt").read_text("utf-8").strip()


def test_a_release_has_left_rows_in_each_table(old):
    assert baselines.empty_tables() == []


@pytest.mark.story("0.3.0")
@pytest.mark.long("0.4.0")
def test_everything_goes_on_after_an_upgrade(old, here, there, settings, tmp_path, monkeypatch):
    signed = values("SELECT hash FROM proving_signedtransaction WHERE hash IS NOT NULL")
    statuses = dict(rows("SELECT id, status FROM queries_batch"))
    unfinished = values("SELECT id FROM queries_query WHERE step IS NOT NULL")
    kinds = {pk: kind_by(*names) for pk, *names in rows("SELECT id, address, transaction_name FROM queries_query")}
    undelivered = values("SELECT id FROM queries_webhookdelivery WHERE status = 'PENDING'")
    waits = stored_waits()
    assert len(waits) > 1
    keys = values("SELECT key_hash FROM accounts_apikey")
    reserved = dict(rows("SELECT id, reserved_gwei FROM proving_transaction WHERE state = 'PENDING'"))
    attested = set(rows("SELECT source_chain_id, number, hash FROM attesting_signedblock"))
    call_command("migrate", verbosity=0)

    assert dict(Batch.objects.values_list("pk", "status")) == statuses
    assert dict(Query.objects.values_list("pk", "kind")) == kinds
    assert set(kinds.values()) == {*QueryKind}
    pending = Transaction.objects.filter(pk__in=reserved)
    assert dict(pending.values_list("pk", "reserved_gwei")) == reserved
    for tx in pending:
        assert 0 <= sum(tx.shares.values_list("reserved_gwei", flat=True)) - reserved[tx.pk] <= tx.shares.count()
    stops = Stop.objects.all()
    assert set(stops.filter(code="operator").values_list("reason", flat=True)) == {writing.STOPPED}
    # All keys still exist, including those of contract wallets, and can read their batches.
    assert set(ApiKey.objects.values_list("key_hash", flat=True)) == keys
    # Transactions have changed states since then, so what is said about them may differ.
    about_transactions = ("transaction_", "Waiting for transaction")
    assert {wait for wait in waits - told(statuses) if not wait.startswith(about_transactions)} == set()

    # Checks have begun to reject them.
    doomed = dict.fromkeys(Batch.objects.filter(rejecting_checks__gt=0).values_list("pk", flat=True), "REJECTED")
    with writing.connected(here, there, settings, tmp_path, monkeypatch):
        reconfigure(settings, "confirmations = 1", "confirmations = 3")
        # A signing service that didn't sign is replaced by its key.
        reconfigure(settings, writing.ONE_SIGNER, writing.BOTH_SIGNERS)
        for _ in range(2):
            work()
            here.mine()
        opened = Batch.objects.filter(status__in=OPEN_STATUSES)
        self_funded = opened.filter(sender=Sender.SELF)
        assert self_funded.exists()
        pay(here, self_funded)
        resume(stops)
        for _ in range(12):
            if not opened.exists():
                break
            work()
            here.mine()
            pay(here, self_funded)
        ended = {"RECEIVED": "DONE", "ACCEPTED": "DONE", "IN_PROGRESS": "DONE"}
        assert (
            dict(Batch.objects.values_list("pk", "status"))
            == {pk: ended.get(status, status) for pk, status in statuses.items()} | doomed
        )
        for _ in range(10):
            here.mine()
        work()
    # The pending transactions are mined, and the same facts need no new nonce, so nothing is paid twice.
    assert {(tx.state, tx.succeeded) for tx in pending.all()} == {(TransactionState.FINAL, True)}
    for signer in Signer.objects.all():
        assert int(here.rpc("eth_getTransactionCount", signer.address, "latest"), 16) == signer.transactions.count()
    assert signed <= set(SignedTransaction.objects.values_list("hash", flat=True))
    for query in Query.objects.filter(batch__sender=Sender.OPERATOR, step=None, pk__in=unfinished):
        # If another query requests the same facts, a query may have no transaction of its own.
        assert query.transactions.exclude(state=TransactionState.DISPLACED).filter(extends=None).count() <= 1
    # The receiver is still down.
    delivery = WebhookDelivery.objects.filter(pk__in=undelivered).earliest("pk")
    assert delivery.failures > 1 or delivery.status == DeliveryStatus.FAILED
    assert attested <= set(SignedBlock.objects.values_list("source_chain_id", "number", "hash"))
    users_go_on(here)


def kind_by(address: str, entry: str) -> QueryKind:
    """Return the kind of a query of 0.3.0, which has no column for it."""
    if address:
        return QueryKind.ACCOUNT
    return QueryKind.ENTRY if entry else QueryKind.HEADER


def told(statuses: dict[str, str]) -> set[str]:
    """Return the codes and sentences of waits that users read. The API shows the batches with these statuses."""
    waits = set[str]()
    for batch in Batch.objects.all():
        answer = Client().get("/batch-query-status", {"batchQueryId": batch.pk}, headers=header(batch.api_key))
        # The API shows ACCEPTED and RECEIVED as IN_PROGRESS.
        assert answer.json()["queryStatus"] in {statuses[batch.pk], "IN_PROGRESS"}
        details = Client().get(f"/batch-queries/{batch.pk}", headers=header(batch.api_key)).json()
        assert bool(details["waits"]) == (statuses[batch.pk] not in {"DONE", "REJECTED"})
        waits |= {wait[name] for wait in details["waits"] for name in ("code", "sentence")}
    return waits


def stored_waits() -> set[str]:
    """Return the codes of why blocks wait."""
    # A block that waits for its path is told how far that is.
    stored = values("SELECT wait FROM queries_block WHERE wait IS NOT NULL AND NOT waits_for_path")
    return {json.loads(wait)["code"] for wait in stored}


def pay(chain: DevChain, batches: Iterable[Batch]) -> None:
    chain.rpc("evm_setAutomine", True)
    for batch in batches:
        send(chain, left_of(batch)["transactions"])
    chain.rpc("evm_setAutomine", False)


def resume(stops: Iterable[Stop]) -> None:
    for stop in stops:
        part = ["--signer", stop.signer] if stop.signer else []
        part += ["--source", str(stop.source_chain_id)] if stop.source_chain_id else []
        call_command("resume", str(stop.chain_id), *part)


def users_go_on(chain: DevChain) -> None:
    # An ordinary signature shows whose keys these are.
    assert sign_in(ALICE, chain) == User.objects.get(address=ALICE)
    wallet = User.objects.exclude(address__in=(ALICE, BOB)).exclude(api_keys=None).get()
    assert sign_in(wallet.address, chain) == wallet
    assert wallet.api_keys.count() == 1
    (key, *_) = ApiKey.objects.filter(access="read")
    assert Client().get("/batch-queries", headers=header(key)).status_code == 200
    body = request(ALICE, block=chain.head())
    answer = Client().post("/submit-batch-query", body, content_type="application/json", headers=header(key))
    assert answer.status_code == 403


def sign_in(address: str, chain: DevChain) -> User:
    message = over_http.start(address, chain.chain_id, "")
    return over_http.finish(message, wallets.sign(message, wallets.ALICE))


@pytest.fixture
def new_schema(transactional_db) -> set[tuple[Any, ...]]:
    return schema()


@pytest.mark.long
def test_an_upgraded_database_has_the_schema_of_a_new_one(new_schema, old):
    call_command("migrate", verbosity=0)
    assert schema() == new_schema


@pytest.mark.long
def test_the_first_migrations_make_the_schema_of_0_3_0(transactional_db, tmp_path, monkeypatch):
    with baselines.database_of(baselines.read("0.3.0"), tmp_path, monkeypatch):
        released = schema()
    with baselines.database_of(b"", tmp_path, monkeypatch):
        # An installation that was interrupted after an app goes on, also beside another program's tables.
        migrate = partial(call_command, "migrate", verbosity=0, skip_checks=False)
        migrate("accounts", "0001")
        rows("INSERT INTO django_migrations (app, name, applied) VALUES ('shop', '0001_initial', '2026-01-01')")
        for app in ("attesting", "queries", "proving"):
            migrate(app, "0001")
        for app in ("contenttypes", "auth", "admin", "sessions"):
            migrate(app)
        assert schema() == released


def test_0_3_0_can_write_what_an_upgrade_leaves(old):
    """It runs beside this version, and again after a roll back. This version writes no column that left its models."""
    before = columns()
    call_command("migrate", verbosity=0)
    after = columns()
    assert {column: after[column].type for column in before} == {column: before[column].type for column in before}
    models = {model._meta.db_table: model for model in apps.get_models(include_auto_created=True)}
    known = {(table, field.column) for table, model in models.items() for field in model._meta.local_fields}
    left = {column for column in before.keys() - known if before[column].table in models}
    tables = {column.table for column in before.values()}
    new = {column for column in after.keys() - before.keys() if after[column].table in tables}
    assert not {column for column in left | new if not (after[column].may_be_null or after[column].default)}
    # Version 0.3.0 would offer rows of other users to contract wallets.
    User.objects.for_address(CHARLIE)
    assert values(f"SELECT own_key_known FROM accounts_user WHERE address = '{CHARLIE}'") == {True}


@pytest.mark.long("0.3.0-proving-0001_before_0_3")
@pytest.mark.parametrize(
    ("app", "lacking"),
    [("accounts", "0004_key_access"), ("queries", "0004_test_events"), ("proving", "0001_before_0_3")],
)
@pytest.mark.parametrize("version", ["0.3.0"])
def test_an_older_database_is_refused_and_stays_as_it_is(old, unreachable_chain, tmp_path, app, lacking):
    rows(f"DELETE FROM django_migrations WHERE app = '{app}' AND name = '{lacking}'")
    before = all_that_is_stored()
    for command in ("migrate", "prune", "check_chains"):
        with pytest.raises(CommandError, match=TOO_OLD):
            call_command(command, skip_checks=False)
    # Celery starts this work without any earlier check.
    with pytest.raises(CommandError, match=TOO_OLD):
        work()
    if app == "proving":
        connection.close()
        done = subprocess.run(
            [sys.executable, "-m", "gunicorn", "-c", "config/gunicorn.py", "-b", "127.0.0.1:0", "config.wsgi"],
            cwd=PROJECT,
            env={"PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path), **same_database()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1].startswith(TOO_OLD)
    assert all_that_is_stored() == before


def test_each_migration_only_adds():
    """Each migration is an expand step. Removing, renaming or tightening would break the previous version while it
    still runs.
    """
    loader = MigrationLoader(connection)
    allowed = {"AddField", "CreateModel", "AddIndex", "AddConstraint", "AlterModelOptions", "RunPython"}
    for (app, name), migration in loader.disk_migrations.items():
        if app not in baselines.APPS or name == "0001_version_0_3":
            continue
        operations: list[Any] = list(migration.operations)
        made = {op.name_lower for op in operations if type(op).__name__ == "CreateModel"}
        # A transaction that locked two tables would wait in a circle with those of the service.
        tables = [table for table, _ in groupby(getattr(op, "model_name_lower", "") for op in operations)]
        assert len(tables) == len(set(tables)), f"{app} {name}: order the operations by table"
        assert not migration.atomic, f"{app} {name}: it must be an Expansion"
        for operation in operations:
            if type(operation).__name__ == "AlterField" and _only_loosens(loader, migration, operation):
                continue
            if type(operation).__name__ == "SeparateDatabaseAndState" and not operation.database_operations:
                continue
            assert type(operation).__name__ in allowed, f"{app} {name}: {operation.describe()}"
            if type(operation).__name__ == "AddField" and operation.model_name_lower not in made:
                field = operation.field
                is_safe = field.null or field.has_db_default() or field.generated
                assert is_safe, f"{app} {name}: {operation.describe()}"
            if type(operation).__name__ == "AddConstraint":
                assert operation.model_name.lower() in made, f"{app} {name}: {operation.describe()}"


def _only_loosens(loader: MigrationLoader, migration: Migration, operation: Any) -> bool:
    """Return whether only the field's choices change, which the database doesn't store, its constraint goes, or it has
    another default of the database.
    """
    before = loader.project_state(migration.dependencies).models[migration.app_label, operation.model_name_lower]
    described = []
    for field in (before.fields[operation.name], operation.field):
        _, kind, arguments, options = field.deconstruct()
        described.append((kind, arguments, {"db_constraint": True, "db_default": None, **options, "choices": None}))
    described[0][2]["db_constraint"] &= described[1][2]["db_constraint"]
    if described[1][2]["db_default"] is not None:
        described[0][2]["db_default"] = described[1][2]["db_default"]
    return described[0] == described[1]
