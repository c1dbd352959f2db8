"""What the page of a batch shows, read in a number of statements that does not grow with the batch.

All of it is in one frozen value, so that whether a page changed is whether its value did.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

from django.core.paginator import Paginator
from django.db.models import Count

from chains.config import Chain, UnknownChain
from config.chains import get_chains
from explorer.amounts import whole_units
from proving import facts, worker
from proving.models import WATCHED_STATES, AccountProof, FactsRegistry, Signer, Transaction
from queries.models import (
    OPEN_STATUSES,
    AccountField,
    Batch,
    BatchStatus,
    Block,
    Query,
    Step,
    StepKind,
    StepStatus,
)

PAGE_SIZE = 50
# How long a page waits before it asks again, in seconds: while steps are open, and while only a reorg can change it.
_OPEN_SECONDS = 2
_NOT_FINAL_SECONDS = 10

_BATCH_MEANINGS = {
    BatchStatus.RECEIVED: "Stored. It is checked against the chains next.",
    BatchStatus.ACCEPTED: "Checked against the chains. Headers and proofs are fetched next.",
    BatchStatus.IN_PROGRESS: "It is being proven.",
    BatchStatus.DONE: "Every fact was read back from the facts registry and is as proven.",
    BatchStatus.REJECTED: "It will not be proven.",
}
_STEP_MEANINGS = {
    StepKind.INITIAL_STATE: "header and proofs are fetched and verified",
    StepKind.BLOCKHASH_AVAILABLE: "the destination can vouch for the block's hash",
    StepKind.HEADER_ACCUMULATED: "the facts registry holds the header's state root",
    StepKind.ACCOUNT_ACCUMULATED: "the facts read back from the registry as proven",
}
_ROOTS = (AccountField.STORAGE_ROOT, AccountField.CODE_HASH)


@dataclass(frozen=True)
class ChainName:
    """What a page says of a chain. One that is no longer configured has only its id."""

    id: int
    name: str
    currency: str
    explorer_url: str


@dataclass(frozen=True)
class StepCount:
    """How many of the batch's queries have completed a step."""

    kind: str
    meaning: str
    completed: int


@dataclass(frozen=True)
class ShownStep:
    kind: str
    status: str  # of `StepStatus`, or STOPPED (open when its batch was rejected), or empty: not begun
    started_at: datetime | None = None
    ended_at: datetime | None = None  # completed, or stopped
    transaction_hash: str = ""
    transaction_url: str = ""  # on the chain's own explorer, where one is configured
    attempts: int = 0
    last_error: str = ""

    @property
    def took(self) -> timedelta | None:
        return self.ended_at - self.started_at if self.started_at and self.ended_at else None


@dataclass(frozen=True)
class Value:
    """A fact: its word as the registry answers it, what the word says, and the call that reads it."""

    field: str
    word: str
    meanings: tuple[str, ...]
    registry: str
    command: str


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


@dataclass(frozen=True)
class BatchPage:
    id: str
    status: str
    meaning: str
    created_at: datetime
    finished_at: datetime | None
    deadline_at: datetime | None  # while open
    destination: ChainName
    fee: int  # wei
    estimated_gas: int | None
    gas_used: int
    spent: int  # wei
    rejection_code: str
    rejection_reason: str
    rejection_retryable: bool
    waiting_for: tuple[str, ...]
    no_worker: bool
    notices: tuple[str, ...]  # of the destination's signers
    step_counts: tuple[StepCount, ...]
    total: int
    page: int
    pages: int
    queries: tuple[ShownQuery, ...]
    poll_seconds: int | None  # None: nothing can change any more

    @property
    def version(self) -> str:
        """Changes whenever anything that the page shows does."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]


def read(internal_id: str, page: str) -> BatchPage | None:
    """The page of a batch, or None if there is no such batch. A `page` that doesn't exist becomes the nearest one."""
    if not internal_id.isalnum():  # PostgreSQL takes no NUL in a text.
        return None
    batch = Batch.objects.defer("request").filter(pk=internal_id).first()
    if batch is None:
        return None
    at_step = dict(batch.queries.order_by().values_list("step").annotate(count=Count("pk")))
    total = sum(at_step.values())
    numbers = Paginator(range(total), PAGE_SIZE).get_page(page)
    destination = _chain(batch.destination_chain_id)
    is_open = batch.status in OPEN_STATUSES
    poll_seconds = _OPEN_SECONDS if is_open else _NOT_FINAL_SECONDS if _can_change(batch) else None
    return BatchPage(
        id=batch.pk,
        status=batch.status,
        meaning=_BATCH_MEANINGS[BatchStatus(batch.status)],
        created_at=batch.created_at,
        finished_at=batch.finished_at,
        deadline_at=batch.deadline_at if is_open else None,
        destination=destination,
        fee=batch.fee,
        estimated_gas=batch.estimated_gas,
        gas_used=batch.gas_used,
        spent=batch.spent,
        rejection_code=batch.rejection_code,
        rejection_reason=batch.rejection_reason,
        rejection_retryable=batch.rejection_retryable,
        waiting_for=tuple(map(str, batch.waits())) if is_open else (),
        # A page that can't change any more would show these for ever.
        no_worker=poll_seconds is not None and not worker.is_running(),
        notices=_notices(destination.id) if poll_seconds is not None else (),
        step_counts=tuple(_step_counts(at_step)),
        total=total,
        page=numbers.number,
        pages=numbers.paginator.num_pages,
        queries=tuple(_queries(batch, destination, range(numbers.start_index() - 1, numbers.end_index()))),
        poll_seconds=poll_seconds,
    )


