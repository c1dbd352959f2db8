"""The next transaction of a path, with as many hops as fit, and the choice of the block that it is for.

Nothing here sends a transaction.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from django.db.models import Q, QuerySet

from chains.encoding import HISTORY_CONTRACT
from chains.nodes.node_errors import ChainError, InvalidReply, NodeUnavailable, RpcRefused
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.prices import NO_LOAD
from chains.tries import packed
from chains.tries.header import Header
from chains.tries.packed import HISTORY_ADDRESS, AccountToProve, HeaderParts
from config.configured_chains import get_chains
from config.database import statements
from proving import sources
from proving.connections import OpenConnection
from proving.facts import Missing
from proving.models import Transaction, TransactionState
from proving.packing import packs
from proving.packing.gas import PARENT_HASH, of_header, of_hop, of_jump
from proving.packing.packs import Intent
from proving.paths import checkpoints, planning
from proving.paths.checkpoints import Jump
from proving.paths.planning import Hops, Path, TooFar
from proving.registries import deployments
from proving.registries.deployments import Call, in_one_call
from proving.sending import signing
from proving.sources import NotYet, Preparation, Start
from queries.models import ADMITTED_STATUSES, Block, Query, Sender, StepKind

# Bytes of a call without its trie nodes and headers. Packing makes no node longer.
_CALL_BYTES = 500
# Maximum number of other queries for which a path may stop.
_MOST_BESIDE = 1000


@dataclass(frozen=True)
class PathPart:
    """A part of a path to send now, in one transaction."""

    calls: Sequence[Call] = ()
    gas: int = 0
    """The expected gas of these calls."""
    jump: HeaderParts = ()
    """The parts that come before the header to which a jump leads."""
    arrives: bool = True
    """True if the registry trusts the hash of the path's block after these calls and the jump."""
    checkpoints: Sequence[Header] = ()
    """The blocks that hops lead over."""


class BranchUnavailable(NodeUnavailable):
    """No node or file has the branch that proves a jump."""


def find(
    connection: OpenConnection, target: Header, hints: Collection[int], *, awaits_branch: bool
) -> Path | Preparation | NotYet | TooFar:
    """Find a path to a header's hash. `hints` are as in `planning.survey`.

    With `awaits_branch`, a jump without its branch raises `BranchUnavailable`; otherwise another path is found. Raises
    `NodeUnavailable`, `RpcRefused`.
    """
    planned = planning.jump_to(connection, target) or planning.cheapest(connection, target, hints=hints)
    if isinstance(planned, Jump):
        try:
            return _jump(connection, target, planned)
        except NodeUnavailable as error:
            unavailable = BranchUnavailable(f"The data for a jump is not available. {error}")
        if awaits_branch and not planned.by_roots:
            raise unavailable
        try:
            planned = planning.survey(connection, target, hints=hints)
        except RpcRefused as refused:
            raise (unavailable if awaits_branch else refused) from None
        # Hops that only cost more than a jump through block roots are sent without delay.
        if awaits_branch and isinstance(planned, NotYet | TooFar):
            raise unavailable
    return planned if isinstance(planned, NotYet | TooFar) else begin(connection, planned)


def _jump(connection: OpenConnection, target: Header, jump: Jump) -> Jump | Preparation | NotYet:
    """Return the jump with its branch. Raises `NodeUnavailable` if no node or file has the branch."""
    from proving.paths import jumping  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

    # The branch comes first, because the other steps cost money.
    accepts_roots = jump.origin is not None and jumping.accepts_roots(connection)
    branch = jumping.branch_to(connection.source_rpc.chain, jump.origin, target, accepts_roots=accepts_roots)
    if isinstance(branch, NotYet):
        return branch
    if jump.start:
        begun = jumping.begin(connection, jump.start.number)
        if not isinstance(begun, Start):
            return begun
        # A chain vouches for its own blocks long enough, so a self-funded batch need not pay to keep the hash.
        jump = replace(jump, start=None if connection.is_self_funded and connection.is_own else begun)
    elif jump.origin and jump.origin.number != connection.registry.jump_origin:
        checkpoints.note_origin(connection.registry.row_id, jump.origin)
    return replace(jump, parts=[*([jump.origin.encode()] if jump.origin else []), branch])


def begin(connection: OpenConnection, path: Start | Hops) -> Start | Hops | Preparation | NotYet:
    """Complete the path with the calls of its block hash source, or return a transaction that must be sent first.

    Raises the errors of `survey`.
    """
    start = path.start if isinstance(path, Hops) else path
    if start is None:
        return path
    begun = sources.of(connection.config).begin(connection, start.number)
    return replace(path, start=begun) if isinstance(path, Hops) and isinstance(begun, Start) else begun


