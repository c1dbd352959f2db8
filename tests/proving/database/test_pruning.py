"""`manage.py prune` deletes old rows, keeps others always, and leaves no half-pruned batch."""

import json
import re
from datetime import timedelta
from io import StringIO
from itertools import count
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts.models import AccountEvent, EventKind, SignInNonce, ThrottleCount
from proving.models import (
    AccountProof,
    BlockTrie,
    Lane,
    ProvenTransaction,
    SignedTransaction,
    Signer,
    SlotProof,
    Transaction,
    TransactionState,
)
from queries.models import Batch, BatchStatus, Block, ServiceClock, Step, StepKind
from tests.explorer.batches import batch_at, finish, page, path, settle
from tests.proving.logs import block_with_logs
from tests.service import ALICE, BOB, SIGNER, a_key, asking, fresh, request, submit, work, work_until_done

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def thirty_days(settings) -> None:
    for kept in ("PROOFS", "STEPS", "CALLDATA"):
        setattr(settings, f"KEEP_{kept}_DAYS", 30)


def prune() -> dict[str, int]:
    """Run `prune`. Return the numbers of pruned rows by kind, without zeros."""
    out = StringIO()
    call_command("prune", stdout=out)
    counts = re.findall(r"(.+): ([1-9]\d*) rows", out.getvalue())
    return {name: int(count) for name, count in counts}


def full() -> tuple[int, int]:
    """Return the numbers of account proofs and slot proofs that still have nodes."""
    return tuple(model.objects.exclude(nodes=[]).count() for model in (AccountProof, SlotProof))  # type: ignore[return-value]


def done(days: float, *accounts: str, block: int = 12) -> Batch:
    """Return a batch that became DONE `days` days ago and is final. It has a slot of each account."""
    entry = {"props": ["BALANCE"], "slots": ["0x5"]}
    batch = batch_at(**{f"block_{block}": {"accounts": dict.fromkeys(accounts or (ALICE,), entry)}})
    AccountProof.objects.filter(block__queries__batch=batch).delete()
    finish(batch)
    settle(batch)
    for model in (AccountProof, SlotProof):
        model.objects.update(nodes=["0xab"])
    return ended(batch, days)


def ended(batch: Batch, days: float) -> Batch:
    Batch.objects.filter(pk=batch.pk).update(finished_at=timezone.now() - days * DAY)
    batch.refresh_from_db()
    return batch


def bundle(batch: Batch, number: int = 1):
    return Client().get(f"{path(batch)}/{number}/bundle.json")


# --- Proofs -----------------------------------------------------------------------------------------------------------


def test_proofs_of_old_batches_go_and_that_is_said(settings):
    batch = done(30.01)
    assert bundle(batch).status_code == 200
    before = page(batch)
    assert prune()["proofs"]
    gone = bundle(batch)
    today = f"{timezone.now():%Y-%m-%d}"
    sentence = f"The proofs of this batch were removed on {today}, after 30 days; the facts stay in the registry."
    assert (gone.status_code, gone.json()) == (410, {"error": sentence, "code": "proofs_pruned"})
    assert bundle(batch).status_code == 410
    shown = page(batch)
    assert sentence in shown
    assert "bundle.json" in before
    assert "bundle.json" not in shown
    # The proven values stay.
    assert "123456789012345678901234567" in shown
    assert full() == (0, 0)
    assert fresh(batch).proofs_gone_at
    assert prune() == {}


@pytest.mark.parametrize("kept", ["proofs", "never"])
def test_proofs_are_kept_until_then_or_for_ever(settings, kept):
    if kept == "never":
        settings.KEEP_PROOFS_DAYS = None
    batch = done(29.99 if kept == "proofs" else 9999)
    assert "proofs" not in prune()
    assert bundle(batch).status_code == 200
    assert full() == (1, 1)


def test_batches_that_are_open_or_not_final_keep_their_proofs():
    batch = done(31)
    Block.objects.update(due_at=timezone.now())
    Batch.objects.update(status=BatchStatus.DONE)
    assert "proofs" not in prune()
    Block.objects.update(due_at=None)
    Batch.objects.update(status=BatchStatus.IN_PROGRESS)
    assert "proofs" not in prune()
    assert full() == (1, 1)
    Batch.objects.update(status=BatchStatus.DONE)
    assert prune()["proofs"]
    assert bundle(batch).status_code == 410


