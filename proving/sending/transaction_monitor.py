"""Monitoring of transactions from the mempool to a final block, and back to pending after a reorg."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from hexbytes import HexBytes

from chains import rollups
from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError, InvalidReply, NodeUnavailable, RpcRefused, UnreadableHeader
from chains.nodes.questions import Receipt
from chains.nodes.rpc import RpcClient, result
from chains.prices import GasPrices, gas_of_calldata, prices_at
from chains.tries.header import Header
from config import logs
from config.configured_chains import get_chains, get_rpc
from config.database import due_rows, statements
from config.database.due_rows import Claim
from proving import failures, money, stops
from proving.models import (
    LIVE_STATES,
    WATCHED_STATES,
    FailureCause,
    SignedTransaction,
    Signer,
    StopCode,
    Transaction,
    TransactionState,
)
from proving.sending import foreign_nonces, signers
from proving.sending.replacement import fill, holds_key, is_past, push, raise_fees_after
from proving.sending.signing import show, show_signing_problems, sign_and_store
from proving.working import counters, destination_prices, lanes
from proving.working import heads as chain_heads
from proving.working.counters import ChainEvent
from proving.working.heads import Heads, poll_seconds
from proving.working.lanes import HeldLane, LaneKind, LaneLost, LaneName
from queries import batch_states, clock
from queries.models import Block, Query
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

# Seconds for which a command waits for its transactions.
WAIT_SECONDS = 600
_DAY = timedelta(days=1)
# Maximum signed bytes that aren't calldata.
_ENVELOPE_BYTES = 250
# After this number of consecutive implausible answers, a signer sends nothing until the operator allows it again.
_MOST_DOUBTFUL = 3
# The time in which another worker with the key may still sign a reserved version. It is longer than a lane is held.
_SIGNING = timedelta(seconds=2 * lanes.LONGEST_SECONDS)
# Maximum nonces of a gap that are used up at a time, and maximum final transactions that are reopened at a time.
_MOST_FILLED = 16
# Blocks after which a node that still lacks a receipt is wrong. Nodes behind a load balancer lack some for moments.
_DEEP_BLOCKS = 3
# The largest plausible data fee, as a multiple of the expected one or of the maximum for gas, whichever is larger.
_MOST_TIMES_DATA_FEE = 16
# Columns of a transaction that change with its state.
_COLUMNS = (
    *("state", "hash", "block_hash", "block_number", "succeeded", "gas_used", "gas_price", "data_fee"),
    *("spent_at", "error", "failure", "reserved_gwei"),
)


def monitor_all(lane: HeldLane, keys: Sequence[Any]) -> int:
    """Update the stored transactions of these signers from their chain.

    Return the number of signers that failed because of an internal error.
    """
    claim = lane.write(partial(due_rows.claim, Signer.objects.all(), keys), Signer.objects.filter(pk__in=keys))

    def work(signers: Sequence[Signer]) -> None:
        _monitor_one(lane, claim, signers[0])

    # Signers are processed one by one, so that a failure affects no other signer.
    give_up = partial(_try_again, lane, claim)
    return sum(lanes.work_on(lane, claim, [signer], work, give_up) for signer in claim.rows)


def _try_again(lane: HeldLane, claim: Claim[Signer], signer: Signer) -> None:
    pause = due_rows.backoff(signer.attempts)
    _write(lane, signer, and_then=lambda: claim.end([signer], pause, attempts=signer.attempts + 1))


def _monitor_one(lane: HeldLane, claim: Claim[Signer], signer: Signer) -> None:
    with counters.job_run("signer", signer=signer.address, chain=signer.chain_id) as job_run:
        try:
            chain = get_chains().chain(signer.chain_id)
            states, changes = _monitor(chain, get_rpc(chain.id), lane, signer)
            end = partial(_end, chain, claim, signer, states)
            _write(lane, signer, changes, and_then=end, is_last=len(claim.rows) == 1)
            job_run.outcome = "done"
        except (NodeUnavailable, RpcRefused) as error:
            job_run.outcome = "fails"
            logger.warning("transactions on chain %d wait: %s", signer.chain_id, error.for_operators)
            _try_again(lane, claim, signer)


def _note_reorganisation(chain_id: int, transactions: Sequence[Transaction]) -> None:
    """Mark the chain's transactions that were simulated before a reorganisation. If one fails now, that is why."""
    for tx in transactions:
        tx.failure = FailureCause.OUTDATED
    # Another signer's transactions may build on those that have left their blocks.
    pending = Transaction.objects.filter(signer__chain_id=chain_id, state=TransactionState.PENDING)
    pending.update(failure=FailureCause.OUTDATED)