def next_part(connection: OpenConnection, path: Path, *, beside: Collection[int] = ()) -> PathPart:
    """Return the next part of a path that can begin, with as much of the path as fits one transaction.

    Hops stop at each block in `beside` that they pass. Raises `NodeUnavailable`, `RpcRefused`.
    """
    match path:
        case Hops():
            return _hop(connection, path, beside)
        case Jump(start=start, parts=parts):
            return PathPart(start.calls, start.gas, parts) if start else PathPart(jump=parts)
        case Start():
            return PathPart(path.calls, path.gas)


def next_transactions(
    connection: OpenConnection, block: Block, path: Path, *, target: Header, missing: Missing
) -> tuple[PathPart, Iterator[Intent]]:
    """Return the next part of a path that can begin, and its transactions.

    The first transaction sends the part. If the part ends at the block, this transaction also proves as many facts as
    fit, and the others prove the remaining facts. Raises `NodeUnavailable`, `RpcRefused`.
    """
    registry = connection.registry
    asking = frozenset(pk for queries in missing.values() for pk in queries)
    beside = _waiting_beside(block, asking)
    part = next_part(connection, path, beside=beside)
    queries = asking.union(*(beside.get(header.number, ()) for header in part.checkpoints[1:]))
    proofs: Iterator[Intent] = iter(())
    is_at_block = part.arrives and target.number == block.number
    gas = path_gas(connection, part, stores_hash=not is_at_block)
    if is_at_block:
        proofs = packs.intents(
            block,
            registry,
            missing,
            connection.prices,
            with_header=True,
            jump=part.jump,
            calls=part.calls,
            path_gas=gas,
        )
        first = replace(next(proofs), queries=queries, continued=(), extends=registry.row_id)
    else:
        jump = [(registry.contract.address, packed.encode_block_hash(part.jump))] if part.jump else []
        to, data = in_one_call(registry.multicall, [*part.calls, *jump])
        gas += connection.prices.call
        first = Intent(to, data, queries, extends=registry.row_id, path_gas=gas)
    least = first.least + packs.least_of_hops(len(part.checkpoints[1:]))
    return part, itertools.chain([replace(first, least=least)], proofs)


def intent_before(connection: OpenConnection, preparation: Preparation, queries: Collection[int]) -> Intent:
    """Return the transaction that a path needs before it can begin."""
    to, data = in_one_call(connection.registry.multicall, preparation.calls)
    return Intent(to, data, queries, extends=connection.registry.row_id, path_gas=preparation.gas)


def path_gas(connection: OpenConnection, part: PathPart, *, stores_hash: bool = False) -> int:
    """Return the expected gas of a part's calls and its jump."""
    return part.gas + int(connection.prices.gas_of(of_jump(part.jump, stores_hash=stores_hash)))


def _hop(connection: OpenConnection, path: Hops, beside: Collection[int]) -> PathPart:
    if path.start and path.is_to_parent:
        header = connection.source_rpc.known_header(path.origin)
        keep = connection.registry.contract.address, packed.encode_parent_hash([header.encode()])
        gas = path.start.gas + int(connection.prices.gas_of(PARENT_HASH))
        return PathPart([*path.start.calls, keep], gas)
    passed = [number for number in beside if path.target < number < path.origin]
    points = [*_unknown(connection, sorted(passed, reverse=True)), path.target]
    stops = planning.over(path.origin, points, connection.config.window)
    headers = connection.source_rpc.known_headers([path.origin, *stops][: packs.MAX_HOPS + 1])
    requests = [
        ProofRequest(at.number, at.hash, at.state_root, HISTORY_CONTRACT, [connection.history_slot(to.number)])
        for at, to in itertools.pairwise(headers)
    ]
    calls: list[Call] = []
    load, size = NO_LOAD, 0
    for place, answer in enumerate(connection.source_rpc.proofs(requests)):
        if isinstance(answer, ChainError):
            raise answer
        header, following = headers[place], headers[place + 1]
        account = _history_to_prove(connection, following, answer)
        block = header.number if place == 0 and path.start is None else header.encode()
        data = packed.encode(
            block,
            header.state_root,
            [account],
            history_window=connection.source_rpc.chain.history_window,
            takes_masks=connection.registry.takes_masks,
        )
        size += len(data) + _CALL_BYTES
        if calls and size > packs.MAX_BYTES:
            break
        calls.append((connection.registry.contract.address, data))
        load += of_hop(answer) + (NO_LOAD if isinstance(block, int) else of_header(header))
    reached = headers[: len(calls) + 1]
    arrives = reached[-1].number == path.target
    if not arrives:
        # The next transaction begins at the state root of the last block.
        data = packed.encode(reached[-1].encode(), reached[-1].state_root)
        calls.append((connection.registry.contract.address, data))
        load += of_header(reached[-1])
    start = path.start or Start(path.origin)
    return PathPart(
        [*start.calls, *calls],
        start.gas + int(connection.prices.gas_of(load)),
        arrives=arrives,
        checkpoints=reached,
    )


