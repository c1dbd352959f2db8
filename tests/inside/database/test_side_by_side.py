"""Concurrent transactions don't rely on rows that the other transaction changes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from io import StringIO
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from accounts import keys, sign_in, throttle
from accounts.models import ApiKey, SignInNonce, User
from attesting import attest
from attesting.models import SignedBlock
from chains.chains_file import Chain
from chains.nodes.questions import Receipt
from config.configured_chains import get_chains, get_rpc
from config.database import due_rows, statements
from config.error_answers import Refused
from devnet.devchain import PROJECT
from proving import money, stops
from proving.admission import admit
from proving.admission.cost import Cost, SourceEstimate
from proving.models import AccountProof, SignedTransaction, Signer, Transaction, TransactionState
from proving.packing.gas import Amount
from proving.packing.packs import Intent
from proving.reconcile import turn
from proving.sending import orders, signers, signing, transaction_monitor
from proving.working import lanes, pruning
from proving.working.ends import Done, Fails
from proving.working.lanes import HeldLane, LaneKind, LaneName
from queries import batch_states, submission
from queries.columns import RejectionCode
from queries.models import Batch, BatchStatus, Block, Sender, Step, StepKind
from tests.databases import same_database
from tests.explorer.batches import a_batch, accept, batch_at, complete, deployed, finish, queries_of, settle
from tests.factories import log_of_operators
from tests.service import ALICE, BOB, SECOND_SIGNER, SIGNER, a_key, chains_toml, fresh, header, request, submit
from tests.side_by_side import meet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another"),
]

COSTLY = 'test_network = false\ndaily_limit = "1"\ndaily_limit_per_user = "1"'


@pytest.fixture(autouse=True)
def two_signers_of_an_unreachable_chain(settings, tmp_path) -> None:
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", signers=2)


@pytest.fixture
def costly(settings, tmp_path) -> Chain:
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain=COSTLY, signers=2)
    settings.ALLOWED_ADDRESSES = ["*"]
    get_chains.cache_clear()
    return get_chains().chain(31337)


def blocks_of(batch: Batch) -> list[Block]:
    """Accept the batch. Return its blocks."""
    accept(batch)
    return list(Block.objects.filter(queries__batch=batch))


@pytest.fixture
def lane() -> Iterator[HeldLane]:
    with lanes.hold(LaneName(LaneKind.CONNECTION, 31337, 31337)) as held:
        assert held
        yield held


# --- Submission -------------------------------------------------------------------------------------------------------


def test_two_submissions_can_t_take_the_same_room(settings, monkeypatch):
    settings.MAX_OPEN_BATCHES = 1
    # Without the throttle's rows, the second request waits only for the user's row.
    monkeypatch.setattr(submission, "count_request", lambda *_: None)
    monkeypatch.setattr(submission, "count_queries", lambda *_: None)
    key = a_key()

    def refused() -> str:
        body = request(ALICE, block=2)
        answer = Client().post("/submit-batch-query", body, content_type="application/json", headers=header(key))
        return str(answer.json()["code"])

    met = meet(lambda: submit(key, request(ALICE, block=1)), refused)
    assert (met.second, met.waited) == ("too_many_open_batches", True)
    assert Batch.objects.count() == 1


def test_open_batches_are_counted_after_the_lock(key):
    """A statement that waits for a lock reads rows as they were before the wait."""
    sql_statements: list[str] = []

    def note(execute, sql, values, many, context):
        if connection.in_atomic_block:
            sql_statements.append(sql)
        return execute(sql, values, many, context)

    with connection.execute_wrapper(note):
        submit(key, request(ALICE, block=1))
    locks = next(at for at, sql in enumerate(sql_statements) if "FOR NO KEY UPDATE" in sql)
    counts = next(at for at, sql in enumerate(sql_statements) if "COUNT(open." in sql)
    assert locks < counts


def test_two_batches_that_make_the_same_block_share_it():
    met = meet(
        lambda: submit(a_key(ALICE), request(ALICE, block=5)),
        lambda: submit(a_key(BOB), request(BOB, block=5)),
    )
    assert met.waited
    assert Block.objects.get().queries.count() == 2


# --- Idempotency-Key --------------------------------------------------------------------------------------------------


BODY, OTHER = request(ALICE, block=1), request(ALICE, block=2)


def sent(key, body=BODY, name: str = "k"):
    headers = header(key) | {"idempotency-key": name}
    return Client().post("/submit-batch-query", body, content_type="application/json", headers=headers)


@pytest.mark.parametrize("same_body", [True, False])
def test_the_second_of_two_waits_for_the_first_to_be_stored(key, monkeypatch, same_body):
    # Without the throttle's rows, the second request waits only for the row of the key.
    monkeypatch.setattr(submission, "count_request", lambda *_: None)
    monkeypatch.setattr(submission, "count_queries", lambda *_: None)
    met = meet(lambda: sent(key), lambda: sent(key, BODY if same_body else OTHER))
    assert met.waited
    assert met.first.status_code == 200
    assert met.second.status_code == (200 if same_body else 422)
    assert (met.second.json() == met.first.json()) == same_body
    assert Batch.objects.count() == 1


def test_without_the_user_s_lock_the_row_of_the_key_would_do(key):
    named = submission.Named(key.user_id, "k")
    batches = [sent(key, name=name).json()["internalId"] for name in ("a", "b")]

    def second() -> str:
        try:
            named.remember(batches[1], b"")
        except submission.AlreadyStored as already:
            return already.earlier.batch_id
        return ""

    met = meet(lambda: named.remember(batches[0], b""), second)
    assert (met.waited, met.second) == (True, batches[0])


# --- A batch that is cancelled ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("done_first", [True, False])
def test_of_cancelling_and_becoming_done_one_comes_first(client, key, done_first):
    batch = submit(key, request(ALICE, block=1))
    batch.estimated_gas = batch.estimated_wei = 1
    batch_states.admit([batch])
    queries = list(batch.queries.values_list("pk", flat=True))
    for kind in list(StepKind)[:-1]:
        batch_states.complete(queries, kind)

    def cancel() -> int:
        return int(client.post(f"/batch-queries/{batch.pk}/cancel", headers=header(key)).status_code)

    def finish() -> int:
        batch_states.complete(queries, StepKind.FACTS_PROVEN)
        return 409

    met = meet(finish, cancel) if done_first else meet(cancel, finish)
    assert met.waited
    assert (met.first, met.second) == ((409, 409) if done_first else (200, 409))
    assert Batch.objects.get().status == (BatchStatus.DONE if done_first else BatchStatus.REJECTED)


@pytest.mark.parametrize("named", [True, False])
def test_a_command_cancels_no_batch_that_becomes_done_meanwhile(named):
    first, last = a_batch(), accept(a_batch())
    complete(last, *list(StepKind)[:-1])
    arguments = [first.pk, last.pk] if named else ["--user", ALICE]

    def cancel() -> str:
        try:
            call_command("cancel", *arguments, reason="A test.", stdout=StringIO())
        except CommandError as refused:
            return str(refused)
        return ""

    met = meet(lambda: batch_states.complete(queries_of(last), StepKind.FACTS_PROVEN), cancel)
    assert met.waited
    assert met.second == (f"The batch {last.pk} is DONE. Nothing was cancelled." if named else "")
    assert fresh(last).status == BatchStatus.DONE
    assert fresh(first).is_open is named
    assert [name for _, name, _ in log_of_operators()] == ([] if named else [first.pk])


# --- Due rows ---------------------------------------------------------------------------------------------------------


def test_a_block_that_becomes_due_while_it_is_given_back_stays_due(lane):
    accept(a_batch())
    claim = lane.write(partial(due_rows.claim, Block.objects.all(), [Block.objects.get().pk]))
    (block,) = claim.rows
    soon = timezone.now()
    met = meet(
        lambda: Block.objects.update(due_at=soon),
        lambda: turn._end_blocks(lane, claim, [block], {block.pk: Done()}),
    )
    assert met.waited
    assert Block.objects.get().due_at == soon


def test_a_block_stays_due_for_a_self_funded_batch_that_comes_when_the_last_other_one_is_rejected(lane):
    paid_for = a_batch()
    (block,) = blocks_of(paid_for)
    own = a_batch()
    Batch.objects.filter(pk=own.pk).update(sender=Sender.SELF)
    own.refresh_from_db()
    claim = lane.write(partial(due_rows.claim, Block.objects.all(), [block.pk]))

    def accept_own() -> None:
        statements.lock(Block.objects.all())
        own.estimated_gas = own.estimated_wei = 0
        batch_states.admit([own])
        admit._wake_blocks([own])

    def cancel_and_release() -> None:
        batch_states.withdraw([paid_for.pk], code=RejectionCode.CANCELLED_BY_USER, reason="It is not needed.")
        turn._end_blocks(lane, claim, [block], {block.pk: Done()})

    assert meet(accept_own, cancel_and_release).waited
    assert fresh(block).due_at is not None


# --- Steps and batches ------------------------------------------------------------------------------------------------


def test_two_that_complete_the_last_queries_of_a_batch_make_it_done():
    entry = {"accounts": {ALICE: {"props": ["BALANCE"]}}}
    batch = accept(batch_at(block_12=entry, block_13=entry))
    complete(batch, *list(StepKind)[:-1])
    first_query, second_query = queries_of(batch)
    met = meet(
        lambda: batch_states.complete([first_query], StepKind.FACTS_PROVEN),
        lambda: batch_states.complete([second_query], StepKind.FACTS_PROVEN),
    )
    assert met.waited
    assert Batch.objects.get().status == BatchStatus.DONE


def test_a_note_on_a_batch_waits_for_a_concurrent_change_of_the_batch(lane):
    batch = accept(a_batch())
    complete(batch, StepKind.INITIAL_STATE)
    queries = queries_of(batch)
    tx = Transaction.objects.create(signer=two_signers()[0], nonce=0, data=b"", gas_limit=1)
    tx.queries.set(queries)
    version = SignedTransaction.objects.create(transaction=tx, max_fee_per_gas=1, max_priority_fee_per_gas=1)
    met = meet(
        lambda: batch_states.complete(queries, StepKind.BLOCKHASH_AVAILABLE, transaction_hash="0x01"),
        lambda: lane.write(partial(signing.store, {version: b"signed"})),
    )
    assert met.waited
    shown = dict(Step.objects.values_list("kind", "transaction_hash"))
    assert (shown["BLOCKHASH_AVAILABLE"], shown["HEADER_ACCUMULATED"]) == ("0x01", version.hash)


def test_two_batches_do_not_reserve_the_same_rest_of_a_budget(lane, costly):
    batches = [a_batch(block=block, fee=10**18) for block in (1, 2)]
    decided = [{batch: [SourceEstimate(31337, cost=Cost(wei=Amount(1, 6 * 10**17)))]} for batch in batches]
    with lanes.hold(LaneName(LaneKind.LARGE_ADMISSION, 31337)) as other:
        assert other
        met = meet(
            partial(lane.write, partial(admit._record_all, decided[0])),
            partial(other.write, partial(admit._record_all, decided[1])),
        )
    (end,) = met.second.values()
    assert isinstance(end, Fails)
    assert (met.first, end.code, met.waited) == ({}, "budget_exceeded", True)
    assert list(Batch.objects.order_by("pk").values_list("status", flat=True)) == ["ACCEPTED", "RECEIVED"]


# --- Transactions -----------------------------------------------------------------------------------------------------


def two_signers() -> list[Signer]:
    return [Signer.objects.create(chain_id=31337, address=address) for address in (SIGNER, SECOND_SIGNER)]


def stored(chain: Chain, order: object = None) -> int:
    """Store a transaction. Return its nonce at the first signer."""
    with signers.locked(chain) as locked:
        signer = next(iter(locked.values()))
        nonce = next(orders.next_nonces(signer, 0))
        Transaction.objects.create(signer=signer, nonce=nonce, data=b"", gas_limit=1)
    return nonce


def test_two_senders_use_two_nonces():
    two_signers()
    chain = get_chains().chain(31337)
    met = meet(partial(stored, chain), partial(stored, chain))
    assert (met.first, met.second, met.waited) == (0, 1, True)


def test_once_a_chain_is_stopped_nobody_is_signing_there():
    two_signers()
    met = meet(partial(stored, get_chains().chain(31337)), lambda: stops.stop(31337, by="A test."))
    assert met.waited


def test_a_signer_stays_due_for_what_is_stored_while_it_is_given_back(lane):
    first, _ = two_signers()
    chain = get_chains().chain(31337)
    claim = lane.write(partial(due_rows.claim, Signer.objects.all(), [first.pk]))

    def store() -> None:
        with signers.locked(chain) as locked:
            signer = locked[first.address]
            Transaction.objects.create(signer=signer, nonce=0, data=b"", gas_limit=1)
            signer.due_at = timezone.now()
            signer.save(update_fields=["due_at"])

    def end() -> None:
        transaction_monitor._write(lane, first, and_then=lambda: transaction_monitor._end(chain, claim, first, ()))

    met = meet(store, end)
    assert met.waited
    assert fresh(first).due_at is not None


def shared(batch: Batch, signer: Signer, gas: int) -> Transaction:
    """Return a pending transaction for the whole batch, with the batch's share."""
    tx = Transaction.objects.create(signer=signer, nonce=0, data=b"", gas_limit=gas)
    tx.queries.set(queries_of(batch))
    SignedTransaction.objects.create(
        transaction=tx, hash=f"0x{tx.pk:064x}", raw=b"", max_fee_per_gas=1, max_priority_fee_per_gas=1
    )
    money.divide({tx: money.portions_of(tx, Intent(tx.to, b""))})
    return tx