def _end(chain: Chain, claim: Claim[Signer], signer: Signer, states: Collection[str]) -> None:
    """Make the signer due again while it has transactions to watch, in the caller's database transaction.

    `states` are those of the watched transactions. The caller has locked the signer.
    """
    if not states:
        # A worker that stores further transactions holds the signer's lock, so none is missed.
        states = set(_watched(signer).order_by().values_list("state", flat=True).distinct())
    lively = not set(LIVE_STATES).isdisjoint(states)
    seconds = chain_heads.seconds_to_next(chain, get_rpc(chain.id)) if lively else chain.block_seconds * 2
    # The next turn withdraws a problem that is over. While a signer has one, nothing else makes it due.
    in_trouble = Signer.objects.exclude(signing_problem=None, nonce_fault=None, receipt_fault=None)
    is_left = states or in_trouble.filter(pk=signer.pk).exists()
    claim.end([signer], timedelta(seconds=seconds) if is_left else None)


def monitor_for(chain: Chain, seconds: float | None = None, *, pause: float = 0.5) -> Iterator[None]:
    """Monitor the chain's signers repeatedly for so many seconds, and at least once. `pause` is the longest pause.

    None: for `WAIT_SECONDS`.

    Commands that wait for transactions use it, in case no worker runs.
    """
    deadline = time.monotonic() + (WAIT_SECONDS if seconds is None else seconds)
    # Nodes that are behind rest from now on.
    chain_heads.read(chain, get_rpc(chain.id))
    while True:
        # If another worker has the lane, it monitors the signers.
        with suppress(LaneLost), lanes.hold(LaneName(LaneKind.DESTINATION, chain.id)) as lane:
            if lane is not None:
                rows = due_rows.without_resting(Signer.objects.filter(chain_id=chain.id))
                monitor_all(lane, list(rows.values_list("pk", flat=True)))
        yield
        if time.monotonic() >= deadline:
            return
        time.sleep(min(pause, poll_seconds(chain)))


def _watched(signer: Signer) -> QuerySet[Transaction]:
    """Return the transactions that the chain can still change.

    A displaced transaction is watched for a day, because only one node reported that its nonce was used otherwise.
    """
    recent = Q(state=TransactionState.DISPLACED, spent_at__gt=timezone.now() - _DAY)
    return signer.transactions.filter(recent | Q(state__in=WATCHED_STATES))


def _monitor(
    chain: Chain, rpc: RpcClient, lane: HeldLane, signer: Signer
) -> "tuple[Collection[str], Sequence[_Change]]":
    """Return the states of the watched transactions, and the changes that aren't written yet."""
    rows = _watched(signer).order_by("nonce")
    watched = list(rows.defer("data").prefetch_related("versions"))
    if not watched:
        _show_faults(signer, nonce=None, receipt=None)
        show_signing_problems({signer.address: signer}, {})
        return (), ()
    # Receipts are requested by hash, so reserved versions are signed first. In a restored backup they may lack hashes.
    sign_and_store(chain, lane, [version for tx in watched for version in tx.versions.all()])
    began = time.monotonic()
    newest, nonces, answers = rpc.ask(chain_heads.QUESTIONS, [questions.nonce(signer.address)], _questions_of(watched))
    heads, used = chain_heads.note(chain, rpc, newest, began), result(nonces[0])
    receipts = _Receipts(rpc, watched, answers, [heads.latest, heads.confirmed])
    comparison = _compare(rpc, signer, watched, receipts, latest=heads.latest, used=used)
    used = comparison.used
    lowest_open, doubtful, receipt_fault = True, 0, comparison.receipt_fault
    if left := [tx for tx in watched if tx.block_number is not None and receipts.has_left_its_block(tx)]:
        pending = [tx for tx in watched if tx.state == TransactionState.PENDING]
        _write(lane, signer, and_then=partial(_note_reorganisation, chain.id, [*left, *pending]))
    # Nonces ascend, so mined transactions come before pending ones, and are written before those are sent again.
    changes: list[_Change] = []
    for tx in watched:
        with logs.about(transaction=tx.latest_hash, nonce=tx.nonce):
            receipt = receipts.canonical(tx)
            # A refusal may pass. For example, geth refuses receipts of unknown transactions while it indexes.
            if isinstance(receipt, RpcRefused) and _is_open(tx, used):
                receipt = None
            if isinstance(receipt, ChainError):
                # An unusable receipt doesn't keep other nonces from being monitored.
                if not isinstance(receipt, RpcRefused) or _is_deep(rpc, tx, heads.latest):
                    fault = _note_problem(chain, tx, receipt)
                    receipt_fault = receipt_fault or fault
                doubtful += isinstance(receipt, ImplausibleReceipt)
                continue
            if change := _change(rpc, tx, receipt, receipts, heads=heads, used=used):
                changes.append(change)
                # One that no node took was signed with a nonce that had been used before.
                is_doubtful = tx.was_taken and not comparison.is_of_several
                doubtful += tx.state == TransactionState.DISPLACED and is_doubtful
            elif _is_open(tx, used):
                _write_all(lane, signer, changes)
                is_pending = tx.state == TransactionState.PENDING
                prices = destination_prices.of(rpc, heads.latest)
                push(chain, rpc, lane, tx, prices, may_raise=lowest_open and is_pending)
                lowest_open = lowest_open and not is_pending
    if doubtful or any(tx.state == TransactionState.PENDING for tx in watched):
        _write_all(lane, signer, changes)
    _stop_where_doubtful(signer, doubtful)
    mended = _mend_nonces(chain, rpc, lane, signer, watched, latest=heads.latest, used=used)
    nonce_fault = mended or comparison.nonce_fault
    _show_faults(signer, nonce=nonce_fault, receipt=receipt_fault)
    # Final transactions are no longer watched.
    return {tx.state for tx in watched} - {TransactionState.FINAL}, changes