def test_proofs_that_a_younger_batch_uses_stay_with_it():
    old, young = done(31, ALICE, BOB), done(1)
    # Both batches are about the same block, and Alice is in both.
    assert prune()["proofs"]
    assert bundle(old).status_code == bundle(old, 2).status_code == 410
    assert bundle(young).status_code == 200
    assert full()[0] >= 1
    ended(young, 31)
    prune()
    assert bundle(young).status_code == 410
    assert full() == (0, 0)


@pytest.mark.long
def test_pruned_facts_are_proven_again_for_a_new_batch(service):
    key = a_key()
    body = request(ALICE, block=service.head())
    body["data"]["31337"][f"block:{service.head()}"]["accounts"][ALICE]["slots"] = ["0x1"]
    batch = work_until_done(submit(key, body))
    settle(batch)
    ended(batch, 31)
    prune()
    assert full() == (0, 0)
    again = work_until_done(submit(key, body))
    assert again.status == BatchStatus.DONE
    assert full() == (1, 1)
    assert json.loads(bundle(again).getvalue())["nodes"]
    assert bundle(batch).status_code == 410


@pytest.mark.long
def test_receipts_go_with_the_proofs_and_what_they_prove_stays(service):
    key = a_key()
    transactions = {"2": {"props": ["HASH"], "logs": ["1"]}}
    body = asking({f"block:{block_with_logs(service)}": {"transactions": transactions}})
    old, young = (ended(work_until_done(submit(key, body), service), days) for days in (31, 1))
    settle(old)
    before = Client().get(f"{path(old)}.json").json()["queryList"]
    prune()
    assert (bundle(old).status_code, bundle(young).status_code) == (410, 200)
    ended(young, 31)
    assert prune()["proofs"] >= BlockTrie.objects.count() == 0
    assert (bundle(young).status_code, ProvenTransaction.objects.count()) == (410, 1)
    after = Client().get(f"{path(old)}.json").json()["queryList"]
    assert [query["facts"] for query in after] == [query["facts"] for query in before]
    assert bundle(work_until_done(submit(key, body), service)).status_code == 200


@pytest.mark.long
def test_pruning_goes_in_chunks_and_leaves_no_batch_half_pruned_wherever_it_is_killed(killing):
    """After a kill at any chunk, each bundle is complete or reported as gone."""
    batches = [done(31 + number, ALICE, BOB, block=12 + number) for number in range(2)]

    def left() -> tuple[object, ...]:
        marks = Batch.objects.order_by("pk").values_list("proofs_gone_at", "steps_gone_at", "proofs_pruned_at")
        return full(), Step.objects.count(), list(marks)

    for chunks in count():  # noqa: B007 (it is counted)
        before = left()
        with killing.once(lambda before=before: left() != before):
            prune()
        if not killing.killed:
            break
        for batch in batches:
            batch.refresh_from_db()
            answer = bundle(batch)
            assert answer.status_code == (410 if batch.proofs_pruned_at else 200)
            if answer.status_code == 200:
                assert answer.json()["accountProof"] == ["0xab"]
                assert answer.json()["storageNodes"] == ["0xab"]
            assert page(batch)
    assert chunks > 8
    assert full() == (0, 0)
    assert not Step.objects.exists()


def test_one_process_at_a_time_prunes(unreachable_chain):
    done(31)
    theirs = {"token": "another's", "until": timezone.now() + timedelta(seconds=30)}

    def take(execute, sql, *others):
        if "proofs_pruned_at" in sql:
            Lane.objects.update(**theirs)
        return execute(sql, *others)

    with connection.execute_wrapper(take):
        for _ in range(2):
            with pytest.raises(CommandError, match="A worker is pruning now"):
                prune()
    work()
    assert full() == (1, 1)


def test_a_clock_that_has_jumped_prunes_nothing(monkeypatch):
    done(1)
    ServiceClock.objects.create(pk=1, at=timezone.now())
    later = timezone.now() + 100 * DAY
    monkeypatch.setattr("django.utils.timezone.now", lambda: later)
    assert prune() == {}
    assert full() == (1, 1)


# --- Steps ------------------------------------------------------------------------------------------------------------


