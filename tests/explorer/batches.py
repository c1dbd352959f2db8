"""Batches in all states without a chain. Functions write the rows that proving would write."""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import rlp
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey
from batch_query_client import VerifiedBundle, claimed_hashes, verify_bundle
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import (
    AccountProof,
    ChainHead,
    FactsRegistry,
    ProvenTransaction,
    SignedTransaction,
    Signer,
    SlotProof,
    Transaction,
    TransactionState,
    WorkerHeartbeat,
)
from queries.models import Batch, BatchStatus, Block, PathUnit, Step, StepKind, StepStatus, Webhook, WebhookDelivery
from queries.waits import wait
from tests import headers, service

HASH = "0x" + "ab" * 32
TRANSACTION = "0x" + "7a" * 32
STORAGE_ROOT = "0x" + "11" * 32
CODE_HASH = "0x" + "22" * 32
REGISTRY = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
BLOCK_HASH_SOURCE = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"
# The number is too long for a float, which would round it.
BALANCE = 123_456_789_012_345_678_901_234_567
REORGANISED = "Chain 31337 was reorganised."


def submitted(body: dict[str, Any]) -> Batch:
    """Return a RECEIVED batch of Alice."""
    return service.submit(ApiKey.objects.filter(user__address=service.ALICE).first() or service.a_key(), body)


def a_batch(*accounts: str, block: int = 12, props: list[str] | None = None, fee: int = 0) -> Batch:
    """Return a RECEIVED batch of Alice."""
    return submitted(service.request(*(accounts or (service.ALICE,)), block=block, props=props, fee=fee))


def batch_at(**blocks: Any) -> Batch:
    """Return a RECEIVED batch of Alice. Keywords are selectors with `_` for the colon; values have `accounts`,
    `header` and `transactions`.
    """
    return submitted(service.asking({selector.replace("_", ":"): parts for selector, parts in blocks.items()}))


def bundle_of(batch: Batch, number: int | None = None) -> Any:
    """Return the bundle of the batch, or of its query with this number."""
    answer = Client().get(f"{path(batch)}/{number}/bundle.json" if number else f"{path(batch)}/bundle.json")
    return json.loads(answer.getvalue())


def proven_by(bundle: Any) -> VerifiedBundle:
    """Return a bundle's facts with its own block hashes as trusted ones. Raise `InvalidBundle` if it isn't valid."""
    document = json.dumps(bundle)
    return verify_bundle(document, block_hashes=claimed_hashes(document))


def word(number: int) -> str:
    return f"0x{number:064x}"


def many_accounts(count: int) -> Iterator[str]:
    return (f"0x{number:040x}" for number in range(1, count + 1))


def queries_of(batch: Batch) -> list[int]:
    return list(batch.queries.order_by("position").values_list("pk", flat=True))


SOURCE = 5
DEAD_NODE = "http://127.0.0.1:1"  # Nothing listens on port 1.
DEAD_ATTESTERS = {service.ALICE: DEAD_NODE, service.BOB: DEAD_NODE}


def connect_source(folder: Path, url: str = DEAD_NODE, attesters: Mapping[str, str] = DEAD_ATTESTERS) -> None:
    """Add a source chain to the chains file in `folder`. All of its attesters (URLs by address) must agree."""
    connection = service.attested_by(attesters, len(attesters))
    with (folder / "chains.toml").open("a") as file:
        file.write(service.source_tables(SOURCE, "Other chain", url, connection))
    forget_chains()


ROLLUP = 6
OUTBOX = "0x0B9857ae2D4A3DBe74ffE1d7DF045bb7F96E4840"


def connect_rollup(folder: Path) -> None:
    """Add a rollup above `SOURCE` to the chains file. Its connection relies on facts in the registry for `SOURCE`."""
    connection = f'block_hash_source = "arbitrum-slot"\nparent = {SOURCE}\noutbox = "{OUTBOX}"'
    with (folder / "chains.toml").open("a") as file:
        file.write(service.source_tables(ROLLUP, "Rollup", DEAD_NODE, connection))
    forget_chains()