def test_spending_adds_up_while_two_signers_confirm_transactions_of_one_batch(lane):
    batch = accept(a_batch())
    sent = [shared(batch, signer, gas=100_000) for signer in two_signers()]
    heads: Any = SimpleNamespace(final=0, confirmed=SimpleNamespace(number=9))

    def confirm(held: HeldLane, tx: Transaction) -> None:
        receipt = Receipt(bytes.fromhex(tx.latest_hash[2:]), 5, b"\5" * 32, 1, 40_000, 1, data_fee=0)
        mined = transaction_monitor._mined(get_rpc(31337), tx, receipt, heads)
        assert mined
        transaction_monitor._write(held, tx.signer, [mined])

    with lanes.hold(LaneName(LaneKind.DESTINATION, 31337)) as other:
        assert other
        met = meet(partial(confirm, lane, sent[0]), partial(confirm, other, sent[1]))
    assert met.waited
    assert (fresh(batch).gas_used, batch.spent) == (80_000, 80_000)
    assert set(Transaction.objects.values_list("state", flat=True)) == {TransactionState.CONFIRMED}


# --- Pruning ----------------------------------------------------------------------------------------------------------


def old() -> Batch:
    """Return a DONE batch that is old enough to be pruned."""
    deployed()
    batch = finish(batch_at(block_12={"accounts": {ALICE: {"props": ["BALANCE"]}}}))
    settle(batch)
    AccountProof.objects.update(nodes=["0xab"])
    Batch.objects.update(finished_at=timezone.now() - timedelta(days=1000))
    return batch