def _can_change(batch: Batch) -> bool:
    """Whether a closed batch may still change: a reorg takes DONE back, a transaction under way adds its cost."""
    if batch.status == BatchStatus.DONE and Block.objects.filter(queries__batch=batch, due_at__isnull=False).exists():
        return True
    return Transaction.objects.filter(queries__batch=batch, state__in=WATCHED_STATES).exists()


def _chain(chain_id: int) -> ChainName:
    try:
        chain: Chain = get_chains().chain(chain_id)
    except UnknownChain:
        return ChainName(chain_id, "Chain that is no longer configured", "native currency", "")
    return ChainName(chain.id, chain.name, chain.native_currency, chain.explorer_url or "")


def _notices(chain_id: int) -> tuple[str, ...]:
    signers = Signer.objects.filter(chain_id=chain_id).exclude(notice="")
    return tuple(signers.order_by("pk").values_list("notice", flat=True))


def _step_counts(at_step: Mapping[str | None, int]) -> Iterable[StepCount]:
    """`at_step` counts the queries by their open step; None: all steps are completed."""
    open_or_before = accumulate(at_step.get(kind, 0) for kind in StepKind)
    total = sum(at_step.values())
    for kind, not_past in zip(StepKind, open_or_before, strict=True):
        yield StepCount(kind, _STEP_MEANINGS[kind], total - not_past)


# --- Queries ----------------------------------------------------------------------------------------------------------


def _queries(batch: Batch, destination: ChainName, positions: range) -> Iterable[ShownQuery]:
    rows = batch.queries.filter(position__gte=positions.start, position__lt=positions.stop).order_by("position")
    queries = list(rows.select_related("block").defer("block__header_rlp").prefetch_related("steps"))
    proofs: Mapping[tuple[int, str], AccountProof] = {}
    registries: Mapping[int, str] = {}
    if batch.status == BatchStatus.DONE:
        proofs, registries = _proofs(queries), _registries(destination.id)
    sources = {number: _chain(number) for number in {query.block.source_chain_id for query in queries}}
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
            steps=tuple(_steps(query, batch, destination)),
            values=tuple(_values(query, proof, source, registry)) if proof and registry else (),
        )


def _steps(query: Query, batch: Batch, destination: ChainName) -> Iterable[ShownStep]:
    rows: dict[str, Step] = {step.kind: step for step in query.steps.all()}
    for kind in StepKind:
        step = rows.get(kind)
        if step is None:
            yield ShownStep(kind, "")
            continue
        stopped = step.status == StepStatus.IN_PROGRESS and batch.status == BatchStatus.REJECTED
        url = f"{destination.explorer_url}/tx/{step.transaction_hash}"
        yield ShownStep(
            kind=kind,
            status="STOPPED" if stopped else step.status,
            started_at=step.started_at,
            ended_at=batch.finished_at if stopped else step.completed_at,
            transaction_hash=step.transaction_hash,
            transaction_url=url if destination.explorer_url and step.transaction_hash else "",
            attempts=step.attempts,
            last_error=step.last_error,
        )


def _proofs(queries: Sequence[Query]) -> Mapping[tuple[int, str], AccountProof]:
    """By (block's primary key, address). The proofs of other pairs of the same blocks and addresses do no harm."""
    proofs = AccountProof.objects.defer("nodes").filter(
        block__in={query.block_id for query in queries}, address__in={query.address for query in queries}
    )
    return {(proof.block_id, proof.address): proof for proof in proofs}


def _registries(destination: int) -> Mapping[int, str]:
    """Address of the deployed registry by source chain id."""
    rows = FactsRegistry.objects.filter(destination_chain_id=destination, deployed_at__isnull=False)
    return dict(rows.values_list("source_chain_id", "address"))


def _values(query: Query, proof: AccountProof, source: ChainName, registry: str) -> Iterable[Value]:
    words = facts.account_words(proof)
    for field in query.account_fields:
        word = words[field]
        call = f"{registry} 'accountField(address,uint256,uint8)(bytes32)'"
        yield Value(
            field=field.name,
            word="0x" + word.hex(),
            meanings=tuple(_meanings(field, int.from_bytes(word), source.currency)),
            registry=registry,
            command=f'cast call --rpc-url "$RPC_URL" {call} {query.address} {query.block.number} {field.value}',
        )


def _meanings(field: AccountField, number: int, currency: str) -> Iterable[str]:
    if field in _ROOTS:  # The word is what it says.
        return
    if field == AccountField.BALANCE:
        yield f"{whole_units(number)} {currency}"
        yield f"{number} wei"
    else:
        yield str(number)