def of_rollup(block: int = 12) -> Batch:
    """Return a RECEIVED batch of Alice about `ROLLUP` (see `connect_rollup`)."""
    return submitted(service.asking(service.balances([block]), source=ROLLUP))


def of_two_sources() -> Batch:
    """Return a RECEIVED batch of Alice about chain 31337 and `SOURCE` (see `connect_source`)."""
    body = service.asking(service.balances([12]))
    return submitted(body | {"data": body["data"] | {str(SOURCE): service.balances([9])}})


def accept(batch: Batch, source: int = 31337) -> Batch:
    """Accept the batch's queries about this source chain. Return the batch, as `fetch_proofs` and `finish` do."""
    batch.estimated_gas, batch.estimated_wei = (
        (batch.estimated_gas or 0) + 511_000,
        (batch.estimated_wei or 0) + 511_000,
    )
    if batch.status == BatchStatus.RECEIVED:
        batch.status, batch.accepted_at = BatchStatus.ACCEPTED, timezone.now()
    batch.save(update_fields=["status", "accepted_at", "estimated_gas", "estimated_wei"])
    Block.objects.filter(queries__batch=batch, source_chain_id=source).update(due_at=timezone.now())
    return batch


def plan_path(batch: Batch, length: int, *, left: int, unit: str = PathUnit.HOPS) -> None:
    """Store the path to the batch's blocks as the pipeline does, with `left` of `length` parts unproven."""
    Block.objects.filter(queries__batch=batch).update(path_unit=unit, path_length=length, path_left=left)


def complete(batch: Batch, *kinds: StepKind, transaction_hash: str = "", of: Collection[int] | None = None) -> None:
    """Complete these steps for the batch's queries that are at them, or only for those with an id in `of`."""
    order, change = list(StepKind), {"transaction_hash": transaction_hash} if transaction_hash else {}
    for kind in kinds:
        at = batch.queries.filter(step=kind, pk__in=queries_of(batch) if of is None else of)
        # A query of the header alone ends with the step HEADER_ACCUMULATED.
        ended = at.filter(address="", transaction_name="") if kind == StepKind.HEADER_ACCUMULATED else at
        last = [] if kind in order[:2] else list(ended.values_list("pk", flat=True))
        begun = list(at.exclude(pk__in=last).values_list("pk", flat=True))
        now, following = timezone.now(), order[(order.index(kind) + 1) % 4]
        steps = Step.objects.filter(query__in=[*last, *begun], kind=kind)
        steps.update(status=StepStatus.COMPLETED, completed_at=now, error=None, **change)
        Step.objects.bulk_create(Step(query_id=pk, kind=following, started_at=now) for pk in begun)
        batch.queries.filter(pk__in=last).update(step=None)
        batch.queries.filter(pk__in=begun).update(step=following)
        if not batch.queries.filter(step__in=order[: order.index(kind) + 1]).exists():
            tell(batch, "STEP", "IN_PROGRESS", step=kind)
    now_done = {"status": BatchStatus.DONE, "finished_at": timezone.now()}
    is_done = not batch.queries.filter(step__isnull=False).exists()
    going_on = Batch.objects.filter(pk=batch.pk, status__in=[BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS])
    going_on.update(**now_done if is_done else {"status": BatchStatus.IN_PROGRESS})
    if is_done:
        tell(batch, "DONE", "DONE")


def tell(batch: Batch, event: str, status: str, **more: str) -> None:
    """Store an event for the batch's webhook, if the webhook subscribes to this kind."""
    for webhook in Webhook.objects.filter(batch=batch):
        if event in webhook.events:
            kind = {"STEP": "step_completed"}.get(event, event.lower())
            now, data = timezone.now(), {"internalId": batch.pk, "queryStatus": status, **more}
            body = json.dumps({"type": f"batch_query.{kind}", "timestamp": now.isoformat(), "data": data})
            values = {"event": event, "body": body, "next_try_at": now, "gives_up_at": now + timedelta(days=1)}
            WebhookDelivery.objects.create(webhook=webhook, user=batch.user, **values)
            Webhook.objects.filter(pk=webhook.pk).update(due_at=now)


