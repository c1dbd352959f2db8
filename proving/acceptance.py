"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it.

Each source chain of a batch is checked by itself: its queries are admitted as soon as it has answered, and one that is
down holds up no other. Of a source chain what exists is admitted, and a block or a time that is still to come holds up
nothing but the queries that name it.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import cast

from django.conf import settings
from django.db.models import Count, Max, Min, Q, QuerySet
from django.utils import timezone

from accounts import row_locks, user_limits
from accounts.models import User
from chains import rollups, together
from chains.chains_file import Chain
from chains.header import Header
from chains.rpc import Fees, NodeUnavailable, ProofRequest, RpcClient, RpcRefused
from chains.together import Outcome, Raised
from config.configured_chains import get_chains, get_rpc
from proving import connections, facts, heads, looks, timestamps
from proving.connections import OpenConnection
from proving.facts import Fact, HeaderFact, TimeFact
from proving.heads import Heads, poll_seconds
from proving.looks import Look
from proving.paths import planning
from proving.paths.planning import TooFar
from proving.registry import deployments
from proving.spending import estimates, promised
from proving.transactions import signers
from queries import leases, progress, submission, turns
from queries.chunks import by_size, chunks
from queries.leases import Lease
from queries.models import HEADER_COLUMNS, OPEN_STATUSES, Batch, Block, BlockTag, Query
from queries.rejection_codes import RejectionCode

logger = logging.getLogger(__name__)

# So many of the newest states every node keeps, archive or not. A refusal of one of these tells little.
_KEPT_BY_ALL = 128
# Headers, blocks or facts that are read between two extensions of the lease.
_PER_READ = 200
_HEADERS_PER_STATEMENT = 100


@dataclass(frozen=True)
class _Postponed:
    """Why these queries are not admitted yet, a sentence, and when to ask again; None: ever later, because it fails."""

    sentence: str
    until: datetime | None


@dataclass(frozen=True)
class _Refusal:
    code: RejectionCode
    reason: str
    retryable: bool


@dataclass(frozen=True)
class _Ahead:
    """Some of what the queries name does not exist yet."""

    head: int
    """Blocks so high exist."""
    wait: _Postponed
    """For the others."""


@dataclass(frozen=True)
class _Acceptance:
    estimated_gas: int
    estimated_wei: int
    blocks: Sequence[Block] = ()
    """With their headers as they were read: whoever works on a block first can ask for more at once."""
    ahead: _Ahead | None = None
    """What is not admitted yet; None: all is."""
    gas_ahead: int = 0
    """What that is estimated at. The money must suffice for it too, or less would be proven than was paid for."""
    wei_ahead: int = 0

    @property
    def up_to(self) -> int | None:
        """As `Batch.unadmitted` takes it."""
        return self.ahead.head if self.ahead else None

    @property
    def gas(self) -> int:
        return self.estimated_gas + self.gas_ahead

    @property
    def wei(self) -> int:
        return self.estimated_wei + self.wei_ahead


def accept(batch_id: object) -> None:
    """Decide about the queries of a batch that are not admitted yet, or say what the decision waits for."""
    lease = leases.claim(Batch.objects.filter(status__in=OPEN_STATUSES), batch_id)
    if lease is not None:
        with looks.look("batch", batch=lease.row.pk, chain=lease.row.destination_chain_id) as look:
            _accept(lease, look)


def _accept(lease: Lease[Batch], look: Look) -> None:
    batch = lease.row
    try:
        waits: list[_Postponed] = []
        for source in undecided(batch.pk):
            decision = _decide(lease, source)
            if isinstance(decision, _Postponed):
                waits.append(decision)
                continue
            goes_on = together.share_work("decided", _Decided(lease, source, decision), _record_all)
            if not goes_on:
                look.outcome = "done"
                return lease.give_back(None)
            if isinstance(decision, _Acceptance) and decision.ahead:
                waits.append(decision.ahead.wait)
        failing = bool(waits) and all(wait.until is None for wait in waits)
        pause = timezone.now() + leases.backoff(batch.attempts)
        due_at = min((wait.until or pause for wait in waits), default=None)
        lease.give_back(
            due_at,
            attempts=batch.attempts + 1 if failing else 0,
            waiting_for=" ".join(dict.fromkeys(wait.sentence for wait in waits)),
        )
        look.outcome = "fails" if failing else "waits" if waits else "done"
    except leases.LeaseLost:
        return None
    except Exception:
        pause = timezone.now() + leases.backoff(batch.attempts)
        sentence = "An error of this service, which has been logged."
        lease.release(pause, attempts=batch.attempts + 1, waiting_for=sentence)
        raise


