"""Batches in every state that a batch's page shows, made of database rows."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256

from django.db.models import Model, QuerySet
from django.utils import timezone

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.models import AttesterWatch, ChainHead, FactsRegistry, Share, SlotProof, Transaction
from queries import batch_states
from queries.columns import EntryField, HeaderField, RejectionCode
from queries.models import Batch, BatchStatus, Block, Sender, Step, StepKind, WebhookDelivery
from queries.waits import wait
from tests.explorer import batches
from tests.factories import client_of
from tests.service import ALICE, BOB, CHARLIE, a_key, asking, request, submit, work, work_until_done

REORGANISED = "The destination chain was reorganised: block 14 is another one now."
NODE_DOWN = wait("node_fails", problem="The node is down.")
ATTESTERS_MISSING = wait(
    "attesters_missing", block=9, source=batches.SOURCE, signed=1, threshold=2, answers=f"{BOB} can't be reached."
)


def over(seconds: float, batch: Batch, *, since: float = 0) -> Batch:
    """Change the batch's times so that it took `seconds` and ended `since` seconds ago, with equal intervals."""
    rows = [
        *_times(Batch.objects.filter(pk=batch.pk), "created_at", "accepted_at", "finished_at", "went_back_at"),
        *_times(Step.objects.filter(query__batch=batch), "started_at", "completed_at", "went_back_at"),
        *_times(Transaction.objects.filter(queries__batch=batch).distinct(), "created_at", "spent_at"),
    ]
    # Times within the same millisecond count as equal, because the coarsest clock has milliseconds.
    order = sorted({_whole(at) for _, _, at in rows})
    end, apart = timezone.now() - timedelta(seconds=since), seconds / max(1, len(order) - 1)
    for table, column, at in rows:
        moved = end - timedelta(seconds=apart * (len(order) - 1 - order.index(_whole(at))))
        table.filter(**{column: at}).update(**{column: moved})
    batch.refresh_from_db()
    return batch


def sent(batch: Batch, *, block: int | None = None, extends: FactsRegistry | None = None) -> str:
    """Store a transaction with the whole batch, mined in `block` if given. Return its hash."""
    tx_hash = "0x" + sha256(str(Transaction.objects.count()).encode()).hexdigest()
    tx = batches.send(batch, tx_hash=tx_hash, extends=extends)
    Share.objects.create(transaction=tx, batch=batch, gas=175_840, wei=203_974_400_000_000, weight=1)
    tx.versions.update(max_fee_per_gas=2_400_000_000)
    if block is not None:
        tx.gas_price = 1_160_000_000
        batches.mine(tx, block=block)
    return tx_hash


def _times(table: QuerySet[Model], *columns: str) -> Iterable[tuple[QuerySet[Model], str, datetime]]:
    pks = list(table.values_list("pk", flat=True))
    for column in columns:
        for at in set(table.values_list(column, flat=True)) - {None}:
            for start in range(0, len(pks), 500):
                yield table.model._default_manager.filter(pk__in=pks[start : start + 500]), column, at