@dataclass
class _Comparison:
    """The nonce that the signer uses next by the lowest answer, and how the nodes' answers differ."""

    used: int
    nonce_fault: WaitReason | None = None
    receipt_fault: WaitReason | None = None
    is_of_several: bool = False
    """True if several nodes have told the nonce, so that no lie of one of them shows it as used."""


def _compare(
    rpc: RpcClient,
    signer: Signer,
    watched: Sequence[Transaction],
    receipts: "_Receipts",
    *,
    latest: Header,
    used: int,
) -> _Comparison:
    """Ask each node if a receipt is missing or unusable, or if the next nonce is above those of our transactions.

    `receipts` take over what another node tells. No nonce is used that one node calls unused, so that its transaction
    is kept.
    """
    comparison = _Comparison(used)
    if len(rpc.chain.rpc_urls) < 2:
        return comparison
    missing = [tx for tx in watched if receipts.lacks(tx, used)]
    lowest = next((tx for tx in watched if tx.state == TransactionState.PENDING and tx not in missing), None)
    if lowest and lowest.was_taken and is_past(lowest.newest.created_at, raise_fees_after(rpc.chain)):
        missing.append(lowest)  # Its fees are about to be raised.
    is_ahead = used > watched[-1].nonce + 1 and used > signers.next_stored(signer)
    if not missing and not is_ahead:
        return comparison
    told: dict[str, list[Any]] = rpc.ask_each([questions.nonce(signer.address), *_questions_of(missing)])
    nonces = {host: nonce for host, (nonce, *_) in told.items() if isinstance(nonce, int)}
    comparison.used, comparison.is_of_several = min([used, *nonces.values()]), len(nonces) > 1
    if is_ahead and len(set(nonces.values())) > 1:
        answers = " and ".join(f"{nonce} by {host}" for host, nonce in nonces.items())
        comparison.nonce_fault = wait("nonces_differ", chain=signer.chain_id, signer=signer.address, answers=answers)
    known = [header for header in receipts.headers.values() if isinstance(header, Header)]
    of_nodes = {host: _Receipts(rpc, missing, answers, known) for host, (_, *answers) in told.items()}
    for tx in missing:
        usable = {
            host: receipt for host, of_node in of_nodes.items() if isinstance(receipt := of_node.canonical(tx), Receipt)
        }
        # All nodes must say that a transaction failed, because it is sent again for money.
        having = [
            host for host in usable if usable[host].status == max(receipt.status or 0 for receipt in usable.values())
        ]
        if having:
            receipts.by_hash |= {tx_hash: of_nodes[having[0]].by_hash[tx_hash] for tx_hash in tx.hashes}
            receipts.headers |= of_nodes[having[0]].headers
        receipt = receipts.canonical(tx)
        lacking = ", ".join(of_nodes.keys() - having)
        if lacking and isinstance(receipt, Receipt) and receipt.block_number <= latest.number - _DEEP_BLOCKS:
            tx_hash, chain = tx.latest_hash, signer.chain_id
            comparison.receipt_fault = wait(
                "receipt_withheld", transaction=tx_hash, chain=chain, lacking=lacking, having=having[0]
            )
    return comparison