def undecided(batch_id: str) -> list[int]:
    """The source chains whose queries are not admitted yet."""
    waiting = Query.objects.filter(batch=batch_id, is_admitted=False)
    return list(waiting.order_by("source_chain_id").values_list("source_chain_id", flat=True).distinct())


@dataclass(frozen=True)
class _Decided:
    lease: Lease[Batch]
    source: int
    decision: _Refusal | _Acceptance


def _record_all(several: Sequence[_Decided]) -> Sequence[Outcome[bool]]:
    return leases.write_together(
        several, attrgetter("lease"), lambda going: [_record(one) for one in going], lock_first=_lock_users_and_blocks
    )


def _lock_users_and_blocks(several: Sequence[_Decided]) -> None:
    """One at a time for each user: two batches can't be promised the same rest. And the blocks that are lined up."""
    accepted = [one for one in several if isinstance(one.decision, _Acceptance)]
    if not accepted:
        return
    row_locks.lock(User.objects.filter(pk__in={one.lease.row.user_id for one in accepted}))
    admitted = Q()
    for one in accepted:
        admitted |= Q(batch=one.lease.row.pk, source_chain_id=one.source, is_admitted=False)
    row_locks.lock(Block.objects.filter(pk__in=Query.objects.filter(admitted).values("block")))


def _record(decided: _Decided) -> bool:
    """Write the decision, in the caller's database transaction; whether the batch goes on."""
    batch, source, decision = decided.lease.row, decided.source, decided.decision
    if isinstance(decision, _Acceptance):
        decision = _check_limits(batch, decision) or decision
    if isinstance(decision, _Refusal):
        progress.reject([batch.pk], code=decision.code, reason=decision.reason, retryable=decision.retryable)
        return False
    turns.line_up(batch, batch.unadmitted(source, up_to=decision.up_to))
    progress.admit(
        batch,
        source,
        estimated_gas=decision.estimated_gas,
        estimated_wei=decision.estimated_wei,
        up_to=decision.up_to,
    )
    _store_headers(decision.blocks)
    return True


def _store_headers(blocks: Sequence[Block]) -> None:
    """Of blocks that have none yet. Where a block has one, nothing but its own reconcile may replace it."""
    if blocks:
        without = Block.objects.filter(hash="")
        without.bulk_update(blocks, HEADER_COLUMNS, batch_size=_HEADERS_PER_STATEMENT)


def _decide(lease: Lease[Batch], source: int) -> _Postponed | _Refusal | _Acceptance:
    batch = lease.row
    batch.user = together.share_work("user", batch.user_id, _users)
    if not batch.pays_itself and (no_signer := signers.why_none(get_chains().chain(batch.destination_chain_id))):
        return _Refusal(RejectionCode.NO_SIGNER, no_signer, retryable=False)
    if exhausted := _check_limits(batch, _Acceptance(0, 0)):
        return exhausted  # Before any node is asked.
    try:
        connection = connections.open_unless_paused(batch.destination_chain_id, source)
        named = _named(batch, source)
        # What a time or a tag selects is only known when its block is found. All else is asked side by side.
        if named.unfound:
            refusal = _find_blocks(lease, connection)
            if refusal:
                return refusal
            named = _named(batch, source)
        return _decide_about_blocks(lease, connection, named)
    except deployments.Unusable as why:
        return _Postponed(str(why), timezone.now() + timedelta(seconds=10))
    except (NodeUnavailable, RpcRefused) as error:
        logger.warning("batch %s waits: %s", batch.pk, error)
        return _Postponed(str(error), None)


