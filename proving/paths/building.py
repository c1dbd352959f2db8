"""The next transaction of a path: proofs of the history contract, or headers, as many as fit. It sends nothing."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from chains import history
from chains.header import Header
from chains.packed import HISTORY_ADDRESS, AccountToProve, encode_parent_hash
from chains.rpc import AccountProof, ChainError, InvalidReply, NodeUnavailable, ProofRequest
from config.configured_chains import get_chains
from database import leases
from proving import sources
from proving.connections import OpenConnection
from proving.models import ParentFact, SignedTransaction, Transaction, TransactionState
from proving.paths import origins
from proving.paths.planning import MAX_RIDERS, Plan
from proving.registry import deployments, packing
from proving.registry.contract import Call
from proving.sources import NotYet, Preparation, Start
from proving.transactions import signing

# Beside what its trie nodes and headers take; packed, nodes are no longer than they were.
_CALL_BYTES = 500
# EIP-7825 bounds a transaction's gas at 16,777,216; the maximum that a hop and a walked header take.
_MAX_HOPS, _MAX_HEADERS = 40, 250
# Reverted transactions that are counted, and the pause after them in seconds.
_FAILURES = 10
_FIRST_PAUSE, _LONGEST_PAUSE = 10, 600


@dataclass(frozen=True)
class Leg:
    """A path segment to send now, in one transaction; and the blocks that the registry trusts afterwards."""

    plan: Plan
    calls: Sequence[Call]
    checkpoints: Sequence[Header] = ()
    riders: Sequence[int] = ()

    @property
    def data(self) -> Sequence[bytes]:
        """Return the calldata of each call."""
        return [data for _, data in self.calls]

    @property
    def parent_fact(self) -> ParentFact | None:
        """Return what the calls prove first about the parent chain of the source; None if they don't."""
        return self.plan.start.parent_fact if self.plan.start else None

    @property
    def arrives(self) -> bool:
        """Return whether the registry trusts the block's hash after these calls."""
        at_start = not self.plan.length and self.plan.origin == self.plan.target
        return at_start or any(header.number == self.plan.target for header in self.checkpoints)


def begin(connection: OpenConnection, plan: Plan) -> Plan | Preparation | NotYet:
    """Complete the plan with what its block hash source needs to begin; or return what to send before.

    Raises as `survey`.
    """
    if plan.start is None:
        return plan
    begin = origins.begin if plan.jump else sources.of(connection.config).begin
    start = begin(connection, plan.start.number)
    return replace(plan, start=start) if isinstance(start, Start) else start


def next_leg(connection: OpenConnection, plan: Plan, *, others: Collection[int] = ()) -> Leg:
    """Return the next transaction of a path that can begin: as much of it as fits.

    `others` are blocks that ride along where a hop passes them. Raises `NodeUnavailable`, `RpcRefused`.
    """
    calls: Sequence[Call] = plan.start.calls if plan.start else ()
    if plan.jump:
        # Whoever sends it has the branch.
        leg = Leg(plan, (), checkpoints=_headers(connection, [plan.target]))
    elif plan.hops:
        leg = _hop(connection, plan, others)
    elif plan.walk:
        leg = _walk(connection, plan, others)
    else:
        leg = Leg(plan, ())
    return replace(leg, calls=[*calls, *leg.calls])


def _hop(connection: OpenConnection, plan: Plan, others: Collection[int]) -> Leg:
    headers = _headers(connection, [plan.origin, *plan.hops][: _MAX_HOPS + 1])
    passed = _riders(connection, [header.number for header in headers], others)
    requests = [
        ProofRequest(
            at.number,
            at.hash,
            at.state_root,
            history.CONTRACT,
            [connection.history_slot(one) for one in (to.number, *riders)],
        )
        for (at, to), riders in zip(itertools.pairwise(headers), passed, strict=True)
    ]
    calls: list[Call] = []
    size = 0
    for place, answer in enumerate(connection.source_rpc.proofs(requests)):
        if isinstance(answer, ChainError):
            raise answer
        header, following = headers[place], headers[place + 1]
        account = _history_to_prove(connection, following, answer)
        block = header.number if place == 0 and plan.start is None else header.encode()
        data = connection.registry.contract.prove(
            block, header.state_root, [account], history_window=connection.source_rpc.chain.history_window
        )
        size += len(data) + _CALL_BYTES
        if calls and size > packing.MAX_BYTES:
            break
        calls.append((connection.registry.contract.address, data))
    taken = [rider for riders in passed[: len(calls)] for rider in riders]
    return Leg(plan, calls, checkpoints=headers[: len(calls) + 1], riders=taken)