def reopen(batch: Batch, kind: StepKind, *, of: Collection[int] | None = None) -> None:
    """Return the queries, or only those with an id in `of`, to a step, as after a reorg."""
    now, queries = timezone.now(), queries_of(batch) if of is None else of
    back = {"went_back_at": now, "went_back_because": REORGANISED}
    later = list(StepKind)[list(StepKind).index(kind) + 1 :]
    Step.objects.filter(query__in=queries, kind__in=later).delete()
    again = {"status": StepStatus.IN_PROGRESS, "started_at": now, "completed_at": None, "transaction_hash": ""}
    Step.objects.filter(query__in=queries, kind=kind).update(
        **again, error=wait("node_fails", problem=REORGANISED), **back
    )
    batch.queries.filter(pk__in=queries).update(step=kind)
    open_again = {"status": BatchStatus.IN_PROGRESS, "finished_at": None, "deadline_at": now + timedelta(hours=24)}
    Batch.objects.filter(pk=batch.pk).update(**open_again, **back)
    tell(batch, "WENT_BACK", "IN_PROGRESS", step=kind, reason=REORGANISED)


def reject(batch: Batch, code: str = "deadline_exceeded", reason: str = "Too late.", *, retryable: bool = True) -> None:
    """Reject the batch."""
    why = {"rejection_code": code, "rejection_reason": reason, "rejection_retryable": retryable}
    ended = {"status": BatchStatus.REJECTED, "finished_at": timezone.now(), "wait": None, "due_at": None}
    Batch.objects.filter(pk=batch.pk).update(**ended, **why)


# The header of block 12.
HEADER = headers.encode(headers.PRAGUE, miner=bytes.fromhex(service.ALICE[2:]))


def find_block(batch: Batch, number: int = 12) -> None:
    """Set the block of queries that name a time, as admission does."""
    block, _ = Block.objects.get_or_create(destination_chain_id=31337, source_chain_id=31337, number=number)
    batch.queries.filter(block=None).update(block=block)


def deployed(source: int = 31337) -> FactsRegistry:
    """Return the facts registry for a source chain."""
    values = {"address": REGISTRY, "block_hash_source": BLOCK_HASH_SOURCE, "multicall": REGISTRY}
    registry, _ = FactsRegistry.objects.update_or_create(
        destination_chain_id=31337, source_chain_id=source, defaults=values | {"deployed_at": timezone.now()}
    )
    return registry


TRANSFER = "Transfer(address indexed from, address indexed to, uint256 value)"
# keccak-256 of Transfer(address,address,uint256)
TRANSFER_TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


def transfer(value: int) -> list[Any]:
    """Return a log of Alice, of a transfer from her to Bob, as a receipt holds it."""
    topics = [TRANSFER_TOPIC, *(f"0x{address[2:]:0>64}" for address in (service.ALICE, service.BOB))]
    return [bytes.fromhex(service.ALICE[2:]), [bytes.fromhex(topic[2:]) for topic in topics], value.to_bytes(32)]


def receipt(*logs: Any) -> bytes:
    """Return the receipt of a successful transaction of EIP-1559."""
    content: bytes = rlp.encode([1, 63_209, bytes(256), logs])
    return b"\2" + content


def fetch_proofs(batch: Batch, logs: Collection[Any] = ()) -> Batch:
    """Store made-up results of INITIAL_STATE. Each slot's value is its own number.

    Transactions that are named by their hash have the index 2. Their first log is the seventh of the block.
    """
    Block.objects.filter(queries__batch=batch).update(header_rlp=HEADER)
    for query in batch.queries.select_related("block"):
        assert query.block
        if name := query.transaction_name:
            index = 2 if name.startswith("0x") else int(name)
            held = {"receipt": receipt(*logs), "hash": TRANSACTION, "receipt_size": 700, "log_count": len(logs)}
            ProvenTransaction.objects.get_or_create(block=query.block, index=index, defaults=held)
            batch.queries.filter(pk=query.pk).update(transaction_index=index, first_log=7)
        if not query.address:
            continue
        values = {"nonce": 7, "balance": BALANCE, "storage_root": STORAGE_ROOT, "code_hash": CODE_HASH, "nodes": []}
        proof, is_new = AccountProof.objects.get_or_create(block=query.block, address=query.address, defaults=values)
        if not is_new:  # another batch has stored this block
            continue
        SlotProof.objects.bulk_create(
            [SlotProof(account=proof, slot=slot, nodes=[], value=int(slot, 16)) for slot in query.slots]
        )
    deployed()
    return batch