def _users(ids: Sequence[int]) -> list[User]:
    """With the limits of their own."""
    found = User.objects.in_bulk(ids)
    return [found[pk] for pk in ids]


@dataclass(frozen=True)
class _Named:
    """What queries of a batch name that are about one source chain and not admitted yet."""

    queries: "QuerySet[Query]"
    highest: int | None  # of the blocks that are named by their numbers, or found
    latest_unfound: int | None  # of the times whose blocks are not found yet, unix seconds
    unfound: int  # how many have no block yet
    headers: int  # how many ask for a header


def _named(batch: Batch, source: int, *, up_to: int | None = None) -> _Named:
    queries = batch.unadmitted(source, up_to=up_to)
    return _Named(
        queries,
        **queries.aggregate(
            highest=Max("block__number"),
            latest_unfound=Max("timestamp", filter=Q(block=None)),
            unfound=Count("pk", filter=Q(block=None)),
            headers=Count("pk", filter=Q(address="")),
        ),
    )


def _decide_about_blocks(
    lease: Lease[Batch], connection: OpenConnection, named: _Named, ahead: _Ahead | None = None
) -> _Postponed | _Refusal | _Acceptance:
    """`ahead` is what is known to be still to come, and no part of `named`."""
    if named.unfound:
        # Nothing else can be asked about a block that isn't known.
        return _decide_about_existing(lease, connection, _check_heights(lease.row, connection, named))
    destination = get_chains().chain(lease.row.destination_chain_id)
    asked = (
        lambda: None if ahead else _check_heights(lease.row, connection, named),
        lambda: (
            (named.headers and _check_header_properties(lease, connection, named))
            or _check_proofs(lease, connection, named)
        ),
        lambda: _count(lease, connection, named),
        connection.destination_rpc.fees,
        # Whoever works on its blocks needs them next.
        lambda: heads.recent(destination, connection.destination_rpc),
    )
    heights, checked, counted, fees, _ = together.run(asked)
    if isinstance(heights, _Ahead):
        # The others failed on that.
        return _decide_about_existing(lease, connection, heights)
    for outcome in (heights, checked, counted, fees):
        if isinstance(outcome, Raised):
            raise outcome.error
        if isinstance(outcome, _Refusal):
            return outcome
    return _check_cost(lease.row, connection, cast("_Counted", counted), cast("Fees", fees), ahead)


def _decide_about_existing(
    lease: Lease[Batch], connection: OpenConnection, ahead: _Ahead | _Refusal | None
) -> _Postponed | _Refusal | _Acceptance:
    assert ahead is not None, "there is something that does not exist yet"
    if isinstance(ahead, _Refusal):
        return ahead
    existing = _named(lease.row, connection.config.source_id, up_to=ahead.head)
    return ahead.wait if existing.highest is None else _decide_about_blocks(lease, connection, existing, ahead)


def _check_heights(batch: Batch, connection: OpenConnection, named: _Named) -> _Ahead | _Refusal | None:
    """Whether all that is named exists by now: the highest of the blocks, and a block after the last of the times."""
    source = connection.source_rpc.chain
    head = heads.recent(source, connection.source_rpc).latest
    if not named.unfound and (named.highest or 0) <= head.number:
        return None
    # It may have come since that was read.
    head = heads.read(source, connection.source_rpc).latest
    if not named.unfound and (named.highest or 0) <= head.number:
        return None
    return _too_far_ahead(named, source, head) or _Ahead(head.number, _until_they_exist(batch, source, head))