def test_steps_of_old_batches_go_and_the_page_tells_how_far_it_came(settings):
    settings.KEEP_PROOFS_DAYS = None
    old, young = done(31), done(29)
    prune()
    assert set(Step.objects.values_list("query__batch", flat=True)) == {young.pk}
    shown = page(old)
    sentence = f"The details of the steps of this batch were removed on {timezone.now():%Y-%m-%d}, after 31 days."
    assert sentence in shown
    assert shown.count("COMPLETED") >= len(StepKind)
    assert "not begun" not in shown
    assert 'class="bar"' not in shown
    assert 'class="bar"' in page(young)
    assert Client().get(f"{path(old)}.json").status_code == 200


# --- Calldata and headers ---------------------------------------------------------------------------------------------


def sent(days: float, state: str = TransactionState.FINAL) -> Transaction:
    signer, _ = Signer.objects.get_or_create(chain_id=31337, address=SIGNER)
    tx = Transaction.objects.create(
        signer=signer,
        nonce=signer.transactions.count(),
        data=b"data",
        gas_limit=1,
        state=state,
        spent_at=timezone.now() - days * DAY,
    )
    SignedTransaction.objects.create(
        transaction=tx, hash=f"0x{tx.nonce:064x}", raw=b"raw", max_fee_per_gas=1, max_priority_fee_per_gas=1
    )
    return tx


def carried(tx: Transaction) -> tuple[bytes, bytes]:
    tx.refresh_from_db()
    return bytes(tx.data), bytes(tx.versions.get().raw)


def test_calldata_of_final_transactions_goes():
    old, young = sent(30.01), sent(29.99)
    open_ones = [sent(99, state) for state in TransactionState if state != TransactionState.FINAL]
    assert prune() == {"transactions' calldata": 1}
    assert carried(old) == (b"", b"")
    assert [carried(tx) for tx in (young, *open_ones)] == [(b"data", b"raw")] * 5


@pytest.mark.long
def test_a_block_whose_header_was_pruned_can_be_asked_for(service):
    """The block was stored as a checkpoint of a path, and its header is pruned."""
    number = service.head()
    header = service.rpc("eth_getBlockByNumber", hex(number), False)
    Block.objects.create(
        destination_chain_id=31337,
        source_chain_id=31337,
        number=number,
        hash=header["hash"],
        state_root=header["stateRoot"],
        is_checkpoint=True,
    )
    assert work_until_done(submit(a_key(), request(ALICE, block=number))).status == BatchStatus.DONE


# --- Expiry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["account events", "sessions", "sign-in nonces", "throttle counts"])
def test_rows_older_than_their_days_are_pruned_and_younger_ones_stay(kind):
    key = a_key()
    now = timezone.now()
    model: Any = {
        "account events": AccountEvent,
        "sessions": Session,
        "sign-in nonces": SignInNonce,
        "throttle counts": ThrottleCount,
    }[kind]
    kept_days = 90 if kind == "account events" else 1
    for number, days in enumerate((kept_days - 0.01, kept_days + 0.01)):
        at = now - days * DAY
        values = {
            "account events": {"user": key.user, "at": at, "kind": EventKind.SIGNED_IN},
            "sessions": {"session_key": str(number), "session_data": "", "expire_date": at},
            "sign-in nonces": {"nonce": str(number), "address": ALICE, "message_hash": "", "expires_at": at},
            "throttle counts": {"what_and_who": str(number), "began_at": at},
        }[kind]
        model.objects.create(**values)
    kept = model.objects.order_by("pk").first()
    assert prune() == {kind: 1}
    assert model.objects.get() == kept
    assert prune() == {}


# --- The command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_pruned_and_vacuums():
    done(31, *(f"0x{number:040x}" for number in range(1, 60)))
    AccountProof.objects.update(nodes=["0x" + "ab" * 4000])
    if connection.vendor == "sqlite":
        free = "SELECT freelist_count FROM pragma_freelist_count"
        call_command("prune", stdout=StringIO())
        with connection.cursor() as cursor:
            assert cursor.execute(free).fetchone()[0] > 50
            out = StringIO()
            call_command("prune", "--vacuum", stdout=out)
            assert cursor.execute(free).fetchone()[0] == 0
        assert "proofs: 0 rows" in out.getvalue()