def test_an_acceptance_waits_for_pruning_and_a_submission_does_not(lane):
    batch = old()
    Batch.objects.update(proofs_pruned_at=timezone.now())
    met = meet(lambda: pruning._prune_proofs(timezone.now()), lambda: submit(a_key(BOB), request(BOB, block=12)))
    assert (met.first, met.waited) == (1, False)
    AccountProof.objects.update(nodes=["0xab"])
    accepted = partial(lane.write, partial(admit._record_all, {met.second: [SourceEstimate(31337, cost=Cost())]}))
    Batch.objects.exclude(pk=batch.pk).update(proofs_pruned_at=timezone.now())
    met_again = meet(lambda: pruning._prune_proofs(timezone.now()), accepted)
    assert (met_again.first, met_again.waited) == (1, True)


def test_steps_and_calldata_are_pruned_when_nobody_writes_what_they_belong_to():
    batch = old()
    Batch.objects.update(steps_pruned_at=timezone.now())
    signer, _ = two_signers()
    spent = {"state": TransactionState.FINAL, "spent_at": timezone.now() - timedelta(days=1000)}
    Transaction.objects.create(signer=signer, nonce=0, data=b"data", gas_limit=1, **spent)

    def prune(kind: Callable[[datetime], int]) -> int:
        with transaction.atomic():
            return kind(timezone.now())

    steps = Step.objects.filter(query__batch=batch).count()
    met = meet(lambda: statements.lock(Batch.objects.all()), partial(prune, pruning._prune_steps))
    assert (met.second, met.waited) == (steps, True)
    met = meet(lambda: statements.lock(Signer.objects.all()), partial(prune, pruning._prune_calldata))
    assert (met.second, met.waited) == (1, True)