def _change(
    rpc: RpcClient, tx: Transaction, receipt: Receipt | None, receipts: "_Receipts", *, heads: Heads, used: int
) -> "_Change | None":
    """Return the change of a transaction. None: nothing has changed."""
    if receipt is not None:
        return _mined(rpc, tx, receipt, heads)
    if tx.state == TransactionState.DISPLACED:
        return None
    if tx.state != TransactionState.PENDING:
        # Only another block at the same height shows that the block left the chain. This node may just lack it.
        return _vanished(tx) if receipts.has_left_its_block(tx) else None
    if not tx.hashes and tx.nonce >= used:
        # No version was broadcast by this service. The transaction waits while its signer is stopped or doesn't sign,
        # or a worker may be signing it.
        is_given_up = not holds_key(rpc.chain, tx.signer) and is_past(tx.newest.created_at, _SIGNING)
        return _displaced(tx, wait("key_withdrawn"), clock.latest()) if is_given_up else None
    if tx.nonce >= used or not _is_displaced(rpc, tx, receipts, heads):
        return None
    logger.error(
        "nonce %d of %s was used by a foreign transaction: does another program have this key?",
        tx.nonce,
        tx.signer.address,
    )
    return _displaced(tx, wait("nonce_taken"), clock.latest())


def _is_displaced(rpc: RpcClient, tx: Transaction, receipts: "_Receipts", heads: Heads) -> bool:
    """Return whether a final block has used the nonce, and none of the transaction's versions is in the chain.

    A node may lack its receipt: then the block shows it, if nodes still have the states around it.
    """
    if receipts.are_hidden or tx.nonce >= rpc.nonce(tx.signer.address, heads.final):
        return False
    # Receipts are requested again, because the earlier ones may be older than the final block. An error may hide one.
    if any(rpc.ask(_questions_of([tx]))):
        return False
    receipts.are_hidden = foreign_nonces.is_in_block(rpc, tx, heads.latest)[0] is True
    return not receipts.are_hidden


def _mend_nonces(
    chain: Chain,
    rpc: RpcClient,
    lane: HeldLane,
    signer: Signer,
    watched: Sequence[Transaction],
    *,
    latest: Header,
    used: int,
) -> WaitReason | None:
    """Repair a gap of nonces below pending ones, which would never be mined. Return what was found. None: no gap.

    A gap arises if a node reports a nonce that is too high, or if the chain loses final blocks.
    """
    pending = [tx for tx in watched if tx.state == TransactionState.PENDING]
    lowest = min((tx.nonce for tx in pending), default=used)
    gap = range(used, lowest)
    if gap:
        highest = max(latest.number, chain_heads.highest_lately(chain.id))
        current = chain_heads.of_current_nodes(chain, rpc, highest, [questions.nonce(signer.address)])
        if not current:
            return signer.nonce_fault
        # No nonce is paid for that one node alone calls unused.
        used = max([used, *(nonce for _, (nonce,) in current.values() if isinstance(nonce, int))])
        gap = range(used, lowest)
    if gap:
        # Final blocks should hold these transactions. A node that lags also reports such a low nonce.
        below = signer.transactions.filter(nonce__gte=used, nonce__lt=lowest).exclude(state=TransactionState.DISPLACED)
        newest = below.order_by("-nonce").values_list("nonce", flat=True).first()
        gap = range(used if newest is None else newest + 1, lowest)
        if _look_after_final(rpc, lane, signer, below):
            return wait("final_blocks_lost", chain=chain.id, signer=signer.address)
    if not gap:
        # The problem is shown until the gap is filled and the facts of the transactions above it are sent again.
        is_filled = any(tx.to == signer.address for tx in pending)
        is_left = not pending and any(tx.nonce >= used for tx in watched)
        return signer.nonce_fault if is_filled or is_left else None
    now = clock.latest()
    in_gap = signer.transactions.filter(nonce__gte=gap.start, nonce__lt=gap.stop)
    stored = in_gap.order_by("nonce").defer("data").prefetch_related("versions")
    # A node may tell any nonce, so a gap isn't listed before its length is known.
    if len(gap) - in_gap.count() > _MOST_FILLED:
        why = wait("nonce_left_behind")
        # The rows are read again, with the versions that this turn has signed.
        behind = signer.transactions.filter(pk__in=[tx.pk for tx in pending]).defer("data").prefetch_related("versions")
        _write(lane, signer, [_displaced(tx, why, now) for tx in behind])
    else:
        _write(lane, signer, [_vanished(tx) for tx in stored[:_MOST_FILLED]])
        unused = set(gap).difference(in_gap.values_list("nonce", flat=True))
        for nonce in sorted(unused):
            fill(chain, rpc, lane, signer, destination_prices.of(rpc), nonce=nonce, now=now)
    return wait("nonces_left_out", chain=chain.id, signer=signer.address, first=gap.start, last=gap.stop - 1)