def _too_far_ahead(named: _Named, source: Chain, head: Header) -> _Refusal | None:
    blocks = (named.highest or 0) - head.number
    if blocks > settings.MAX_BLOCKS_AHEAD:
        return _Refusal(
            RejectionCode.BLOCK_TOO_FAR_AHEAD,
            f"Block {named.highest} of chain {source.id} is {blocks} blocks above the head {head.number}; a batch "
            f"waits for at most {settings.MAX_BLOCKS_AHEAD}. Send it again when the block is nearer.",
            retryable=True,
        )
    seconds = (named.latest_unfound or 0) - head.timestamp
    if seconds > settings.MAX_BLOCKS_AHEAD * source.block_seconds:
        return _Refusal(
            RejectionCode.TIMESTAMP_TOO_FAR_AHEAD,
            f"The time {named.latest_unfound} is {seconds} s after the newest block of chain {source.id}. Try again "
            "when it is near.",
            retryable=True,
        )
    return None


def _until_they_exist(batch: Batch, source: Chain, head: Header) -> _Postponed:
    """Waits for the next of the blocks and times that are still to come."""
    coming = batch.unadmitted(source.id).aggregate(
        next_block=Min("block__number", filter=Q(block__number__gt=head.number)),
        last_block=Max("block__number", filter=Q(block__number__gt=head.number)),
        next_time=Min("timestamp", filter=Q(block=None)),
        last_time=Max("timestamp", filter=Q(block=None)),
    )
    sentences, seconds = [], []
    if (block := coming["next_block"]) is not None:
        beside = f" The last one that is waited for is {last}." if (last := coming["last_block"]) != block else ""
        sentences.append(f"Block {block} of chain {source.id} does not exist yet; the head is {head.number}.{beside}")
        seconds.append((block - head.number - 1) * source.block_seconds)
    if (time := coming["next_time"]) is not None:
        beside = f" The last one that is waited for is {last}." if (last := coming["last_time"]) != time else ""
        sentences.append(
            f"No block of chain {source.id} is later than the time {time} yet, so it may still get a later block."
            f"{beside}"
        )
        seconds.append(time - head.timestamp)
    pause = max(poll_seconds(source), min(seconds, default=0))
    return _Postponed(" ".join(sentences), timezone.now() + timedelta(seconds=pause))


# --- What times and tags select ---------------------------------------------------------------------------------------


def _find_blocks(lease: Lease[Batch], connection: OpenConnection) -> _Refusal | None:
    """Give the queries that name a time or a tag their blocks, except times that may still get a later one."""
    source, rpc = connection.source_rpc.chain, connection.source_rpc
    unfound = lease.row.unadmitted(source.id).filter(block=None)
    named = list(unfound.order_by("-timestamp").values_list("timestamp", "block_tag").distinct())
    times = [time for time, _ in named if time is not None]
    seen = heads.recent(source, rpc)
    if any(time >= seen.latest.timestamp for time in times):
        # A later block may have come since that was read.
        seen = heads.read(source, rpc)
    for tag in (tag for _, tag in named if tag):
        header = _tagged(tag, seen, rpc)
        if isinstance(header, _Refusal):
            return header
        # All of them at once: they have one block, wherever we are killed.
        _give_block(lease, unfound.filter(block_tag=tag), source.id, header.number)
    for time in times:
        if time >= seen.latest.timestamp:
            continue
        number = timestamps.block_at(rpc, time, seen.latest, extend_lease=lease.extend)
        if number is None:
            return _Refusal(
                RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK,
                f"The time {time} is before the first block of chain {source.id}.",
                False,
            )
        _give_block(lease, unfound.filter(timestamp=time), source.id, number)
    return None


def _tagged(tag: str, seen: Heads, rpc: RpcClient) -> Header | _Refusal:
    """Raises `NodeUnavailable`, and `RpcRefused` where another node may know better."""
    header = seen.latest if tag == BlockTag.LATEST else seen.finalized
    said = ""
    if header is None:
        try:
            header = rpc.header("finalized")
        except RpcRefused as refused:
            if refused.may_pass:
                raise
            said = f" {refused}"
    return header or _Refusal(
        RejectionCode.FINALIZED_UNKNOWN,
        f"No node of chain {rpc.chain.id} says which of its blocks is the newest final one.{said}",
        retryable=True,
    )