def _riders(connection: OpenConnection, stops: Sequence[int], others: Collection[int]) -> list[list[int]]:
    """Return, for each hop, the waiting blocks whose hashes are in the state that it starts from."""
    riders: list[list[int]] = []
    passed = range(stops[-1] - connection.config.window, stops[0])
    waiting = _unknown(connection, sorted(set(others).intersection(passed).difference(stops), reverse=True))
    for at, _ in itertools.pairwise(stops):
        riders.append([one for one in waiting if at - connection.config.window <= one < at][:MAX_RIDERS])
        waiting = [one for one in waiting if one not in riders[-1]]
    return riders


def _unknown(connection: OpenConnection, numbers: Sequence[int]) -> list[int]:
    """Return the blocks whose hashes the registry does not trust yet: many wait for no more than confirmations."""
    headers = [header for header in connection.source_rpc.headers(numbers) if header is not None]
    asked = [(header.number, header.hash) for header in headers]
    vouched = deployments.vouches(connection.destination_rpc, connection.registry, asked)
    return [header.number for header, known in zip(headers, vouched, strict=True) if not known]


def _history_to_prove(connection: OpenConnection, following: Header, answer: AccountProof) -> AccountToProve:
    """Return what the history contract holds at one block: it must know the hash of `following`."""
    values = {slot.slot: slot.value for slot in answer.slots}
    if values[connection.history_slot(following.number)] != int.from_bytes(following.hash):
        raise InvalidReply(
            f"Answers about block {following.number} contradict each other: its header has another hash than the "
            "history."
        )
    hashes = {slot.slot: slot.nodes for slot in answer.slots if slot.value}
    return AccountToProve(HISTORY_ADDRESS, 0, answer.nodes, history=hashes)


def _walk(connection: OpenConnection, plan: Plan, others: Collection[int]) -> Leg:
    last = max(plan.target + 1, plan.origin - _MAX_HEADERS + 1)
    waiting = _unknown(
        connection, sorted(set(others).intersection(range(last, plan.origin)), reverse=True)[:MAX_RIDERS]
    )
    # The one whose hash becomes known comes too: the next transaction begins with it.
    *headers, following = _headers(connection, range(plan.origin, last - 2, -1))
    # A call for each of the others that it passes: it makes their hashes known, and the next one begins there.
    parts: list[list[bytes]] = [[]]
    points: list[Header] = []
    size = 0
    for header, parent in zip(headers, [*headers[1:], following], strict=True):
        if header.parent_hash != parent.hash:
            raise InvalidReply(
                f"Answers about block {parent.number} contradict each other: it is not the parent of the next one."
            )
        encoded = header.encode()
        size += len(encoded) + 1
        if size > packing.MAX_BYTES and parts[0]:
            following = header
            break
        parts[-1].append(encoded)
        if parent.number in waiting:
            points.append(parent)
            parts.append([])
            size += _CALL_BYTES
    calls = [(connection.registry.contract.address, encode_parent_hash(sent)) for sent in parts if sent]
    riders = [point.number for point in points]
    return Leg(plan, calls, checkpoints=[*points, following], riders=riders)


def _headers(connection: OpenConnection, numbers: Sequence[int]) -> list[Header]:
    headers = [header for header in connection.source_rpc.headers(numbers) if header is not None]
    if len(headers) < len(numbers):
        raise NodeUnavailable(f"A node of chain {connection.config.source_id} lacks headers that it must have.")
    return headers


def pause_after_failures(connection: OpenConnection) -> float:
    """Return the seconds to wait before the registry's trust is extended again. The more has reverted, the longer."""
    # One that was cancelled, because nobody wanted it any more, says nothing.
    cancelled = SignedTransaction.objects.filter(
        transaction=OuterRef("pk"), hash=OuterRef("hash"), is_cancellation=True
    )
    mined = Transaction.objects.filter(~Exists(cancelled), extends=connection.registry.row_id).exclude(succeeded=None)
    newest = mined.order_by("-pk")
    sent = list(newest.values_list("succeeded", "created_at")[:_FAILURES])
    failures = len(list(itertools.takewhile(lambda one: not one[0], sent)))
    if not failures:
        return 0
    # Bounded also where the clock was ahead when it was sent.
    pause = leases.backoff(failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    left = min(pause, sent[0][1] + pause - timezone.now())
    return max(0, left.total_seconds())


def extending(connection: OpenConnection, seen: int) -> QuerySet[Transaction]:
    """Return what is under way to extend the registry's trust: one transaction at a time, as the next builds on it.

    `seen` is the destination's newest block that was observed: what is in a later one would be paid again.
    """
    senders = signing.senders(get_chains().chain(connection.config.destination_id))
    unseen = Q(state=TransactionState.PENDING) | Q(block_number__gt=seen)
    return Transaction.objects.filter(unseen, extends=connection.registry.row_id, signer__address__in=senders)