def finish(batch: Batch) -> Batch:
    """Complete the batch, whose block isn't final yet."""
    complete(fetch_proofs(accept(batch)), *StepKind)
    return batch


def send(batch: Batch, *, tx_hash: str = TRANSACTION, extends: FactsRegistry | None = None) -> Transaction:
    """Store a sent transaction for all queries. With `extends`, it belongs to the path to their blocks."""
    signer, _ = Signer.objects.get_or_create(chain_id=31337, address=service.SIGNER)
    tx = Transaction.objects.create(
        signer=signer, nonce=signer.transactions.count(), data=b"", gas_limit=1, extends=extends
    )
    tx.queries.set(queries_of(batch))
    SignedTransaction.objects.create(
        transaction=tx, hash=tx_hash, raw=b"", max_fee_per_gas=1, max_priority_fee_per_gas=1
    )
    open_steps = Step.objects.filter(query__in=queries_of(batch), status=StepStatus.IN_PROGRESS)
    open_steps.exclude(kind=StepKind.INITIAL_STATE).update(transaction_hash=tx_hash)
    return tx


def mine(tx: Transaction, *, block: int, head: int | None = None) -> None:
    """Store that the transaction was mined in a block. By default the final block is the one before `head`."""
    tx.state, tx.block_number, tx.succeeded, tx.gas_used = TransactionState.MINED, block, True, 175_840
    tx.hash = tx.latest_hash
    tx.save()
    number = head or block
    seen = {"number": number, "final": number - 2, "seen_at": timezone.now()}
    ChainHead.objects.update_or_create(chain_id=31337, defaults=seen)


def settle(batch: Batch) -> Batch:
    """Remove the batch's blocks from the schedule, as when the block with the facts is final. Return the batch."""
    Block.objects.filter(queries__batch=batch).update(due_at=None)
    mined = Transaction.objects.filter(queries__batch=batch, state=TransactionState.MINED)
    Transaction.objects.filter(pk__in=mined.values("pk")).update(state=TransactionState.FINAL)
    return batch


def beat() -> None:
    """Store a worker's heartbeat."""
    WorkerHeartbeat.objects.update_or_create(worker="worker", defaults={"started_at": Now(), "beat_at": Now()})


def read_files() -> None:
    """Read as many files as one address may read in a minute."""
    for _ in range(30):
        Client().get("/explorer/query/none/request.json")


def path(batch: Batch) -> str:
    return f"/explorer/query/{batch.pk}"


def page(batch: Batch, **parameters: Any) -> str:
    response = Client().get(path(batch), parameters)
    assert response.status_code == 200
    return response.text


def polled(batch: Batch, **parameters: Any) -> Any:
    """Return the answer to a poll by htmx."""
    return Client().get(path(batch), parameters, headers={"hx-request": "true"})


# --- Every kind of fact, proven on a chain ----------------------------------------------------------------------------

CONTRACT = "0x" + "c0de" * 10


def everything(chain: DevChain) -> Batch:
    """Return a DONE batch. Query 1 is about an account, 2 about slots, 3 about a header, 4 about an
    account at a time.
    """
    chain.rpc("anvil_setCode", CONTRACT, "0x00")
    chain.rpc("anvil_setStorageAt", CONTRACT, "0x5", word(77))
    chain.mine()
    block = chain.head()
    chain.rpc("evm_increaseTime", 10)  # gives the block a time of its own
    chain.mine(2)
    time = int(chain.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"], 16)
    batch = batch_at(
        **{
            f"block_{block}": {
                "accounts": {service.BOB: {"props": service.ACCOUNT_FIELDS}, CONTRACT: {"slots": ["0x5", "0x6"]}},
                "header": service.PRAGUE_FIELDS,
            },
            f"timestamp_{time}": {"accounts": {service.ALICE: {"props": ["NONCE"]}}},
        }
    )
    return service.work_until_done(batch, chain, rounds=20)