def _give_block(lease: Lease[Batch], queries: "QuerySet[Query]", source: int, number: int) -> None:
    # Before the batch is locked, as `accounts.row_locks` says.
    blocks = submission.find_blocks(lease.row.destination_chain_id, {(source, number)})
    with lease.writing():
        queries.update(block_id=blocks[source, number])


# --- Whether it can be proven -----------------------------------------------------------------------------------------


def _check_header_properties(lease: Lease[Batch], connection: OpenConnection, named: _Named) -> _Refusal | None:
    """Whether the blocks' headers have the properties that are asked for."""
    source = connection.config.source_id
    asking = named.queries.filter(address="").select_related("block").order_by("position")
    for chunk in chunks(list(asking), _PER_READ):
        numbers = [query.block.number for query in chunk if query.block is not None]
        for query, header in zip(chunk, connection.source_rpc.known_headers(numbers), strict=True):
            if lacking := facts.lacking(header, query.header_fields):
                return _Refusal(
                    RejectionCode.HEADER_PROPERTY_MISSING, facts.why_lacking(source, header, lacking), retryable=False
                )
        lease.extend()
    return None


def _check_proofs(lease: Lease[Batch], connection: OpenConnection, named: _Named) -> _Refusal | None:
    """Whether some node still serves proofs at the oldest block that needs them: many keep only the newest states."""
    accounts = named.queries.exclude(address="")
    oldest = accounts.order_by("block__number").values_list("block__number", "address").first()
    head = heads.recent(connection.source_rpc.chain, connection.source_rpc).latest
    if oldest is None or oldest[0] > head.number - _KEPT_BY_ALL:
        return None
    number, address = oldest
    header = connection.source_rpc.known_header(number)
    (answer,) = connection.source_rpc.proofs([ProofRequest(number, header.hash, address)])
    lease.extend()
    if not isinstance(answer, RpcRefused) or answer.may_pass:
        return None
    return _Refusal(
        RejectionCode.PROOF_UNAVAILABLE,
        f"No node of chain {connection.config.source_id} serves proofs at block {number}. {answer}",
        True,
    )


@dataclass(frozen=True)
class _Counted:
    """What the registry does not hold yet."""

    work: estimates.Workload
    blocks: Sequence[Block]
    """Those that had no header before, with theirs as the source chain has it."""


@dataclass(frozen=True)
class _Asked:
    """A block and what the batch asks for there."""

    block: Block
    facts: Sequence[Fact]
    is_known: bool
    """Whether the registry knows its state root."""

    @property
    def needs_header(self) -> bool:
        """Without a state root no fact is stored; and fields of a header need the header again, and its hash."""
        return bool(self.facts) and (not self.is_known or any(isinstance(fact, _OF_HEADER) for fact in self.facts))

    @property
    def hashed(self) -> int:
        """The block whose hash is needed: it is the header after it that binds when a block ended."""
        return self.block.number + any(isinstance(fact, TimeFact) for fact in self.facts)


_OF_HEADER = (HeaderFact, TimeFact)


def _count(lease: Lease[Batch], connection: OpenConnection, named: _Named) -> _Counted | _Refusal:
    """Count what the registry does not hold yet; refuses blocks that are too far from those that it can trust."""
    ids = named.queries.values("block")
    asked: list[_Asked] = []
    headers: dict[int, Header] = {}
    for blocks in chunks(list(Block.objects.filter(pk__in=ids).order_by("number")), _PER_READ):
        found, read = _look_up(lease, connection, named, blocks)
        asked += found
        headers |= read
    unknown = [one for one in asked if not one.is_known]
    held = partial(_without_held, lease, connection, [one for one in asked if one.is_known])

    def path_gas_to(wanting: Iterable[_Asked]) -> int | TooFar:
        numbers = sorted({one.hashed for one in wanting if one.needs_header}, reverse=True)
        targets = [headers[number] for number in numbers if number in headers]
        return planning.estimate(connection, targets, extend_lease=lease.extend)

    try:
        if any(one.is_known and one.needs_header for one in asked):
            # Only what is not held tells for which of these blocks a path is needed.
            missing = held()
            path_gas = path_gas_to([*unknown, *missing])
        else:
            path_gas, missing = together.together(lambda: path_gas_to(unknown), held)
    except planning.StatesRefused as refused:
        chain = connection.config.source_id
        return _Refusal(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {chain} serves the states that lead to so old a block. {refused}",
            True,
        )
    if isinstance(path_gas, TooFar):
        return _Refusal(RejectionCode.BLOCK_TOO_OLD, path_gas.sentence, retryable=False)
    work = estimates.Workload(path_gas=path_gas)
    for one in [*unknown, *missing]:
        work.add(one.facts, header=one.needs_header)
    fresh = [one.block for one in asked if not one.block.hash and one.block.number in headers]
    for block in fresh:
        block.take(headers[block.number])
    return _Counted(work, fresh)