def _stop_where_doubtful(signer: Signer, doubtful: int) -> None:
    """Stop a signer after too many consecutive transactions about which nodes give implausible answers.

    `doubtful` is the number in this turn. Displaced transactions of earlier turns count too.
    """
    settled = signer.transactions.exclude(state=TransactionState.PENDING).order_by("-nonce")
    newest = list(settled.values_list("state", flat=True)[:_MOST_DOUBTFUL]) if doubtful else []
    if doubtful >= _MOST_DOUBTFUL or newest == [TransactionState.DISPLACED] * _MOST_DOUBTFUL:
        stops.stop(signer.chain_id, signer=signer.address, by=stops.WORKER, code=StopCode.NOT_BELIEVED)


def _show_faults(signer: Signer, *, nonce: WaitReason | None, receipt: WaitReason | None) -> None:
    if nonce != signer.nonce_fault:
        logger.error("the signer %s: %s", signer, nonce or "Its nonces no longer have a gap.")
        if not signer.nonce_fault:
            counters.count(signer.chain_id, ChainEvent.NONCE_GAP)
    if (nonce, receipt) != (signer.nonce_fault, signer.receipt_fault):
        Signer.objects.filter(pk=signer.pk).update(nonce_fault=nonce, receipt_fault=receipt)


def _look_after_final(rpc: RpcClient, lane: HeldLane, signer: Signer, below: QuerySet[Transaction]) -> bool:
    """Reopen final transactions that the chain has lost. Return whether there are any."""
    rows = below.filter(state=TransactionState.FINAL).order_by("nonce").defer("data").prefetch_related("versions")
    if not (final := list(rows[:_MOST_FILLED])):
        return False
    receipts = _Receipts(rpc, final, rpc.ask(_questions_of(final)))
    lost = [tx for tx in final if receipts.canonical(tx) is None and receipts.has_left_its_block(tx)]
    _write(lane, signer, [_vanished(tx) for tx in lost])
    return bool(lost)


def _questions_of(transactions: Sequence[Transaction]) -> list[Question[Receipt | None]]:
    """Return questions for the receipts of all signed versions of these transactions."""
    return [questions.receipt(HexBytes(tx_hash)) for tx in transactions for tx_hash in tx.hashes]


