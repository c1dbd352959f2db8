"""Moves the queries of one source block through their steps, by comparing what should hold with what does.

`reconcile` looks at the source chain, the destination chain and the rows, completes every step whose condition is met,
and sends what is missing. It keeps no state of its own: run twice, killed anywhere or run by another worker, the next
look at the same chains leads to the same place. A reorganised chain is nothing special: what held no longer does.
"""

import itertools
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from chains.header import Header
from chains.rpc import Block as BlockName
from chains.rpc import NodeUnavailable, RpcRefused
from proving import facts, timestamps
from proving.facts import Fact, HeaderFact, RegistryView, TimeFact
from proving.heads import poll_seconds
from proving.models import LIVE_STATES, Transaction, TransactionState, proves_facts
from proving.reconcile import initial_state
from proving.reconcile.approach import Approach
from proving.reconcile.look import QUERIES_PER_LOOK, Look, Missing, ProofNotAccepted, TooDear, Wait
from proving.registry import packing
from proving.transactions import sending
from proving.transactions.sending import Intent
from proving.worker import turns
from queries import clock, leases, progress, submission
from queries.chunks import chunks
from queries.leases import Lease
from queries.models import BatchStatus, Block, Query, StepKind
from queries.rejection_codes import RejectionCode

logger = logging.getLogger(__name__)

# Rows written in one database transaction: other writers get their turn in between.
_QUERIES_PER_WRITE = 500
# Transactions sent in one go, under one lease of the signer.
_TRANSACTIONS_PER_LOOK = 16
# How long nodes may refuse to serve a proof before that is taken for final: they may be syncing, or lack the newest
# state for a moment.
_PROOF_PATIENCE = timedelta(minutes=10)


def reconcile(block_id: object) -> None:
    """Bring the queries of a block as far as the chains allow. Does nothing while another worker does."""
    lease = leases.claim(Block.objects.all(), block_id)
    if lease is None:
        return
    try:
        pause = _Work.at(lease).advance()
        _release(lease, "", pause, attempts=0)
    except leases.LeaseLost:
        return
    except Wait as wait:
        _release(lease, str(wait), wait.seconds, attempts=0)
    except (NodeUnavailable, RpcRefused, initial_state.ProofRefused, ProofNotAccepted) as error:
        _fail(lease, str(error))
    except Exception:
        _fail(lease, "An error of this service, which has been logged.")
        raise


def _fail(lease: Lease[Block], why: str) -> None:
    attempts = lease.row.attempts
    seconds = leases.backoff(attempts).total_seconds()
    logger.warning("%s waits: %s Next try in %.0f s.", lease.row, why, seconds)
    progress.note_failure(list(lease.row.open_queries().values_list("pk", flat=True)), why)
    _release(lease, why, seconds, attempts=attempts + 1)


def _release(lease: Lease[Block], sentence: str, seconds: float | None, *, attempts: int) -> None:
    """Give the block back, due again after so many seconds; with None not at all, unless a new query came meanwhile."""
    try:
        with lease.writing() as block:
            if seconds is None and block.open_queries().exists():
                seconds = 0
            due_at: datetime | None = None if seconds is None else timezone.now() + timedelta(seconds=seconds)
            Block.objects.filter(pk=block.pk).update(
                waiting_for=sentence, queue_at=due_at or block.queue_at, turn_of=turns.whose(block)
            )
            lease.release(due_at, attempts=attempts)
    except leases.LeaseLost:
        pass


