"""What a page shows of queries: their steps, the transactions of these, and at DONE the facts.

However many queries are asked for, the number of statements is the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from config.chains import get_chains
from explorer.amounts import whole_units
from explorer.chain_names import ChainName, chain_name
from explorer.snippets import Snippet, reading
from proving import facts
from proving.models import AccountProof, ChainHead, FactsRegistry, SignedTransaction, TransactionState
from proving.models import Transaction as TransactionRow
from queries.models import AccountField, Batch, BatchStatus, Query, Step, StepKind, StepStatus

STEP_MEANINGS = {
    StepKind.INITIAL_STATE: "header and proofs are fetched and verified",
    StepKind.BLOCKHASH_AVAILABLE: "the destination can vouch for the block's hash",
    StepKind.HEADER_ACCUMULATED: "the facts registry holds the header's state root",
    StepKind.ACCOUNT_ACCUMULATED: "the facts read back from the registry as proven",
}
_ROOTS = (AccountField.STORAGE_ROOT, AccountField.CODE_HASH)


@dataclass(frozen=True)
class ShownTransaction:
    hash: str
    url: str  # on the chain's own explorer, where one is configured
    progress: str  # how far it is, a phrase
    gas_used: int | None  # of the whole transaction, once it is mined


@dataclass(frozen=True)
class ShownStep:
    kind: str
    meaning: str
    status: str  # of `StepStatus`, or STOPPED (open when its batch was rejected), or empty: not begun
    started_at: datetime | None = None
    ended_at: datetime | None = None  # completed, or stopped
    transaction: ShownTransaction | None = None
    attempts: int = 0
    last_error: str = ""
    next_try_at: datetime | None = None  # while it fails
    went_back_at: datetime | None = None
    went_back_because: str = ""

    @property
    def took(self) -> timedelta | None:
        return self.ended_at - self.started_at if self.started_at and self.ended_at else None

    @property
    def last_error_matters(self) -> bool:
        """A step that went back has the reason for its last error; once is enough."""
        return bool(self.last_error) and self.last_error != self.went_back_because


@dataclass(frozen=True)
class Meaning:
    label: str
    text: str


@dataclass(frozen=True)
class Value:
    """A fact: its word as the registry answers it, what the word says, and the calls that read it."""

    field: str
    word: str
    meanings: tuple[Meaning, ...]
    registry: str
    snippets: tuple[Snippet, ...]


@dataclass(frozen=True)
class ShownQuery:
    number: int  # from 1, in the order of the request
    address: str
    source: ChainName
    block_number: int
    block_hash: str
    fields: tuple[str, ...]
    steps: tuple[ShownStep, ...]
    values: tuple[Value, ...]  # at DONE only (specification, "Rules that hold")

    @property
    def completed(self) -> int:
        return sum(step.status == StepStatus.COMPLETED for step in self.steps)


@dataclass(frozen=True)
class QueryRow:
    """One line for a query, where there are too many to show them whole."""

    number: int
    address: str
    source: ChainName
    block_number: int
    completed: int  # of its steps
    step: str  # the open one, empty at the end


def rows(queries: Iterable[Query]) -> Iterable[QueryRow]:
    """`queries` with their blocks."""
    order = list(StepKind)
    sources: dict[int, ChainName] = {}
    for query in queries:
        source = query.block.source_chain_id
        if source not in sources:
            sources[source] = chain_name(source)
        completed = len(order) if query.step is None else order.index(StepKind(query.step))
        yield QueryRow(
            query.position + 1, query.address, sources[source], query.block.number, completed, query.step or ""
        )


def cards(batch: Batch, queries: Sequence[Query], destination: ChainName) -> Iterable[ShownQuery]:
    """`queries` with their blocks and steps."""
    proofs: Mapping[tuple[int, str], AccountProof] = {}
    registries: Mapping[int, str] = {}
    if batch.status == BatchStatus.DONE:
        proofs, registries = _proofs(queries), _registries(destination.id)
    hashes = {step.transaction_hash for query in queries for step in query.steps.all() if step.transaction_hash}
    transactions = _transactions(hashes, destination)
    sources = {number: chain_name(number) for number in {query.block.source_chain_id for query in queries}}
    for query in queries:
        block, source = query.block, sources[query.block.source_chain_id]
        proof, registry = proofs.get((block.pk, query.address)), registries.get(source.id)
        yield ShownQuery(
            number=query.position + 1,
            address=query.address,
            source=source,
            block_number=block.number,
            block_hash=block.hash,
            fields=tuple(field.name for field in query.account_fields),
            steps=tuple(_steps(query, batch, transactions)),
            values=tuple(_values(query, proof, source, registry)) if proof and registry else (),
        )


def _steps(query: Query, batch: Batch, transactions: Mapping[str, ShownTransaction]) -> Iterable[ShownStep]:
    steps: dict[str, Step] = {step.kind: step for step in query.steps.all()}
    for kind in StepKind:
        step = steps.get(kind)
        if step is None:
            yield ShownStep(kind, STEP_MEANINGS[kind], "")
            continue
        is_open = step.status == StepStatus.IN_PROGRESS
        stopped = is_open and batch.status == BatchStatus.REJECTED
        fails = is_open and not stopped and query.block.failing_since is not None
        yield ShownStep(
            kind=kind,
            meaning=STEP_MEANINGS[kind],
            status="STOPPED" if stopped else step.status,
            started_at=step.started_at,
            ended_at=batch.finished_at if stopped else step.completed_at,
            transaction=transactions.get(step.transaction_hash),
            attempts=step.attempts,
            last_error=step.last_error,
            next_try_at=query.block.due_at if fails else None,
            went_back_at=step.went_back_at,
            went_back_because=step.went_back_because,
        )


# --- Transactions -----------------------------------------------------------------------------------------------------


def _transactions(hashes: set[str], destination: ChainName) -> Mapping[str, ShownTransaction]:
    versions = SignedTransaction.objects.filter(hash__in=hashes).select_related("transaction")
    sent = {version.hash: version.transaction for version in versions.defer("raw", "transaction__data")}
    head = ChainHead.objects.filter(pk=destination.id).first()
    return {
        tx_hash: ShownTransaction(
            hash=tx_hash,
            url=f"{destination.explorer_url}/tx/{tx_hash}" if destination.explorer_url else "",
            progress=_progress(sent[tx_hash], destination, head) if tx_hash in sent else "",
            gas_used=sent[tx_hash].gas_used or None if tx_hash in sent else None,
        )
        for tx_hash in hashes
    }


def _progress(tx: TransactionRow, destination: ChainName, head: ChainHead | None) -> str:
    if tx.state == TransactionState.DISPLACED:
        return "its nonce was used by another transaction"
    if tx.block_number is None:
        return "sent, not in a block yet"
    if not tx.succeeded:
        return f"reverted in block {tx.block_number}"
    where = f"in block {tx.block_number}"
    if tx.state == TransactionState.FINAL:
        return f"{where}, which is final"
    needed = get_chains().chain(destination.id).confirmations if destination.is_configured else 1
    if needed == "finalized":
        final = f"; block {head.final} is the newest final one" if head else ""
        return f"{where}, waiting until it is final{final}"
    seen = needed if tx.state == TransactionState.CONFIRMED else 1
    if head is not None:
        seen = max(seen, head.number - tx.block_number + 1)
    return f"{where}, {min(seen, needed)} of {needed} confirmation{'' if needed == 1 else 's'}"


# --- Facts ------------------------------------------------------------------------------------------------------------


def _proofs(queries: Sequence[Query]) -> Mapping[tuple[int, str], AccountProof]:
    """By (block's primary key, address). The proofs of other pairs of the same blocks and addresses do no harm."""
    proofs = AccountProof.objects.defer("nodes").filter(
        block__in={query.block_id for query in queries}, address__in={query.address for query in queries}
    )
    return {(proof.block_id, proof.address): proof for proof in proofs}


def _registries(destination: int) -> Mapping[int, str]:
    """Address of the deployed registry by source chain id."""
    found = FactsRegistry.objects.filter(destination_chain_id=destination, deployed_at__isnull=False)
    return dict(found.values_list("source_chain_id", "address"))


def _values(query: Query, proof: AccountProof, source: ChainName, registry: str) -> Iterable[Value]:
    words = facts.words(proof)
    for field in query.account_fields:
        word = words[field]
        yield Value(
            field=field.name,
            word="0x" + word.hex(),
            meanings=meanings(field, word, source.currency),
            registry=registry,
            snippets=reading(registry, query.address, query.block.number, field),
        )


def meanings(field: AccountField, word: bytes, currency: str) -> tuple[Meaning, ...]:
    """What a fact's word says, in the spellings that people look for. A root's or a hash's word is what it says."""
    number = int.from_bytes(word)
    if field in _ROOTS:
        return ()
    plain = (Meaning("decimal", str(number)), Meaning("hex", hex(number)))
    if field == AccountField.BALANCE:
        return (
            Meaning(currency, whole_units(number)),
            Meaning("wei, decimal", str(number)),
            Meaning("hex", hex(number)),
        )
    return plain