def _look_up(
    lease: Lease[Batch], connection: OpenConnection, named: _Named, blocks: Sequence[Block]
) -> tuple[list[_Asked], dict[int, Header]]:
    """What is asked for at these blocks, and the headers, by number, that exist of them and of those that follow."""
    contract = connection.registry.contract
    wanted = _facts_of(named, blocks)
    following = {block.number + 1 for block in blocks if any(isinstance(fact, TimeFact) for fact in wanted[block.pk])}
    numbers = sorted({block.number for block in blocks} | following)
    roots, read = together.together(
        lambda: connection.destination_rpc.eth_calls([contract.state_root(block.number) for block in blocks]),
        lambda: connection.source_rpc.headers(numbers),
    )
    lease.extend()
    asked = [
        _Asked(block, wanted[block.pk], isinstance(root, bytes) and any(root))
        for block, root in zip(blocks, roots, strict=True)
    ]
    return asked, {header.number: header for header in read if header is not None}


def _facts_of(named: _Named, blocks: Sequence[Block]) -> Mapping[int, Sequence[Fact]]:
    """By the block's id: what the batch asks for there, each fact once."""
    wanted: dict[int, dict[Fact, None]] = defaultdict(dict)
    for query in named.queries.filter(block__in=blocks).iterator(chunk_size=1000):
        assert query.block_id is not None, "it is one of these"
        wanted[query.block_id].update(dict.fromkeys(facts.of(query)))
    return {block.pk: list(wanted[block.pk]) for block in blocks}


def _without_held(lease: Lease[Batch], connection: OpenConnection, asked: Sequence[_Asked]) -> list[_Asked]:
    """Without the facts that the registry holds already."""
    pieces = [(one, part) for one in asked for part in chunks(one.facts, _PER_READ)]
    missing: dict[int, list[Fact]] = defaultdict(list)
    for parcel in by_size(pieces, lambda piece: len(piece[1]), _PER_READ):
        views = together.each(
            partial(
                facts.read,
                connection.destination_rpc,
                connection.registry.contract,
                one.block.number,
                part,
                at="latest",
            )
            for one, part in parcel
        )
        for (one, _), view in zip(parcel, views, strict=True):
            missing[one.block.pk] += [fact for fact, word in view.facts.items() if word is None]
        lease.extend()
    return [replace(one, facts=missing[one.block.pk]) for one in asked]


def _check_cost(
    batch: Batch, connection: OpenConnection, counted: _Counted, fees: Fees, ahead: _Ahead | None
) -> _Refusal | _Acceptance:
    destination, work = get_chains().chain(batch.destination_chain_id), counted.work
    data = rollups.data_cost(get_rpc(destination.id), work.data_bytes, work.gas)
    gas = work.gas + data.gas
    # Room for two blocks that raise the base fee: it is signed only where the fee suffices for the next one.
    price = fees.base_fee * 5 // 4 + fees.priority_fee
    acceptance = _Acceptance(gas, gas * price + data.wei, counted.blocks)
    if ahead:
        acceptance = _with_what_is_ahead(batch, connection, acceptance, ahead, price)
    if destination.test_network or batch.pays_itself:
        return acceptance
    # Gas may have been dearer than it was estimated at when the first of its queries were admitted.
    before = max(batch.estimated_wei or 0, promised.caused_by(batch))
    total_gas, total = acceptance.gas + (batch.estimated_gas or 0), acceptance.wei + before
    if total > batch.fee:
        path = f", {work.path_gas} of it for the path to blocks that are old" if work.path_gas else ""
        beside = f" and {data.wei} wei for its data" if data.wei else ""
        return _Refusal(
            RejectionCode.FEE_TOO_LOW,
            f"Proving this batch is estimated at {total_gas} gas{path}{beside}, {total} wei at a gas price a quarter "
            f"above the present one, which is more than its fee of {batch.fee} wei.",
            retryable=True,
        )
    return acceptance