class _Work(Look):
    """One look at one block. The order of the methods is the order of the steps."""

    @cached_property
    def approach(self) -> Approach:
        return Approach(self)

    def advance(self) -> float | None:
        """Returns after how many seconds to look again, or None when nothing can change any more."""
        self.take_back_what_was_reorganised()
        if self.open().exists():
            unfetched = self.fetch()
            trusted = self.check_header()
            self.send(self.check_facts(trusted=trusted), trusted=trusted)
            if unfetched:
                raise unfetched
        if self.open().exists():
            raise Wait(self.what_is_under_way(), poll_seconds(self.destination))
        # All is done, or rejected. It stays done only as long as the destination keeps the block that holds it.
        if self.block.checked_number is None or self.block.checked_number <= self.heads.final:
            return None
        return self.destination.block_seconds * 2

    def not_under_way(self) -> QuerySet[Query]:
        """Open queries for which no transaction is on its way, nor in a block that this look doesn't see yet."""
        unseen = Q(state__in=LIVE_STATES) | Q(block_number__gt=self.heads.confirmed.number)
        under_way = Transaction.objects.filter(unseen, proves_facts("queries__block"), queries=OuterRef("pk"))
        return self.open().exclude(step=StepKind.INITIAL_STATE).filter(~Exists(under_way)).order_by("pk")

    # --- When the destination was reorganised -------------------------------------------------------------------------

    def take_back_what_was_reorganised(self) -> None:
        """If the block in which the facts were last read is gone, look again and reopen what is missing."""
        block = self.block
        if block.checked_number is None:
            return
        header = self.rpc.header(block.checked_number)
        if header is None or self.heads.confirmed.number < block.checked_number:
            # Less than was seen before is a node that lags; only another block at that height is a reorg.
            raise Wait(
                f"The node of chain {self.destination.id} is behind block {block.checked_number}, which was seen "
                "before; waiting for it.",
                poll_seconds(self.destination),
            )
        if "0x" + header.hash.hex() == block.checked_hash:
            return
        reason = f"Chain {self.destination.id} was reorganised: block {block.checked_number} is another one now."
        seen = Query.objects.filter(block=block).exclude(batch__status__in=[BatchStatus.REJECTED, BatchStatus.RECEIVED])
        if not self.trusts(self.read([])):
            proven = seen.filter(Q(step__isnull=True) | Q(step=StepKind.ACCOUNT_ACCUMULATED))
            self.reopen(list(proven.values_list("pk", flat=True)), StepKind.HEADER_ACCUMULATED, reason)
        else:
            for chunk in chunks(list(seen.filter(step__isnull=True)), QUERIES_PER_LOOK):
                gone = {pk for asking in self.missing(chunk, self.read(chunk)).values() for pk in asking}
                of_header = [query.pk for query in chunk if query.pk in gone and not query.address]
                self.reopen(of_header, StepKind.HEADER_ACCUMULATED, reason)
                self.reopen(sorted(gone.difference(of_header)), StepKind.ACCOUNT_ACCUMULATED, reason)
        with self.lease.writing() as fresh:
            self.note_checked(fresh)

    def reopen(self, queries: Sequence[int], step: StepKind, reason: str) -> None:
        for chunk in chunks(queries, _QUERIES_PER_WRITE):
            with self.lease.writing():
                progress.reopen(chunk, step, reason=reason)
        self.lease.extend()

    def note_checked(self, block: Block) -> None:
        """Remember in which block of the destination what is completed was seen. With what completes it, or never."""
        confirmed = self.heads.confirmed
        block.checked_number, block.checked_hash = confirmed.number, "0x" + confirmed.hash.hex()
        block.save(update_fields=["checked_number", "checked_hash"])

    # --- INITIAL_STATE ------------------------------------------------------------------------------------------------

    def fetch(self) -> Exception | None:
        """Complete the step where a proof can be had; returns why not, for the rest: it holds up none of the others."""
        header = self.source.header(self.block.number)
        if header is None:
            chain = self.source.chain
            raise Wait(f"Block {self.block.number} of chain {chain.id} is not there; waiting.", poll_seconds(chain))
        initial_state.take_header(self.lease, header)
        self.reject_what_the_header_lacks(header)
        problem = initial_state.fetch_proofs(self.lease, self.source)
        refused = isinstance(problem, initial_state.ProofRefused)
        now = clock.last_read() or timezone.now()
        since = (self.block.refused_since or now) if refused else None
        if since != self.block.refused_since:
            with self.lease.writing() as block:
                block.refused_since = since
                block.save(update_fields=["refused_since"])
        if since is None or now - since < _PROOF_PATIENCE:
            return problem
        waiting = self.open().filter(step=StepKind.INITIAL_STATE)
        reason = f"No node of chain {self.source.chain.id} serves usable proofs at block {self.block.number}. {problem}"
        self.reject(waiting, RejectionCode.PROOF_UNAVAILABLE, reason, retryable=True)
        return None

    def reject_what_the_header_lacks(self, header: Header) -> None:
        """Later forks have added fields: an older block's header can't prove them. Nor can one of another layout."""
        asking = self.open().filter(step=StepKind.INITIAL_STATE, address="")
        for query in asking:
            if lacking := facts.lacking(header, query.header_fields):
                reason = facts.why_lacking(self.source.chain.id, header, lacking)
                self.reject(asking.filter(pk=query.pk), RejectionCode.HEADER_PROPERTY_MISSING, reason)

    # --- BLOCKHASH_AVAILABLE and HEADER_ACCUMULATED -------------------------------------------------------------------

    def check_header(self) -> bool:
        """Whether the registry trusts the block's state root, at the required confirmations."""
        view = self.read([])
        trusted = self.trusts(view)
        if trusted:
            self.approach.note(left=0)
        elif self.not_under_way().exists():
            self.check_block_hash(view)
        self.complete(self.open(), StepKind.BLOCKHASH_AVAILABLE)
        if trusted:
            # What asks for facts of the header itself completes this step when those are read back.
            plain = self.open().exclude(address="").filter(timestamp=None)
            self.complete(plain, StepKind.HEADER_ACCUMULATED, transaction_hash=self.accumulated_by())
        return trusted

    def accumulated_by(self) -> str:
        """Hash of the transaction that accumulated the header, or empty if it wasn't one of ours."""
        accumulating = Transaction.objects.filter(
            accumulates=self.block, to__in=self.registry.addresses, succeeded=True
        ).order_by("pk")
        return accumulating.values_list("hash", flat=True).first() or ""

    def check_block_hash(self, view: RegistryView) -> None:
        """Raises `Wait` while there is no way to the block's hash; rejects when it is too long."""
        if any(view.state_root):
            raise Wait(
                f"The registry holds another state root for block {self.block.number} than the source chain has now; "
                "waiting for the two to agree again.",
                poll_seconds(self.destination),
            )
        target = self.approach.header_to_vouch_for(timed=self.not_under_way().exclude(timestamp=None).exists())
        if self.approach.vouched(target):
            if self.block.way_left:
                self.approach.note(left=0)
            return
        if self.trusts(self.read([], at="latest")):
            return  # It only waits for confirmations.
        self.approach.wait()
        self.approach.plan(target, self.not_under_way())

    # --- Facts --------------------------------------------------------------------------------------------------------

    def check_facts(self, *, trusted: bool) -> dict[Fact, list[int]]:
        """Complete the queries whose facts all read back as proven. Returns the missing ones, and who asks for them."""
        queries = list(self.not_under_way()[:QUERIES_PER_LOOK])
        # Facts are only stored below a trusted state root; before there is no need to ask.
        view = self.read(queries) if trusted else RegistryView(bytes(32), {})
        missing = self.missing(queries, view)
        lacking = {pk for asking in missing.values() for pk in asking}
        held = [query.pk for query in queries if query.pk not in lacking]
        hashes = dict(self.proven_by(held))
        by_transaction = defaultdict(list)
        for pk in held:
            by_transaction[hashes.get(pk, "")].append(pk)
        for tx_hash, pks in by_transaction.items():
            told = {"transaction_hash": tx_hash}
            self.complete(self.open().filter(pk__in=pks), StepKind.HEADER_ACCUMULATED, **told)
            self.complete(self.open().filter(pk__in=pks), StepKind.ACCOUNT_ACCUMULATED, **told)
        if trusted:
            # Accounts of a block that a time selected: once the time is proven, only they are still to come.
            untimed = {pk for fact, asking in missing.items() if isinstance(fact, TimeFact) for pk in asking}
            timed = self.open().exclude(address="").filter(pk__in=lacking - untimed)
            self.complete(timed, StepKind.HEADER_ACCUMULATED, transaction_hash=self.accumulated_by())
        under_way = self.facts_under_way() if missing else set()
        return {fact: asking for fact, asking in missing.items() if fact not in under_way}

    def proven_by(self, queries: Collection[int]) -> Iterator[tuple[int, str]]:
        """(query id, hash) of the mined transactions that proved the queries to this registry."""
        sent_here = Transaction.queries.through.objects.filter(transaction__to__in=self.registry.addresses)
        for chunk in chunks(sorted(queries), _QUERIES_PER_WRITE):
            proving = proves_facts("query__block", "transaction")
            mined = sent_here.filter(proving, query__in=chunk, transaction__succeeded=True).order_by("pk")
            yield from mined.values_list("query", "transaction__hash")

    def facts_under_way(self) -> set[Fact]:
        """What transactions on their way may prove already, for other queries: nothing is paid twice."""
        links = Transaction.objects.filter(
            proves_facts("queries__block"), queries=OuterRef("pk"), state__in=LIVE_STATES
        )
        sent_for = Query.objects.filter(Exists(links), block=self.block)
        return {fact for query in sent_for.iterator(chunk_size=QUERIES_PER_LOOK) for fact in facts.of(query)}

    def missing(self, queries: Sequence[Query], view: RegistryView) -> dict[Fact, list[int]]:
        """The facts that the registry doesn't hold, with the ids of the queries that ask for them.

        Raises `ProofNotAccepted` where it holds another value than was proven here.
        """
        missing: dict[Fact, list[int]] = defaultdict(list)
        for chunk in chunks(queries, _QUERIES_PER_WRITE):
            wanted = {query.pk: facts.of(query) for query in chunk}
            proven = facts.proven(self.block, [fact for asked in wanted.values() for fact in asked])
            for pk, asked in wanted.items():
                for fact in asked:
                    word = view.facts.get(fact)
                    if word is None:
                        missing[fact].append(pk)
                    elif isinstance(fact, TimeFact) and word != proven[fact]:
                        # Of the two chains that a reorg made, ours may be the one that is gone.
                        missing[fact].append(pk)
                    elif word != proven.get(fact):
                        raise ProofNotAccepted(
                            f"The registry holds another value than was proven here, of {fact}; its operator must look "
                            "into it."
                        )
        return missing

    # --- Sending ------------------------------------------------------------------------------------------------------

    def send(self, missing: Missing, *, trusted: bool) -> None:
        """Send what proves the missing facts. Of those that carry the header only one: the others wait for it."""
        if not missing:
            return None
        poll = poll_seconds(self.destination)
        self.back_off_after_reverts(sorted({pk for queries in missing.values() for pk in queries}))
        trusted = trusted or self.trusts(self.read([], at="latest"))
        accumulating = Transaction.objects.filter(accumulates=self.block, state__in=LIVE_STATES).exists()
        if accumulating and not trusted:
            raise Wait("Waiting for the transaction that accumulates the header.", poll)
        missing = self.with_header_vouched(missing, trusted=trusted)
        while True:
            try:
                return self.submit(self.intents(missing, trusted=trusted))
            except TooDear as dear:
                # Whoever can't pay now holds up nobody who can.
                missing = self.without(missing, dear.batches)
                if not missing:
                    raise

    def with_header_vouched(self, missing: Missing, *, trusted: bool) -> Missing:
        """What can be sent of it now: what is not below a trusted state root needs a header whose hash is vouched for.

        Where nothing can, the next transaction of the way there is sent, and `Wait` raised.
        """
        needing = {fact: pks for fact, pks in missing.items() if not trusted or isinstance(fact, HeaderFact | TimeFact)}
        if not needing:
            return missing
        target = self.approach.header_to_vouch_for(timed=any(isinstance(fact, TimeFact) for fact in needing))
        if self.approach.vouched(target):
            return missing
        rest = {fact: pks for fact, pks in missing.items() if fact not in needing}
        if not rest:
            self.approach.extend(target, needing)
        return rest

    def find_time_again(self, timestamp: int, queries: Collection[int]) -> None:
        """A reorg has moved a time to another block: its queries go there. Raises `Wait`, whatever comes of it."""
        poll = poll_seconds(self.source.chain)
        head = self.source.head()
        if head.timestamp <= timestamp:
            raise Wait(f"Chain {self.source.chain.id} has no block later than the time {timestamp} any more.", poll)
        number = timestamps.block_at(self.source, timestamp, head, keep=self.lease.extend)
        if number is None or number == self.block.number:
            raise ProofNotAccepted(
                f"The registry holds another block for the time {timestamp} than {self.block.number}, which the source "
                "chain has; its operator must look into it."
            )
        reason = f"The source chain was reorganised: the time {timestamp} is now that of block {number}."
        with self.lease.writing() as block:
            pair = (block.source_chain_id, number)
            found = submission.find_blocks(block.destination_chain_id, {pair})[pair]
            progress.move(queries, found, reason=reason)
            Block.objects.filter(pk=found).update(due_at=timezone.now())
        raise Wait(reason, 0)

    def intents(self, missing: Missing, *, trusted: bool) -> list[Intent]:
        """The transactions to send now."""
        assert self.block.header_rlp is not None, "INITIAL_STATE is completed"
        header, registry = bytes(self.block.header_rlp), self.registry.contract
        times = {fact.timestamp: asking for fact, asking in missing.items() if isinstance(fact, TimeFact)}
        for timestamp, asking in times.items():
            following = self.approach.header_to_vouch_for(timed=True)
            if not (self.block.timestamp or 0) <= timestamp < following.timestamp:
                self.find_time_again(timestamp, asking)
            if following.parent_hash != bytes.fromhex(self.block.hash[2:]):
                raise Wait("The source chain is being reorganised.", poll_seconds(self.source.chain))
            data = registry.prove_timestamp(header, following.encode(), timestamp)
            # It accumulates the header as well: the rest can follow without it.
            return [Intent(registry.address, data, asking, accumulates=self.block)]
        # Fields of the header can only be proven by the header itself.
        with_header = not trusted or any(isinstance(fact, HeaderFact) for fact in missing)
        packed = packing.intents(self.block, registry, missing, header=header if with_header else None)
        return list(itertools.islice(packed, 1 if with_header else _TRANSACTIONS_PER_LOOK))

    def back_off_after_reverts(self, queries: Sequence[int]) -> None:
        """A transaction that reverted although its simulation did not costs gas each time: not again at once."""
        reverted = (
            Transaction.objects.filter(queries__in=queries[:_QUERIES_PER_WRITE], succeeded=False).distinct().count()
        )
        if self.block.attempts < reverted:
            raise ProofNotAccepted(f"{reverted} transactions for this block reverted; trying again more slowly.")

    def what_is_under_way(self) -> str:
        """A sentence about the transaction that the open queries wait for, whichever of them it was sent for."""
        live = Transaction.objects.filter(queries__block=self.block, state__in=LIVE_STATES)
        tx = live.defer("data").order_by("-pk").prefetch_related("versions").first()
        if tx is None:
            return ""
        tx_hash = sending.latest_hash(tx)
        if tx.state == TransactionState.PENDING:
            return f"Waiting for transaction {tx_hash} to be mined. {tx.last_error}".strip()
        return f"Transaction {tx_hash} is mined; waiting for confirmations."

    # --- Reading and writing ------------------------------------------------------------------------------------------

    def read(self, queries: Iterable[Query], *, at: BlockName | None = None) -> RegistryView:
        """What the registry holds about the facts of these queries, by default at the newest confirmed block."""
        wanted = [fact for query in queries for fact in facts.of(query)]
        when = self.heads.confirmed.number if at is None else at
        return facts.read(self.rpc, self.registry.contract, self.block.number, wanted, at=when)

    def trusts(self, view: RegistryView) -> bool:
        return "0x" + view.state_root.hex() == self.block.state_root

    def complete(self, queries: QuerySet[Query], kind: StepKind, *, transaction_hash: str = "") -> None:
        for chunk in chunks(list(queries.filter(step=kind).values_list("pk", flat=True)), _QUERIES_PER_WRITE):
            with self.lease.writing() as block:
                progress.complete(chunk, kind, transaction_hash=transaction_hash)
                if kind in {StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED}:
                    self.note_checked(block)