# --- Deadlocks --------------------------------------------------------------------------------------------------------


def test_a_write_that_the_database_ends_for_a_deadlock_is_repeated(lane):
    accept(a_batch())
    tries: list[None] = []

    def change() -> None:
        tries.append(None)
        statements.lock(Block.objects.all())
        statements.lock(Batch.objects.all())

    def hold_batches() -> None:
        statements.lock(Batch.objects.all())
        with connection.cursor() as cursor:
            # With this timeout, PostgreSQL ends the other transaction in the deadlock.
            cursor.execute("SET LOCAL deadlock_timeout = '20s'")

    met = meet(
        hold_batches,
        lambda: lane.write(change),
        lambda: statements.lock(Block.objects.all()),
    )
    assert (met.waited, len(tries)) == (True, 2)


# --- Attesters --------------------------------------------------------------------------------------------------------


def test_an_attester_signs_one_hash_for_a_number_whoever_asks_at_once():
    chain = get_chains().chain(31337)
    met = meet(
        lambda: SignedBlock.objects.create(source_chain_id=31337, number=5, hash="0x" + "11" * 32),
        lambda: attest._store(chain, 5, b"\x22" * 32),
    )
    assert (met.second, met.waited) == (b"\x11" * 32, True)


# --- Accounts ---------------------------------------------------------------------------------------------------------