class _Receipts:
    """The receipts of all signed versions of some transactions, and the headers that decide which receipts count."""

    def __init__(
        self,
        rpc: RpcClient,
        watched: Sequence[Transaction],
        answers: Sequence[Receipt | ChainError | None],
        known: Sequence[Header] = (),
    ) -> None:
        """Read the headers of all relevant blocks except the `known` ones. `answers` are those to `_questions_of`.

        Raises `NodeUnavailable` if nodes lack a header.
        """
        # True once a block has shown a transaction whose receipt nodes lack.
        self.are_hidden = False
        hashes = [tx_hash for tx in watched for tx_hash in tx.hashes]
        self.by_hash = dict(zip(hashes, answers, strict=True))
        numbers = {receipt.block_number for receipt in self.by_hash.values() if isinstance(receipt, Receipt)}
        numbers |= {tx.block_number for tx in watched if tx.block_number is not None}
        self.headers: dict[int, Header | ChainError | None] = {header.number: header for header in known}
        unknown = sorted(numbers.difference(self.headers))
        headers = rpc.ask([questions.header(number) for number in unknown])
        if headers and all(_is_down(header) for header in headers):
            result(headers[0])
        self.headers |= dict(zip(unknown, headers, strict=True))

    def lacks(self, tx: Transaction, used: int) -> bool:
        """Return whether the receipt can't be used, tells a failure that isn't stored, or is missing although the nonce
        is used or the block is there.
        """
        receipt = self.canonical(tx)
        if isinstance(receipt, RpcRefused) and _is_open(tx, used):
            return False
        if isinstance(receipt, Receipt):
            return receipt.status != 1 and tx.succeeded is not False
        if receipt is None and tx.block_number is not None:
            return not self.has_left_its_block(tx)
        if receipt is None:
            return tx.state == TransactionState.PENDING and tx.nonce < used
        return isinstance(receipt, ChainError)

    def canonical(self, tx: Transaction) -> Receipt | ChainError | None:
        """Return the receipt of the version in the chain, or why it can't be read. None: no version is in the chain."""
        problem: ChainError | None = None
        for version in tx.versions.all():
            receipt = self.by_hash[version.hash] if version.hash else None
            header = self.headers[receipt.block_number] if isinstance(receipt, Receipt) else None
            if isinstance(receipt, ChainError):
                problem = receipt
            elif isinstance(header, ChainError):
                problem = header
            # A node may still serve a receipt of a block that left its chain. The next turn decides.
            elif receipt and header and header.hash == receipt.block_hash:
                return _checked(receipt, version, header)
        return problem

    def has_left_its_block(self, tx: Transaction) -> bool:
        assert tx.block_number is not None
        header = self.headers[tx.block_number]
        return isinstance(header, Header) and hex_data(header.hash) != tx.block_hash


def _is_down(answer: object) -> bool:
    """Return whether a node gave no answer, instead of an unusable one."""
    return isinstance(answer, NodeUnavailable) and not isinstance(answer, InvalidReply | UnreadableHeader)


def _is_open(tx: Transaction, used: int) -> bool:
    """Return whether the transaction's nonce may still be used, so that it needs no receipt yet."""
    return tx.state in {TransactionState.PENDING, TransactionState.DISPLACED} and tx.nonce >= used


def _is_deep(rpc: RpcClient, tx: Transaction, latest: Header) -> bool:
    """Return whether the block that used the nonce is so deep that nodes should have the receipt."""
    deep = max(0, latest.number - _DEEP_BLOCKS)
    if tx.block_number is not None:
        return tx.block_number <= deep
    (nonce,) = rpc.ask([questions.nonce(tx.signer.address, deep)])
    return not isinstance(nonce, int) or nonce > tx.nonce


class ImplausibleReceipt(InvalidReply):
    """The receipt has values that are impossible in any block."""


def _checked(receipt: Receipt, version: SignedTransaction, header: Header) -> Receipt | ImplausibleReceipt:
    """Return the receipt with the gas price that follows from its block's header (EIP-1559), if the header has one.

    The header takes precedence over the receipt. If neither has a price above zero, the highest possible price counts,
    because budgets and limits depend on it. For the same reason, impossible values make a receipt implausible.
    """
    least, most = 0, version.max_fee_per_gas
    price = receipt.effective_gas_price or most
    if header.base_fee_per_gas is not None:
        least, price = header.base_fee_per_gas, min(most, header.base_fee_per_gas + version.max_priority_fee_per_gas)
    least_gas = _intrinsic_gas(bytes(version.raw), prices_at(header))
    if not least_gas <= receipt.gas_used <= version.gas or not least <= price <= most:
        return ImplausibleReceipt(
            f"a node says that it took {receipt.gas_used} gas at {price} wei; it takes between {least_gas} "
            f"and {version.gas} gas, and the price is between {least} and {most} wei"
        )
    status = receipt.status
    if status is None:
        # Before EIP-658, a failed transaction used all of its gas. A cancellation has no code that could fail.
        status = int(version.is_cancellation or receipt.gas_used < version.gas)
    return replace(receipt, status=status, effective_gas_price=price)


def _intrinsic_gas(raw: bytes, prices: GasPrices) -> int:
    """Return the minimum gas of a transaction with these signed bytes. It may be one to its sender."""
    return prices.transfer_to_self + max(0, gas_of_calldata(raw.count(0), len(raw) - _ENVELOPE_BYTES))