def _with_what_is_ahead(
    batch: Batch, connection: OpenConnection, acceptance: _Acceptance, ahead: _Ahead, price: int
) -> _Acceptance:
    """`price` is in wei for a unit of gas."""
    coming = batch.unadmitted(connection.config.source_id).exclude(block__number__lte=ahead.head)
    work = estimates.of_unadmitted(coming)
    data = rollups.data_cost(connection.destination_rpc, work.data_bytes, work.gas)
    gas = work.gas + data.gas
    return replace(acceptance, ahead=ahead, gas_ahead=gas, wei_ahead=gas * price + data.wei)


def _check_limits(batch: Batch, acceptance: _Acceptance) -> _Refusal | None:
    """Whether what the user's batches may cause in a day leaves room for this, too."""
    if batch.pays_itself:
        return None
    destination = get_chains().chain(batch.destination_chain_id)
    for limit in _limits(batch, destination):
        needed = limit.needed(acceptance)
        if limit.promised + needed <= limit.most and (needed or limit.promised < limit.most):
            continue
        if not limit.most:
            rule = f"{limit.rule[0].upper()}{limit.rule[1:]} {limit.shown(0)} in 24 hours."
            return _Refusal(RejectionCode.TOO_LARGE_FOR_BUDGET, rule, retryable=False)
        if needed > limit.most:
            return _Refusal(
                RejectionCode.TOO_LARGE_FOR_BUDGET,
                f"This batch is estimated at {limit.shown(needed)}, and {limit.rule} {limit.shown(limit.most)} in 24 "
                "hours. Send it in parts.",
                retryable=False,
            )
        said = f"; this batch is estimated at {limit.shown(needed)}." if needed else "."
        return _Refusal(
            RejectionCode.BUDGET_EXCEEDED,
            f"{limit.rule[0].upper()}{limit.rule[1:]} {limit.shown(limit.most)} in 24 hours, of which "
            f"{limit.shown(limit.promised)} are used or promised{said}",
            retryable=True,
        )
    return None


@dataclass(frozen=True)
class _DailyLimit:
    rule: str  # the beginning of a sentence
    most: int
    promised: int
    needed: Callable[[_Acceptance], int]
    shown: Callable[[int], str]


def _limits(batch: Batch, destination: Chain) -> Iterator[_DailyLimit]:
    """In gas over all destinations that cost real money, and in the currency of this one."""
    if not destination.test_network:
        costly = [chain.id for chain in get_chains().destinations() if not chain.test_network]
        yield _DailyLimit(
            "a user's batches may use",
            user_limits.own_or(batch.user.daily_gas_budget, settings.DAILY_GAS_BUDGET),
            promised.to_user(batch.user_id, costly).gas,
            attrgetter("gas"),
            "{} gas".format,
        )
    if (most := user_limits.daily_wei(batch.user.daily_limits_wei, destination)) is not None:
        yield _DailyLimit(
            f"a user's batches may cost, on chain {destination.id},",
            most,
            promised.to_user(batch.user_id, [destination.id]).wei,
            attrgetter("wei"),
            destination.amount,
        )
    if (most := destination.daily_limit_wei) is not None:
        # What others have used up is waited for.
        yield _DailyLimit(
            f"all batches together may cost, on chain {destination.id},",
            most,
            0,
            attrgetter("wei"),
            destination.amount,
        )