def code_of(refused: type[Exception], call) -> str:
    try:
        call()
    except refused as error:
        return str(error.code)  # type: ignore[attr-defined]
    return ""


def test_two_can_t_both_make_the_last_key(monkeypatch):
    monkeypatch.setattr(keys, "MAX_KEYS", 1)
    user = User.objects.for_address(ALICE)
    met = meet(lambda: keys.issue(user, "one"), lambda: code_of(Refused, lambda: keys.issue(user, "two")))
    assert (met.second, met.waited) == ("too_many_keys", True)
    assert ApiKey.objects.count() == 1


def test_an_operator_who_revokes_a_user_s_keys_leaves_none_that_is_made_meanwhile():
    user = User.objects.for_address(ALICE)
    met = meet(lambda: keys.issue(user, "one"), lambda: keys.revoke_by_operator(User.objects.filter(pk=user.pk)))
    assert (met.second, met.waited) == (1, True)
    assert not ApiKey.objects.filter(revoked_at=None).exists()


def test_a_throttle_gives_the_last_place_once():
    assert throttle.take("a", 1, 2) == 0
    met = meet(lambda: throttle.take("a", 1, 2), lambda: throttle.take("a", 1, 2))
    assert met.first == 0
    assert met.second > 0
    assert met.waited


def test_a_throttle_that_two_begin_counts_both():
    met = meet(lambda: throttle.take("a", 1, 1), lambda: throttle.take("a", 1, 1))
    assert (met.first, met.second > 0, met.waited) == (0, True, True)


def test_a_nonce_is_used_once():
    message = sign_in.start(ALICE, 31337, "127.0.0.1")
    met = meet(
        lambda: sign_in._consume_nonce(message),
        lambda: code_of(sign_in.SignInError, lambda: sign_in._consume_nonce(message)),
    )
    assert (met.second, met.waited) == ("unknown_nonce", True)
    assert SignInNonce.objects.get().consumed_at == met.first.consumed_at


# --- A frozen process -------------------------------------------------------------------------------------------------

FROZEN = """
import os, signal
import django
django.setup()
from django.db import transaction
from accounts.models import User
from proving.models import Signer
with transaction.atomic():
    print(len(Signer.objects.select_for_update()), len(User.objects.select_for_update()), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    Signer.objects.update(final_count=7)
"""


@pytest.fixture
def frozen(settings, tmp_path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a stopped process that holds the locks of the signer and of the user."""
    env = {**os.environ, **same_database(), "STATE_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    Signer.objects.get_or_create(chain_id=31337, address=SIGNER)
    a_key()
    process = subprocess.Popen(
        [sys.executable, "-c", FROZEN], cwd=PROJECT, env=env, text=True, stdout=PIPE, stderr=PIPE
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "1 1\n"
        os.waitpid(process.pid, os.WUNTRACED)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_is_frozen_in_a_transaction_holds_up_others_for_seconds_and_writes_nothing(frozen):
    began = time.monotonic()
    submit(a_key(name="another"), request(ALICE, block=1))
    with signers.locked(get_chains().chain(31337)) as held:
        assert held
    assert time.monotonic() - began < 15
    frozen.send_signal(signal.SIGCONT)
    _, output = frozen.communicate(timeout=20)
    assert frozen.returncode
    assert "idle-in-transaction timeout" in output
    assert Signer.objects.get().final_count == 0
