"""The way to a block's hash, where the destination doesn't vouch for it: planned, sent, shared with others, shown."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from chains.header import Header
from chains.rpc import Block as BlockName
from proving.heads import poll_seconds
from proving.models import Transaction
from proving.paths import checkpoints, planning
from proving.reconcile.look import QUERIES_PER_LOOK, Look, Missing, TooDear, Wait
from proving.registry import deployments, packing
from proving.registry.contract import in_sequence
from proving.sources import NotYet, Preparation
from proving.transactions.sending import Intent
from queries.models import BatchStatus, Block, Query, StepKind
from queries.rejection_codes import RejectionCode

# By registry: the newest way, and to whom another user's has given way since. A process that is killed forgets it.
_given: dict[int, tuple[int | None, set[int | None]]] = {}

_EXTENDING = "Waiting for the transaction by which the registry comes to trust further blocks."


@dataclass
class Approach:
    """Of one look."""

    look: Look
    planned: planning.Plan | None = None

    def header_to_vouch_for(self, *, timed: bool) -> Header:
        """The block's own, or the one after it, which alone binds when the block ended."""
        if not timed:
            assert self.look.block.header_rlp is not None, "INITIAL_STATE is completed"
            return Header.decode(bytes(self.look.block.header_rlp))
        following = self.look.source.header(self.look.block.number + 1)
        if following is None:
            raise Wait(f"Waiting for the block after {self.look.block.number}.", poll_seconds(self.look.source.chain))
        return following

    def is_extending(self) -> bool:
        return planning.extending(self.look.connection, self.look.heads.latest.number).exists()

    def vouched(self, header: Header) -> bool:
        # A pending way may still fail, or be emptied, and what was sent behind it would fail with it.
        at: BlockName = "latest" if self.is_extending() else "pending"
        return deployments.vouches(self.look.rpc, self.look.registry, [(header.number, header.hash)], at=at)[0]

    def plan(self, target: Header, asking: QuerySet[Query]) -> planning.Plan:
        """A way that can begin. Raises `Wait` where none can now; rejects who asks where it is too long."""
        if self.planned is not None and self.planned.target == target.number:
            return self.planned
        try:
            plan = planning.survey(
                self.look.connection, target.number, keep=self.look.lease.extend, others=self.others_waiting()
            )
            begun = planning.begin(self.look.connection, plan)
        except NotYet as not_yet:
            pause = max(poll_seconds(self.look.destination), poll_seconds(self.look.source.chain))
            raise Wait(str(not_yet), pause) from None
        except planning.TooFar as too_far:
            self.look.reject(asking, RejectionCode.BLOCK_TOO_OLD, str(too_far))
            raise Wait(str(too_far), 0) from None
        if isinstance(begun, Preparation):
            to, data = in_sequence(self.look.registry.sequence, begun.calls)
            ids = set(asking.values_list("pk", flat=True)[:QUERIES_PER_LOOK])
            while True:
                try:
                    self.look.submit([Intent(to, data, ids, extends=self.look.registry.row_id)])
                    break
                except TooDear as dear:
                    # Whoever can't pay now holds up nobody who can.
                    able = ids.difference(asking.filter(batch__in=dear.batches).values_list("pk", flat=True))
                    if not able or able == ids:
                        raise
                    ids = able
            raise Wait(
                "Waiting for the transaction that records the block's hash.", poll_seconds(self.look.destination)
            )
        self.note(left=plan.length, unit=plan.unit)
        self.planned = begun
        return begun

    def wanting_hashes(self) -> QuerySet[Query]:
        """Open queries of this connection, for which hashes of blocks may still be wanted."""
        return Query.objects.filter(
            is_admitted=True,
            step__in=[StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED],
            block__destination_chain_id=self.look.block.destination_chain_id,
            block__source_chain_id=self.look.block.source_chain_id,
            batch__status__in=[BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS],
        )

    def others_waiting(self) -> list[int]:
        """Blocks of this connection whose hashes are wanted too."""
        waiting = self.wanting_hashes().exclude(block=self.look.block)
        named = waiting.order_by().values_list("block__number", "timestamp").distinct()[:QUERIES_PER_LOOK]
        return sorted({number if timestamp is None else number + 1 for number, timestamp in named})

    def note(self, *, left: int, unit: str = "") -> None:
        """Show how far the way is; remember the block itself when it is at its end."""
        block = self.look.block
        length = max(block.way_length, left) if unit in {"", block.way_unit} else left
        arrived = block.is_waypoint or not unit
        shown = (unit or block.way_unit, length, left, arrived)
        if shown != (block.way_unit, block.way_length, block.way_left, block.is_waypoint):
            with self.look.lease.writing() as fresh:
                fresh.way_unit, fresh.way_length, fresh.way_left, fresh.is_waypoint = shown
                fresh.save(update_fields=["way_unit", "way_length", "way_left", "is_waypoint"])

    def extend(self, target: Header, needing: Missing) -> None:
        """Send the next transaction of the way to a header's hash, and what needs it. Raises `Wait` at its end."""
        self.wait()
        self.give_way()
        asking = {pk for pks in needing.values() for pk in pks}
        plan = self.plan(target, self.look.open().filter(pk__in=asking))
        others: Collection[int] = self.others_waiting()
        while True:
            try:
                self.go(plan, target, needing, others=others)
                break
            except TooDear as dear:
                # Whoever can't pay now holds up nobody who can, be it one of the others or of those here.
                able = self.look.without(needing, dear.batches)
                if not able or (able == needing and not others):
                    raise
                needing, others = able, ()
        raise Wait(_EXTENDING, poll_seconds(self.look.destination))

    def go(self, plan: planning.Plan, target: Header, needing: Missing, *, others: Collection[int]) -> None:
        way = planning.go(self.look.connection, plan, others=others)
        proof = self.proof_behind(way, target, needing)
        to, data = in_sequence(self.look.registry.sequence, [*way.calls, *([(proof.to, proof.data)] if proof else [])])
        queries = {*(pk for pks in needing.values() for pk in pks), *self.queries_at(way.riders)}
        accumulates = proof.accumulates if proof else None
        intent = Intent(
            to, data, queries, accumulates=accumulates, extends=self.look.registry.row_id, leads_to=self.look.block
        )
        self.look.submit([intent], and_store=lambda _: checkpoints.note(self.look.connection, way.waypoints))

    def proof_behind(self, way: planning.Way, target: Header, needing: Missing) -> Intent | None:
        """What can be proven in the same transaction, because the way ends in it at the block itself."""
        if not way.arrives or target.number != self.look.block.number:
            return None
        packed = packing.intents(
            self.look.block,
            self.look.registry.contract,
            needing,
            header=target.encode(),
            beside=sum(map(len, way.data)),
        )
        return next(iter(packed), None)

    def wait(self) -> None:
        """Raises `Wait` while one is on its way, which may bring what is needed, and for a while after one failed."""
        if self.is_extending():
            raise Wait(_EXTENDING, poll_seconds(self.look.destination))
        if pause := planning.pause_after_failures(self.look.connection):
            raise Wait("The last transaction for the registry's trust reverted; trying again more slowly.", pause)

    def give_way(self) -> None:
        """Raises `Wait` while a user waits whose last way is longer ago. One at a time is sent, so users take turns."""
        block = self.look.block
        waiting = Block.objects.filter(
            destination_chain_id=block.destination_chain_id,
            source_chain_id=block.source_chain_id,
            waiting_for=_EXTENDING,
            due_at__isnull=False,
        ).exclude(turn_of=None)
        sent = Transaction.objects.filter(extends=self.look.registry.row_id)
        newest = sent.aggregate(pk=Max("pk"))["pk"]
        since, given = _given.get(self.look.registry.row_id, (None, set()))
        if since != newest:
            given = set()
        # Once between two ways: a user who can't pay has no more turns than the others, however many blocks wait.
        others = set(waiting.order_by().values_list("turn_of", flat=True).distinct()) - given
        last = dict(sent.order_by().values_list("leads_to__turn_of").annotate(Max("pk")))
        first = min({block.turn_of_id, *others}, key=lambda user: last.get(user, 0))
        if last.get(first, 0) == last.get(block.turn_of_id, 0):
            return
        _given[self.look.registry.row_id] = (newest, {*given, first})
        now = timezone.now()
        next_one = waiting.filter(turn_of=first).order_by("queue_at").values("pk")[:1]
        Block.objects.filter(pk__in=list(next_one.values_list("pk", flat=True))).update(due_at=now, queue_at=now)
        raise Wait(_EXTENDING, poll_seconds(self.look.destination))

    def queries_at(self, numbers: Collection[int]) -> list[int]:
        """Ids of the open queries for which the hashes of these blocks are wanted."""
        here = self.wanting_hashes().filter(
            Q(block__number__in=numbers, timestamp=None)
            | Q(block__number__in=[number - 1 for number in numbers], timestamp__isnull=False)
        )
        return list(here.order_by("pk").values_list("pk", flat=True)[:QUERIES_PER_LOOK])