def _whole(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


# --- One query --------------------------------------------------------------------------------------------------------


def received() -> Batch:
    return batches.a_batch()


def mistyped() -> Batch:
    """Make a batch about a block far above the head, after two checks that found this."""
    batch, now = batches.a_batch(block=1_000_012), timezone.now()
    reason = wait("block_too_far_ahead", block=1_000_012, chain=31337, ahead=1_000_000, head=12, most=64)
    wait_now = {"wait": wait("rejected_in_a_minute", reason=reason), "looked_at": now, "rejecting_checks": 2}
    Batch.objects.update(**wait_now, attempts=2, failing_since=now, due_at=now + timedelta(seconds=2))
    return over(1, batch)


def accepted() -> Batch:
    batch = batches.accept(batches.a_batch())
    return over(4, batch)


def waiting() -> Batch:
    batch = batches.accept(batches.a_batch())
    now = timezone.now()
    batch_states.note_failure(batches.queries_of(batch), NODE_DOWN)
    Block.objects.update(wait=NODE_DOWN, failing_since=now, due_at=now + timedelta(seconds=8))
    return over(75, batch)


def being_sent(block: int | None = None) -> Batch:
    batch = batches.fetch_proofs(batches.accept(batches.a_batch()))
    batches.complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    sent(batch, block=block)
    # The block waits for its transaction, as the worker stores it after sending.
    Block.objects.update(hash=batches.HASH, wait=Transaction.objects.get().waits_for)
    return over(40, batch)


def being_confirmed() -> Batch:
    return being_sent(block=14)


def reorged() -> Batch:
    batch = batches.finish(batches.a_batch())
    batch_states.reopen(batches.queries_of(batch), StepKind.HEADER_ACCUMULATED, reason=REORGANISED)
    return over(90, batch)


def reorged_and_done_since() -> Batch:
    batch = reorged()
    batches.complete(batch, StepKind.HEADER_ACCUMULATED, StepKind.FACTS_PROVEN)
    return over(120, batches.settle(batch), since=600)


def rejected_at_once() -> Batch:
    """Make a batch whose rejection has a time, a distance and a chain, which the page puts into words."""
    batch = batches.batch_at(**{f"timestamp_{2**62}": {"accounts": {ALICE: {"props": ["NONCE"]}}}})
    reason = wait("time_too_far_ahead", time=2**62, ahead=2**62 - 1_700_000_000, chain=31337)
    batch_states.reject([batch.pk], code=RejectionCode.TIMESTAMP_TOO_FAR_AHEAD, reason=reason, retryable=True)
    return over(1, batch, since=60)


def rejected() -> Batch:
    batch = batches.accept(batches.a_batch())
    values = {"chain": 31337, "cost": 342 * 10**12, "fee": 10**14, "gas": 212_345, "path_gas": None, "data_wei": None}
    reason = wait("fee_too_low", **values)
    batch_states.reject([batch.pk], code=RejectionCode.FEE_TOO_LOW, reason=reason, retryable=True)
    return over(3, batch, since=60)


def cancelled() -> Batch:
    batch = batches.accept(batches.a_batch(fee=10**17))
    reason = "The batch was cancelled on its page."
    batch_states.withdraw([batch.pk], code=RejectionCode.CANCELLED_BY_USER, reason=reason)
    return over(3, batch, since=60)


def labelled() -> Batch:
    """Return a batch with a label of the greatest length."""
    label = "Payroll of March, second run, before the vote <of all> on the budget of the year 2026 and of the next"
    body = request(BOB, block=21_345_678) | {"label": label[:100]}
    return batches.settle(batches.finish(batches.submitted(body)))


def rejected_on_the_way() -> Batch:
    batch = batches.accept(batches.a_batch(ALICE, BOB, CHARLIE))
    Block.objects.update(hash=batches.HASH)
    batches.complete(batch, StepKind.INITIAL_STATE)
    sent(batch)
    reason = "The batch was not done by its deadline. When it passed, the node of chain 31337 could not be reached."
    batch_states.reject([batch.pk], code=RejectionCode.DEADLINE_EXCEEDED, reason=reason, retryable=True)
    return over(86_400, batch, since=3600)


def just_done() -> Batch:
    """Return a DONE batch whose block isn't final yet."""
    batch = batches.fetch_proofs(batches.accept(batches.a_batch()))
    batches.complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    tx_hash = sent(batch, block=14)
    batches.complete(batch, StepKind.HEADER_ACCUMULATED, StepKind.FACTS_PROVEN, transaction_hash=tx_hash)
    Batch.objects.filter(pk=batch.pk).update(gas_used=175_840, spent=203_974_400_000_000)
    return over(31, batch)


def done_with_one_answer() -> Batch:
    return over(31, batches.settle(just_done()), since=92)


def done() -> Batch:
    batch = batches.finish(batches.a_batch(props=["BALANCE", "NONCE", "CODE_HASH"]))
    return over(31, batches.settle(batch), since=92)


def everything_open() -> Batch:
    name = {"slot": "0x9", "keys": [BOB, ALICE, {"member": "2"}], "layout": "vyper"}
    slots = [name, *(hex(2**200 * slot) for slot in range(59))]
    accounts = {ALICE: {"props": ["BALANCE"], "slots": slots}}
    return batches.batch_at(timestamp_1700000005={"accounts": accounts, "header": HeaderField.names})


def everything_done() -> Batch:
    batch = everything_open()
    batches.find_block(batch)
    return over(48, batches.settle(batches.finish(batch)), since=92)


def about_transactions() -> Batch:
    """Return an open batch about an account and two transactions, of which one is named by its hash."""
    by_hash = {"props": ["STATUS", "HASH"], "blockLogs": ["8", "7"]}
    transactions = {batches.TRANSACTION: by_hash, "1": {"props": EntryField.names}}
    block = {"accounts": {ALICE: {"props": ["BALANCE"]}}, "transactions": transactions}
    return batches.batch_at(**{f"transaction_{batches.TRANSACTION}": block})


def about_transactions_done() -> Batch:
    batch = about_transactions()
    batches.find_block(batch)
    _finish_with_logs(batch)
    return over(48, batches.settle(batch), since=92)


def one_log() -> Batch:
    batch = batches.batch_at(block_12={"transactions": {batches.TRANSACTION: {"logs": ["1"]}}})
    _finish_with_logs(batch)
    return over(31, batches.settle(batch), since=92)


def a_token_balance() -> Batch:
    """Return a batch whose slot states the longest symbol."""
    units = {"decimals": 18, "symbol": "$variableDebtBasUSDbC.e"}
    name = {"slot": "2", "keys": [ALICE], "call": "balanceOf(address)", **units}
    batch = batches.finish(batches.batch_at(block_12={"accounts": {BOB: {"slots": [name]}}}))
    SlotProof.objects.update(value=1_234_567_890 * 10**15)
    return over(31, batches.settle(batch), since=92)


def _finish_with_logs(batch: Batch) -> None:
    batches.fetch_proofs(batches.accept(batch), [batches.transfer(5), batches.transfer(10**18)])
    batches.complete(batch, *StepKind)


def pruned() -> Batch:
    batch = done_with_one_answer()
    ended, now = timezone.now() - timedelta(days=40), timezone.now()
    Batch.objects.filter(pk=batch.pk).update(
        created_at=ended - timedelta(seconds=31), finished_at=ended, proofs_pruned_at=now, steps_pruned_at=now
    )
    return batch


def with_webhook() -> Batch:
    """Return a DONE batch with a webhook, whose first delivery failed."""
    webhook = {"url": "https://hooks.example.org/s3cret", "events": ["STEP", "DONE"]}
    batch = batches.finish(submit(a_key(), {**request(ALICE, block=12), "webhook": webhook}))
    first = batch.webhook.deliveries.earliest("pk")
    attempt = {"at": timezone.now().isoformat(), "httpStatus": 503, "outcome": "It said no.", "seconds": 0.25}
    WebhookDelivery.objects.filter(pk=first.pk).update(attempts=[attempt], failures=1)
    return over(31, batch)


def with_tests() -> None:
    """Store what `with_webhook` does, and a test event to each of two receivers."""
    with_webhook()
    for url in ("https://hooks.example.org/s3cret", "https://another.example.org/s3cret"):
        client_of(ALICE).post("/webhooks/test", {"url": url})
    attempt = {"at": timezone.now().isoformat(), "httpStatus": 204, "outcome": "The receiver took it.", "seconds": 0.1}
    ended = {"status": "DELIVERED", "ended_at": timezone.now(), "attempts": [attempt]}
    WebhookDelivery.objects.filter(webhook__receiver="another.example.org:443").update(**ended)


# --- Several queries --------------------------------------------------------------------------------------------------


def running() -> Batch:
    batch = batches.accept(batches.a_batch(ALICE, BOB))
    Block.objects.update(hash=batches.HASH)
    batches.complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    sent(batch, block=14)
    return over(20, batch)


def several() -> Batch:
    """Return a batch of five queries: two are proven, and one fails."""
    batch = batches.fetch_proofs(batches.accept(batches.a_batch(*batches.many_accounts(5))))
    pks = batches.queries_of(batch)
    for kind in StepKind:
        batch_states.complete(pks[:2], kind)
    batch_states.complete(pks[2:4], StepKind.INITIAL_STATE)
    problem = "The node sent a proof that doesn't lead to the state root."
    batch_states.note_failure(pks[4:], wait("node_fails", problem=problem))
    sent(batch, block=14)
    return over(50, batch)


def sixty(proven: int = 20) -> Batch:
    batch = batches.accept(batches.a_batch(*batches.many_accounts(60), props=["BALANCE", "NONCE"]))
    batches.fetch_proofs(batch)
    pks = batches.queries_of(batch)
    batch_states.complete(pks, StepKind.INITIAL_STATE)
    batch_states.complete(pks[: max(40, proven)], StepKind.BLOCKHASH_AVAILABLE)
    tx_hash = sent(batch, block=14)
    for kind in (StepKind.HEADER_ACCUMULATED, StepKind.FACTS_PROVEN):
        batch_states.complete(pks[:proven], kind, transaction_hash=tx_hash)
    return over(50, batch)


def sixty_done() -> Batch:
    batch = sixty(60)
    batches.settle(batch)
    Batch.objects.filter(pk=batch.pk).update(gas_used=9_175_840, spent=10_603_974_400_000_000)
    return over(66, batch, since=300)


def twelve_hundred() -> Batch:
    """Return a batch of 1,200 queries, a quarter of them proven. For so many, the page shows no times of steps."""
    batch = batches.fetch_proofs(batches.accept(batches.a_batch(*batches.many_accounts(1200))))
    pks = batches.queries_of(batch)
    batch_states.complete(pks[:840], StepKind.INITIAL_STATE)
    for kind in list(StepKind)[1:]:
        batch_states.complete(pks[:300], kind)
    return over(400, batch)


# --- Other chains, old blocks, self-funded batches --------------------------------------------------------------------


def of_two_sources_waiting() -> Batch:
    """Return a batch of two source chains, one of which lacks attestations."""
    batch = batches.of_two_sources()
    for source in (31337, batches.SOURCE):
        batches.accept(batch, source)
        batches.deployed(source)
    Block.objects.update(hash=batches.HASH)
    batches.complete(batch, StepKind.INITIAL_STATE)
    here = batch.queries.filter(source_chain_id=31337).values_list("pk", flat=True)
    batch_states.complete(here, StepKind.BLOCKHASH_AVAILABLE)
    now = timezone.now()
    Block.objects.filter(source_chain_id=batches.SOURCE).update(wait=ATTESTERS_MISSING)
    ChainHead.objects.create(chain_id=batches.SOURCE, number=20, final=4, seen_at=now)
    attesters = ((ALICE, "signed", "It signs."), (BOB, "unreachable", f"{BOB} can't be reached."))
    answers = [
        {"address": of, "answer": what, "sentence": why, "since": now.isoformat()} for of, what, why in attesters
    ]
    AttesterWatch.objects.create(
        source_chain_id=batches.SOURCE, destination_chain_id=31337, answered_at=now, block=9, answers=answers
    )
    return over(45, batch)


def one_of_two_sources() -> Batch:
    """Return a batch of two source chains: one proceeds, the other is unchecked and has a notice about attesters."""
    batch = batches.accept(batches.of_two_sources())
    batch_states.complete(
        batch.queries.filter(source_chain_id=31337).values_list("pk", flat=True), StepKind.INITIAL_STATE
    )
    problem, now = "No node of Other chain (5) can be used: 127.0.0.1:1 can't be reached.", timezone.now()
    Batch.objects.update(wait=wait("node_fails", problem=problem), failing_since=now, due_at=now + timedelta(seconds=8))
    Block.objects.filter(source_chain_id=31337).update(wait=wait("room"))
    batches.deployed()
    registry = batches.deployed(batches.SOURCE)
    sentence = f"Attesters contradict the nodes of Other chain about block 9, which is {batches.HASH} there."
    registry.risk, registry.risk_seen_at = wait("attester_conflict", problem=sentence), now
    registry.save()
    return over(30, batch)


def of_two_sources_done() -> Batch:
    batch = batches.finish(batches.accept(batches.of_two_sources(), batches.SOURCE))
    batches.deployed(batches.SOURCE)
    return over(140, batches.settle(batch), since=200)


def on_the_path() -> Batch:
    batch = batches.accept(batches.a_batch())
    Block.objects.update(hash=batches.HASH)
    batches.complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    batches.plan_path(batch, 60, left=40)
    sent(batch, block=14, extends=batches.deployed())
    sent(batch, extends=batches.deployed())
    return batch


def arrived() -> Batch:
    batch = on_the_path()
    batches.plan_path(batch, 60, left=0)
    sent(batch, block=16)
    batches.complete(batches.fetch_proofs(batch), StepKind.HEADER_ACCUMULATED, StepKind.FACTS_PROVEN)
    return over(120, batches.settle(batch), since=30)


def over_a_parent() -> Batch:
    """Return a batch that waits for the first of its path's two parts."""
    batch = batches.accept(batches.of_rollup(), batches.ROLLUP)
    batches.complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    Block.objects.update(hash=batches.HASH, wait=ATTESTERS_MISSING)
    batches.deployed(batches.SOURCE)
    batches.deployed(batches.ROLLUP)
    batches.plan_path(batch, 2, left=2)
    return over(30, batch)


def over_a_parent_done() -> Batch:
    batch = over_a_parent()
    sent(batch, block=14, extends=batches.deployed(batches.ROLLUP))
    sent(batch, block=16, extends=batches.deployed(batches.ROLLUP))
    batches.plan_path(batch, 2, left=0)
    batches.complete(batches.fetch_proofs(batch), StepKind.HEADER_ACCUMULATED, StepKind.FACTS_PROVEN)
    return over(60, batches.settle(batch), since=30)


def left_to_its_user() -> Batch:
    batch = batches.a_batch()
    Batch.objects.filter(pk=batch.pk).update(sender=Sender.SELF, fee=0)
    batches.accept(batch)
    batches.complete(batch, StepKind.INITIAL_STATE)
    return over(20, batch)


def paid_by_its_user(chain: DevChain) -> Batch:
    """Return a self-funded batch with transactions that its user must send."""
    block = chain.head()
    body = request(ALICE, BOB, block=block) | {"sender": "self"}
    del body["fee"]
    body["data"]["31337"][f"block:{block - 1}"] = {"header": ["GAS_LIMIT"]}
    batch = submit(a_key(), body)
    work(2)
    return batch


def proven_on_a_chain(chain: DevChain) -> Batch:
    """Return a DONE batch about a contract's balance and three slots."""
    contract = "0x" + "c0de" * 10
    chain.rpc("anvil_setCode", contract, "0x00")
    chain.rpc("anvil_setStorageAt", contract, "0x5", f"0x{77:064x}")
    chain.mine(2)
    accounts = {contract: {"props": ["BALANCE", "CODE_HASH"], "slots": ["0x5", "0x6", hex(2**255)]}}
    body = asking({f"block:{chain.head() - 1}": {"accounts": accounts}})
    return work_until_done(submit(ApiKey.objects.first() or a_key(), body), chain, rounds=20)


# --- Lists ------------------------------------------------------------------------------------------------------------


def a_page_of_batches() -> None:
    """Store batches in all states, more than fit on one page of the list."""
    made = [done_with_one_answer(), rejected(), waiting(), running(), on_the_path(), reorged(), sixty_done()]
    made += [cancelled(), labelled()]
    for block in range(20, 43):
        batch = batches.a_batch(*batches.many_accounts(1 + block % 3), block=block)
        if block % 2:
            batches.finish(batch)
            batches.settle(batch)
        made.append(batch)
    for at, batch in enumerate(made):
        Batch.objects.filter(pk=batch.pk).update(created_at=timezone.now() - timedelta(minutes=97 * (len(made) - at)))
    assert Batch.objects.filter(status=BatchStatus.DONE).count() > 10