def _note_problem(chain: Chain, tx: Transaction, problem: ChainError) -> WaitReason:
    """Store why a receipt can't be used, and return it."""
    reasons = problem.reasons if isinstance(problem, NodeUnavailable) else ()
    why = "; ".join(reasons) or (problem.about("it") if isinstance(problem, RpcRefused) else str(problem))
    reason = wait("receipt_unusable", transaction=tx.latest_hash, chain=chain.id, problem=why.removesuffix("."))
    reason = replace(reason, words=problem.message)
    if tx.error != reason:
        logger.error("%s: the receipt of %s can't be used: %s", tx.signer, tx.latest_hash, problem.for_operators)
        Transaction.objects.filter(pk=tx.pk).update(error=reason)
    return reason


class _Change(NamedTuple):
    """A change of a transaction. The object `tx` already has the new values."""

    tx: Transaction
    is_shown: bool = True
    """True if its batches show the change. Its blocks become due then, and their next turn completes their steps."""
    has_left_its_block: bool = False


def _write(
    lane: HeldLane,
    signer: Signer,
    changes: Sequence[_Change] = (),
    *,
    and_then: Callable[[], None] | None = None,
    is_last: bool = False,
) -> None:
    """Write the changes and call `and_then` in one database transaction. Lock the signer first, as senders do."""
    if changes or and_then:
        behind = Signer.objects.filter(pk=signer.pk)
        lane.write(partial(_write_now, signer, changes, and_then), behind, is_last=is_last)


def _write_all(lane: HeldLane, signer: Signer, changes: list[_Change]) -> None:
    """Write the changes and empty the list, so that the next write doesn't repeat them."""
    _write(lane, signer, changes)
    changes.clear()


def _write_now(signer: Signer, changes: Sequence[_Change], and_then: Callable[[], None] | None) -> None:
    shown = [change.tx for change in changes if change.is_shown]
    _wake_blocks(shown)
    for tx in shown:
        if tx.hash:
            show(tx, tx.hash)
        elif tx.state == TransactionState.PENDING:
            # Nodes drop transactions of a block that left the chain, so they are broadcast again at once.
            tx.versions.update(broadcast_at=None, refused_at=None)
    for change in changes:
        if change.has_left_its_block:
            counters.count(signer.chain_id, ChainEvent.REORGANISED)
    changed = [change.tx for change in changes]
    _count(signer, changes)
    for tx in changed:
        tx.reserve()
        # `data` isn't saved, because it is long, wasn't loaded and never changes.
        tx.save(update_fields=_COLUMNS)
    weights = money.weights_of(*changed)
    money.divide(weights)
    money.show_spent({batch for tx in shown for batch in weights[tx]})
    if and_then:
        and_then()


def _count(signer: Signer, changes: Sequence[_Change]) -> None:
    """Add these transactions to the signer's totals of final ones, and subtract those that already count.

    A final transaction isn't watched. It changes only if it has left its block.
    """
    final = TransactionState.FINAL
    left = [change.tx.pk for change in changes if change.has_left_its_block]
    counted = Transaction.objects.filter(pk__in=left, state=final).defer("data")
    terms = [*((-1, tx) for tx in counted), *((1, change.tx) for change in changes if change.tx.state == final)]
    if not terms:
        return
    row = Signer.objects.get(pk=signer.pk)
    for times, tx in terms:
        row.final_count += times
        row.final_failures += times * (not tx.succeeded)
        row.final_gas += times * tx.gas_used
        row.final_wei += times * tx.cost
    row.save(update_fields=["final_count", "final_failures", "final_gas", "final_wei"])


def _mined(rpc: RpcClient, tx: Transaction, receipt: Receipt, heads: Heads) -> _Change | None:
    if receipt.block_number <= heads.final:
        state = TransactionState.FINAL
    elif receipt.block_number <= heads.confirmed.number:
        state = TransactionState.CONFIRMED
    else:
        state = TransactionState.MINED
    tx_hash, block_hash = hex_data(receipt.tx_hash), hex_data(receipt.block_hash)
    is_same = (tx.hash, tx.block_hash) == (tx_hash, block_hash)
    failure, error = (None, None) if receipt.status == 1 else _failure(rpc, tx, receipt, is_same=is_same)
    # The error differs if the receipt was unusable meanwhile.
    if is_same and (tx.state, tx.error) == (state, error):
        return None
    before = (tx.hash, tx.block_hash, tx.cost, money.is_spent(tx))
    if tx.state == TransactionState.PENDING:
        logger.info("%s mined in block %d, %d gas", tx_hash, receipt.block_number, receipt.gas_used)
        tx.spent_at = clock.latest()
    is_cancellation = any(version.hash == tx_hash and version.is_cancellation for version in tx.versions.all())
    tx.state, tx.hash, tx.block_hash, tx.block_number = state, tx_hash, block_hash, receipt.block_number
    assert receipt.effective_gas_price is not None, "it is checked"
    tx.gas_used, tx.gas_price = receipt.gas_used, receipt.effective_gas_price
    tx.data_fee = _data_fee(rpc, tx, receipt)
    # A cancellation never counts as success, because the transaction didn't do its task.
    tx.succeeded = receipt.status == 1 and not is_cancellation
    tx.failure, tx.error = failure, error
    # Pages show that a confirmed transaction counts as spent. They don't show that it becomes final.
    return _Change(tx, is_shown=(tx.hash, tx.block_hash, tx.cost, money.is_spent(tx)) != before)