def _unknown(connection: OpenConnection, numbers: Sequence[int]) -> list[int]:
    """Return the blocks whose hashes the registry doesn't trust yet. Many blocks only wait for confirmations."""
    headers = checkpoints.headers(connection, numbers)
    blocks = [(header.number, header.hash) for header in headers]
    vouched = deployments.vouches(connection.destination_rpc, connection.registry, blocks)
    return [header.number for header, known in zip(headers, vouched, strict=True) if not known]


def _history_to_prove(connection: OpenConnection, following: Header, answer: VerifiedAccountProof) -> AccountToProve:
    """Return the proof of the history contract's slot at one block. The slot must hold the hash of `following`."""
    (slot,) = answer.slots
    if slot.value != int.from_bytes(following.hash):
        raise InvalidReply(
            f"Answers about block {following.number} contradict each other: its header has another hash than the "
            "history."
        )
    return AccountToProve(HISTORY_ADDRESS, 0, answer.nodes, history={slot.slot: slot.nodes})


def extending(connection: OpenConnection, seen: int) -> QuerySet[Transaction]:
    """Return the pending transaction that extends the registry's trust.

    There is at most one, because the next builds on it.

    `seen` is the newest observed block of the destination. A transaction in a later block counts as pending, because
    otherwise it would be paid for again.
    """
    senders = signing.senders(get_chains().chain(connection.config.destination_id))
    unseen = Q(state=TransactionState.PENDING) | Q(block_number__gt=seen)
    return Transaction.objects.filter(unseen, extends=connection.registry.row_id, signer__address__in=senders)


# --- Blocks that wait for a path --------------------------------------------------------------------------------------


def _waiting_beside(block: Block, queries: Collection[int]) -> Mapping[int, Collection[int]]:
    """Return other queries (ids) of the same batch that wait for block hashes, by block number.

    Empty if `queries` belong to several batches, because each batch would pay for the stops of the others.
    """
    batches = set(Query.objects.filter(pk__in=queries).order_by().values_list("batch", flat=True).distinct()[:2])
    if len(batches) > 1:
        return {}
    waiting = _waiting(block).exclude(block=block).filter(batch__in=batches).order_by("pk")
    by_number: dict[int, list[int]] = defaultdict(list)
    for pk, number, timestamp in waiting.values_list("pk", "block__number", "timestamp")[:_MOST_BESIDE]:
        # A block's end is only known from the next block's header.
        by_number[number if timestamp is None else number + 1].append(pk)
    return by_number


def give_way(block: Block, batches: Collection[str]) -> None:
    """Let other blocks on the connection go first for a path, until blocks of these batches ask for a path again."""
    waiting = _waiting(block).filter(batch__in=batches).order_by().values("block")
    rows = Block.objects.filter(pk__in=waiting, waits_for_path=True)
    statements.retried(partial(rows.update, waits_for_path=False))


def first_for_path(blocks: Sequence[Block]) -> int | None:
    """Return the block (id) that gets the connection's next path: the lowest block of the oldest batch.

    Candidates are these blocks, and other blocks that wait for a path and haven't failed.
    """
    others = Q(block__waits_for_path=True, block__attempts=0, block__due_at__isnull=False)
    waiting = _waiting(blocks[0]).filter(Q(block__in=blocks) | others, batch__sender=Sender.OPERATOR)
    return waiting.order_by("batch", "block__number").values_list("block", flat=True).first()


def _waiting(block: Block) -> QuerySet[Query]:
    """Return the queries of the block's connection that may need a header."""
    return Query.objects.filter(
        step__in=[StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED],
        block__destination_chain_id=block.destination_chain_id,
        block__source_chain_id=block.source_chain_id,
        batch__status__in=ADMITTED_STATUSES,
    )