def _failure(
    rpc: RpcClient, tx: Transaction, receipt: Receipt, *, is_same: bool
) -> tuple[FailureCause | str, WaitReason]:
    """Return why it failed. If it `is_same` as before, that may be known."""
    if is_same and tx.failure and tx.error and tx.error.code in failures.CODES:
        return tx.failure, tx.error
    gas_limit = next(version.gas for version in tx.versions.all() if version.hash == hex_data(receipt.tx_hash))
    was_reorganised = tx.failure == FailureCause.OUTDATED or _others_have_left(rpc, tx)
    gas_used, block = receipt.gas_used, receipt.block_number
    why = failures.why(rpc, tx, gas_used=gas_used, gas_limit=gas_limit, block=block, was_reorganised=was_reorganised)
    return why.cause, why.reason


def _others_have_left(rpc: RpcClient, tx: Transaction) -> bool:
    """Return whether transactions of the chain's other signers have left their blocks."""
    watched = Transaction.objects.filter(signer__chain_id=rpc.chain.id, state__in=WATCHED_STATES)
    places = watched.exclude(signer=tx.signer_id).values_list("block_number", "block_hash")
    hashes = {number: block_hash for number, block_hash in places if number is not None}
    headers = rpc.ask([questions.header(number) for number in hashes])
    return any(isinstance(header, Header) and hashes[header.number] != hex_data(header.hash) for header in headers)


def _data_fee(rpc: RpcClient, tx: Transaction, receipt: Receipt) -> int:
    """Return the data fee in wei. Return the stored one if nodes report none or an implausible one."""
    paid = rollups.paid_beside_gas(rpc, receipt)
    if not paid:
        return tx.data_fee if paid is None else 0
    try:
        balance = rpc.balance(tx.signer.address, receipt.block_number - 1)
    except RpcRefused:
        # Most nodes keep only recent states, and blocks become final later.
        return tx.data_fee
    # A wrong answer about one transaction must not use up a day's limits.
    if paid > min(balance, _MOST_TIMES_DATA_FEE * max(tx.expected_data_fee, tx.most_for_gas)):
        logger.error(
            "the signer %s: a node says that %s took %d wei for its data, more than its signer had or than is believed",
            tx.signer,
            hex_data(receipt.tx_hash),
            paid,
        )
        return tx.data_fee
    return paid


def _vanished(tx: Transaction) -> _Change:
    if has_left_its_block := bool(tx.hash):
        logger.warning("%s is no longer in the chain: the chain was reorganised", tx.hash)
    tx.state, tx.hash, tx.block_hash, tx.block_number = TransactionState.PENDING, "", "", None
    tx.succeeded, tx.gas_used, tx.gas_price = None, 0, 0
    tx.failure = FailureCause.OUTDATED if has_left_its_block else None
    tx.data_fee = tx.expected_data_fee
    # The transaction's waiting time restarts.
    tx.spent_at = clock.latest()
    return _Change(tx, has_left_its_block=has_left_its_block)


def _displaced(tx: Transaction, why: WaitReason, now: datetime) -> _Change:
    tx.state, tx.spent_at, tx.error = TransactionState.DISPLACED, now, why
    return _Change(tx)


def _wake_blocks(transactions: Sequence[Transaction]) -> None:
    """Make the blocks due, then lock the batches to write next, in the order of `config.database.statements`."""
    if transactions:
        queries = Query.objects.filter(transactions__in=transactions)
        blocks = Block.objects.filter(pk__in=queries.values("block"))
        statements.lock(blocks)
        blocks.update(due_at=Now())
        batch_states.lock_batches(queries.values_list("pk", flat=True))
