"""Sends transactions so that each nonce is used once and none is left open, whenever the process is killed.

A transaction is signed and stored before it is broadcast, under the lease of its signer. From then on `tend` looks
after it: it broadcasts the same bytes again, raises the fees under the same nonce, empties it when its purpose is gone,
and follows it from the mempool to a final block, and back when the chain is reorganised.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from django.db.models import Q
from django.utils import timezone
from eth_account.signers.local import LocalAccount
from hexbytes import HexBytes

from chains import rollups
from chains.chains_file import Chain, UnknownChain
from chains.rpc import Block as BlockName
from chains.rpc import (
    Fees,
    InsufficientFunds,
    NodeUnavailable,
    NonceTooLow,
    Receipt,
    ReplacementUnderpriced,
    Reverted,
    RpcClient,
    RpcRefused,
)
from config.configured_chains import get_chains, get_rpc
from proving.heads import Heads, poll_seconds
from proving.models import (
    EMPTY_GAS,
    LIVE_STATES,
    WATCHED_STATES,
    FactsRegistry,
    SignedTransaction,
    Signer,
    Transaction,
    TransactionState,
    proves_facts,
)
from proving.spending import limits
from proving.spending.limits import Limit
from proving.transactions.stop_switch import why_stopped
from queries import clock, leases, progress
from queries.leases import Lease, LeaseLost
from queries.models import BatchStatus, Block, Query

logger = logging.getLogger(__name__)

# Of the estimate, for what changes between estimating and mining (another's transaction that goes first).
_GAS_MARGIN = 1.15
# EIP-7825: no transaction may have more.
MAX_GAS = 16_777_216
# Nodes replace a pending transaction only if both fees rise by at least 10 %.
_RISE_PERCENT = 113
# Fees rise above the market while a transaction waits, but not without end.
_MAX_TIMES_MARKET = 3


class SignerBusy(Exception):
    """Another worker sends from this signer at this moment; it takes well under a second."""


class UnderWay(Exception):
    """A transaction that does the same was stored meanwhile."""


class CannotSend(Exception):
    """Nothing can be sent for now, such as at a low balance; the message is a sentence."""


class Stopped(CannotSend):
    """The operator has stopped the chain's signers."""


class TooDear(CannotSend):
    """At the present gas price the fees of these batches, or the limits of their users, don't suffice to their ends."""

    def __init__(self, sentence: str, batches: frozenset[str]) -> None:
        super().__init__(sentence)
        self.batches = batches


@dataclass(frozen=True)
class Intent:
    """What to send. An empty `to` creates a contract.

    `queries` are the ids that it is for, `accumulates` is the block whose header it carries. With `extends`, the id of
    a registry, it extends that registry's trust to blocks that the queries need; it then proves facts only of the block
    that it accumulates, if it does. `leads_to` is the block for which it does so; the queries of others ride along.
    """

    to: str
    data: bytes
    queries: Collection[int] = ()
    accumulates: Block | None = None
    extends: int | None = None
    leads_to: Block | None = None
    continued: Collection[int] = ()
    """Of the queries, those of which more is proven by the next one."""

    def is_under_way(self, signer: Signer) -> bool:
        """Whether a stored one does the same. One at a time extends a registry, because each builds on the last."""
        # What another key has left behind may never be mined.
        extending = signer.transactions.filter(extends=self.extends, state=TransactionState.PENDING)
        if self.extends is not None and extending.exists():
            return True
        proving = Transaction.objects.filter(
            proves_facts("queries__block"), queries__in=self.proves(), state__in=LIVE_STATES
        )
        return proving.exists()

    def proves(self) -> Collection[int]:
        """Ids of the queries whose facts it proves. Of others it makes known their blocks, and proves nothing."""
        if self.extends is None:
            return self.queries
        here = Query.objects.filter(pk__in=self.queries, block=self.accumulates)
        return list(here.values_list("pk", flat=True))


@dataclass(frozen=True)
class OfferedFees:
    """EIP-1559 fees of a transaction, in wei per gas."""

    max_fee_per_gas: int
    max_priority_fee_per_gas: int

    def at_most(self, limit: int) -> "OfferedFees":
        return OfferedFees(min(self.max_fee_per_gas, limit), min(self.max_priority_fee_per_gas, limit))


def submit_all(
    chain: Chain, intents: Sequence[Intent], *, and_store: Callable[[int], None] | None = None
) -> list[Transaction]:
    """Simulate, sign, store and broadcast with consecutive nonces. Returns the stored transactions, in their order:
    all, or none; or the first ones, where money doesn't suffice for the rest.

    `and_store(first_nonce)` runs in the database transaction that stores them. Raises `SignerBusy`, `UnderWay`,
    `CannotSend`, `chains.rpc.Reverted` when a simulation reverts, `NodeUnavailable`. After a return, or a kill at any
    later moment, `tend` takes care of the transactions.
    """
    rpc = get_rpc(chain.id)
    account = _account(chain)
    signer, _ = Signer.objects.get_or_create(chain_id=chain.id, address=account.address)
    lease = leases.claim(Signer.objects.all(), signer.pk)
    if lease is None:
        raise SignerBusy
    try:
        gas_limits = [_gas_limit(rpc, account.address, intent) for intent in intents]
        data_fees = [
            rollups.data_cost(rpc, len(intent.data), gas_limit).wei
            for intent, gas_limit in zip(intents, gas_limits, strict=True)
        ]
        fees, count = _affordable_fees(chain, rpc, lease, intents, gas_limits, data_fees)
        intents = intents[:count]
        pending_nonce = rpc.nonce(account.address, "pending")
        rest = limits.rest_of(
            chain,
            [pk for intent in intents for pk in intent.queries],
            proven={pk for intent in intents for pk in intent.proves()}.difference(intents[-1].continued),
            with_ways=any(intent.extends is not None for intent in intents),
        )
        with lease.writing() as signer:
            first_nonce = next_nonce(signer, pending_nonce)
            if any(intent.is_under_way(signer) for intent in intents):
                raise UnderWay
            stored = [
                _store(signer, first_nonce + place, *what)
                for place, what in enumerate(zip(intents, gas_limits, data_fees, strict=False))
            ]
            sent: list[tuple[Transaction, SignedTransaction]] = []
            for tx, bounds in zip(stored, limits.for_each(chain, stored, rest), strict=True):
                try:
                    most = _most_for_gas(chain, bounds, fees)
                except TooDear:
                    if not sent:
                        raise
                    Transaction.objects.filter(pk__in=[unsent.pk for unsent in stored[len(sent) :]]).delete()
                    break
                sent.append((tx, _sign(chain, account, tx, fees.offer.at_most(most))))
                # The next one's limits count it.
                limits.share(tx)
            # Due from the same moment: killed before the broadcast, whoever comes next does it.
            signer.due_at = timezone.now()
            signer.save(update_fields=["due_at"])
            if and_store:
                and_store(first_nonce)
        for _, version in sent:
            _broadcast(rpc, version)
    except LeaseLost:
        raise SignerBusy from None
    finally:
        # `tend` looks after it at once; it knows when to look again.
        lease.release(timezone.now())
    return [tx for tx, _ in sent]


def next_nonce(signer: Signer, pending_nonce: int) -> int:
    """The first nonce that neither the chain nor a stored transaction has; `pending_nonce` is the node's word."""
    last = signer.transactions.order_by("-nonce").values_list("nonce", flat=True).first()
    return max(pending_nonce, 0 if last is None else last + 1)


def sender(chain: Chain) -> str:
    """The address of the account that sends on this chain now."""
    return _account(chain).address


def latest_hash(tx: Transaction) -> str:
    """Hash of the mined version, else of the newest one."""
    return tx.hash or tx.newest.hash


def _store(signer: Signer, nonce: int, intent: Intent, gas_limit: int, data_fee: int) -> Transaction:
    tx = Transaction.objects.create(
        signer=signer,
        nonce=nonce,
        to=intent.to,
        data=intent.data,
        gas_limit=gas_limit,
        data_fee=data_fee,
        accumulates=intent.accumulates,
        extends_id=intent.extends,
        leads_to=intent.leads_to,
        spent_at=clock.believable(),
    )
    tx.queries.set(intent.queries)
    return tx


def _most_for_gas(chain: Chain, bounds: Collection[Limit], fees: "MarketFees") -> int:
    """In wei for a unit: by the chain's cap and the limits. Raises `TooDear` where that is too little to be mined."""
    if too_low := [limit for limit in bounds if limit.price < fees.least]:
        batches = frozenset[str]().union(*(limit.batches for limit in too_low))
        raise TooDear(min(too_low, key=attrgetter("price")).sentence(chain, fees.least), batches)
    return min([chain.max_fee_per_gas, *(limit.price for limit in bounds)])


# --- Looking after what was sent --------------------------------------------------------------------------------------


def tend(signer_id: int) -> None:
    """Bring a signer's stored transactions into agreement with the chain. Does nothing while another worker does."""
    lease = leases.claim(Signer.objects.all(), signer_id)
    if lease is None:
        return
    signer = lease.row
    try:
        chain = get_chains().chain(signer.chain_id)
        _tend(chain, get_rpc(chain.id), lease)
    except LeaseLost:
        return
    except UnknownChain as error:
        # Its rows wait until the chain is configured again; submitting makes the signer due.
        logger.warning("%s Its transactions are left as they are.", error)
        lease.release(None)
    except (NodeUnavailable, RpcRefused) as error:
        logger.warning("transactions on chain %d wait: %s", signer.chain_id, error)
        lease.release(timezone.now() + leases.backoff(signer.attempts), attempts=signer.attempts + 1)
    except Exception:
        lease.release(timezone.now() + leases.backoff(signer.attempts), attempts=signer.attempts + 1)
        raise
    else:
        watched = signer.transactions.filter(state__in=WATCHED_STATES)
        lively = watched.filter(state__in=LIVE_STATES).exists()
        pause = poll_seconds(chain) if lively else chain.block_seconds * 2
        lease.release(timezone.now() + timedelta(seconds=pause) if watched.exists() else None)


def _tend(chain: Chain, rpc: RpcClient, lease: Lease[Signer]) -> None:
    rows = lease.row.transactions.filter(state__in=WATCHED_STATES).order_by("nonce")
    watched = list(rows.defer("data").prefetch_related("versions"))
    if not watched:
        return
    heads = Heads.read(chain, rpc)
    used = rpc.nonce(lease.row.address, "latest")
    used_for_good = rpc.nonce(lease.row.address, heads.final)
    found = _Receipts(rpc, watched)
    lowest_open = True
    for tx in watched:
        receipt = found.canonical(tx)
        if receipt is not None:
            _note_mined(rpc, lease, tx, receipt, heads)
        elif tx.state != TransactionState.PENDING:
            # Its block may be gone, or this node may just not have it yet: only another block there tells.
            if found.has_left_its_block(tx):
                _note_vanished(lease, tx)
        elif tx.nonce < used_for_good:
            # The account's nonce is past it in a final block, and none of our versions is there.
            _displace(lease, tx)
        elif tx.nonce >= used:
            _push(chain, rpc, lease, tx, may_raise=lowest_open)
            lowest_open = False


class _Receipts:
    """The receipts of all versions of some transactions, and the headers that tell which of them count."""

    def __init__(self, rpc: RpcClient, watched: Sequence[Transaction]) -> None:
        self._rpc = rpc
        self._headers: dict[int, str | None] = {}
        hashes = [version.hash for tx in watched for version in tx.versions.all()]
        self._receipts = dict(zip(hashes, rpc.receipts([HexBytes(tx_hash) for tx_hash in hashes]), strict=True))

    def canonical(self, tx: Transaction) -> Receipt | None:
        """The receipt of the version that is in the chain, if one is."""
        for version in tx.versions.all():
            receipt = self._receipts[version.hash]
            # A node may still serve the receipt of a block that it has left; the next look decides.
            if receipt is not None and self._hash(receipt.block_number) == _hex(receipt.block_hash):
                return receipt
        return None

    def has_left_its_block(self, tx: Transaction) -> bool:
        assert tx.block_number is not None
        return self._hash(tx.block_number) not in {None, tx.block_hash}

    def _hash(self, number: int) -> str | None:
        if number not in self._headers:
            header = self._rpc.header(number)
            self._headers[number] = None if header is None else _hex(header.hash)
        return self._headers[number]


def _note_mined(rpc: RpcClient, lease: Lease[Signer], tx: Transaction, receipt: Receipt, heads: Heads) -> None:
    if receipt.block_number <= heads.final:
        state = TransactionState.FINAL
    elif receipt.block_number <= heads.confirmed.number:
        state = TransactionState.CONFIRMED
    else:
        state = TransactionState.MINED
    tx_hash, block_hash = _hex(receipt.tx_hash), _hex(receipt.block_hash)
    if (tx.state, tx.hash, tx.block_hash) == (state, tx_hash, block_hash):
        return
    if tx.state == TransactionState.PENDING:
        logger.info("%s mined in block %d, %d gas", tx_hash, receipt.block_number, receipt.gas_used)
        tx.spent_at = clock.believable()
    is_empty = any(version.hash == tx_hash and version.is_empty for version in tx.versions.all())
    is_new = (tx.hash, tx.block_hash) != (tx_hash, block_hash)
    data_fee = rollups.paid_beside_gas(rpc, receipt) if is_new else None
    with lease.writing():
        tx.state, tx.hash, tx.block_hash, tx.block_number = state, tx_hash, block_hash, receipt.block_number
        tx.gas_used, tx.gas_price = receipt.gas_used, receipt.effective_gas_price
        tx.data_fee = tx.data_fee if data_fee is None else data_fee
        # It succeeded if it did what it was sent for, which an empty version never does.
        tx.succeeded = receipt.status == 1 and not is_empty
        tx.last_error = "" if receipt.status == 1 else "The transaction was mined, but it reverted."
        _save(tx)
        _show(tx, tx_hash)
        limits.share(tx)
        if state not in LIVE_STATES:
            _wake_blocks(tx)


def _note_vanished(lease: Lease[Signer], tx: Transaction) -> None:
    logger.warning("%s is no longer in the chain: the chain was reorganised", tx.hash)
    with lease.writing():
        tx.state, tx.hash, tx.block_hash, tx.block_number = TransactionState.PENDING, "", "", None
        tx.succeeded, tx.gas_used, tx.gas_price = None, 0, 0
        _save(tx)
        # Nodes forget what was in a block that they have left: it is broadcast anew at once.
        tx.versions.update(broadcast_at=None)
        _wake_blocks(tx)
        limits.share(tx)


def _displace(lease: Lease[Signer], tx: Transaction) -> None:
    logger.error(
        "nonce %d of %s was used by a transaction that isn't ours: does something else hold this key?",
        tx.nonce,
        lease.row.address,
    )
    with lease.writing():
        tx.state = TransactionState.DISPLACED
        tx.last_error = "Its nonce was used by another transaction."
        _save(tx)
        limits.share(tx)
        _wake_blocks(tx)


def _save(tx: Transaction) -> None:
    # Not `data`: it is long, was not loaded and never changes.
    tx.save(
        update_fields=[
            *("state", "hash", "block_hash", "block_number", "succeeded", "gas_used", "gas_price", "data_fee"),
            *("spent_at", "last_error"),
        ]
    )


def _show(tx: Transaction, version: str) -> None:
    """Show this version on the steps that wait for the transaction, and not on those that wait for a later one."""
    if _is_to_unused_registry(tx):
        return  # Its queries are proven anew, by others.
    shown = [other.hash for other in tx.versions.all()]
    if tx.extends_id is None or tx.accumulates_id is not None:
        # A step that has just begun shows none yet; a way that only led up to it has done its part.
        shown.append("")
    progress.note_transaction(list(tx.queries.values_list("pk", flat=True)), version, instead_of=shown)


def _wake_blocks(tx: Transaction) -> None:
    Block.objects.filter(queries__transactions=tx).update(due_at=timezone.now())


def _push(chain: Chain, rpc: RpcClient, lease: Lease[Signer], tx: Transaction, *, may_raise: bool) -> None:
    """Get a transaction mined that isn't: broadcast it, again, or empty, or with higher fees.

    Only the lowest open nonce's fees are raised: the others wait for it, whatever they offer.
    """
    newest = tx.newest
    if why_stopped(chain.id):
        return
    if not _holds_key(chain, lease.row):
        pass  # The key of the configuration was exchanged: the stored bytes are all there is.
    elif not newest.is_empty and not _is_wanted(tx):
        newest = _replace(chain, rpc, lease, tx, newest, empty=True)
    elif may_raise and _is_past(newest.created_at, _patience(chain)):
        newest = _replace(chain, rpc, lease, tx, newest, empty=newest.is_empty or _reverts(rpc, lease.row, tx))
        if not newest.is_empty and _is_stuck(chain, rpc, lease.row, tx, newest):
            newest = _replace(chain, rpc, lease, tx, newest, empty=True)
    resend_after = timedelta(seconds=max(chain.block_seconds, 5))
    if newest.broadcast_at is None or _is_past(newest.broadcast_at, resend_after):
        _broadcast(rpc, newest)


def _is_stuck(chain: Chain, rpc: RpcClient, signer: Signer, tx: Transaction, newest: SignedTransaction) -> bool:
    """Whether its batches' money allows no fee by which it would be mined now, while others wait behind it."""
    fees = _market_fees(rpc)
    behind = signer.transactions.filter(state=TransactionState.PENDING, nonce__gt=tx.nonce)
    return (
        newest.max_fee_per_gas < fees.base_and_tip <= chain.max_fee_per_gas
        and _most_for_replacement(chain, tx) < fees.base_and_tip
        and behind.exists()
    )


def _is_past(moment: datetime, pause: timedelta) -> bool:
    # A moment that lies ahead is that of a clock that was ahead: it must not be waited for.
    return abs(timezone.now() - moment) > pause


def _holds_key(chain: Chain, signer: Signer) -> bool:
    return _account(chain).address == signer.address


def _patience(chain: Chain) -> timedelta:
    """How long a version may wait in the mempool before its fees are raised."""
    return timedelta(seconds=max(15, 4 * chain.block_seconds))


def _is_wanted(tx: Transaction) -> bool:
    """Whether anybody still needs what it proves. A batch that is DONE does: this one may have left the chain."""
    if _is_to_unused_registry(tx):
        return False
    is_proof = tx.queries.exists()
    return not is_proof or tx.queries.exclude(batch__status=BatchStatus.REJECTED).exists()


def _is_to_unused_registry(tx: Transaction) -> bool:
    """Whether it proves something to a registry that was refused or replaced meanwhile."""
    if not tx.to:
        return False
    rows = FactsRegistry.objects.filter(Q(address=tx.to) | Q(sequence=tx.to), destination_chain_id=tx.signer.chain_id)
    unused = [bool(row.refused or row.replaced_at) for row in rows]
    # A chain that was started anew may have another one at the same address.
    return bool(unused) and all(unused)


def _reverts(rpc: RpcClient, signer: Signer, tx: Transaction) -> bool:
    """Upon the newest block, and upon the pending one, in which it may be itself: a change of attesters can't be twice.

    The pending one is asked too because it alone vouches for the head.
    """
    blocks: tuple[BlockName, ...] = ("latest", "pending")
    for block in blocks:
        try:
            rpc.estimate_gas(signer.address, tx.to or None, bytes(tx.data), block)
        except Reverted:
            continue
        return False
    return True


def _replace(
    chain: Chain, rpc: RpcClient, lease: Lease[Signer], tx: Transaction, newest: SignedTransaction, *, empty: bool
) -> SignedTransaction:
    """A new version under the same nonce with fees that nodes take for a replacement, where the limits leave room."""
    market = _market_fees(rpc).offer
    limit = min(chain.max_fee_per_gas, _MAX_TIMES_MARKET * market.max_fee_per_gas)
    # An empty one is small, and without it the nonce stays open: it may go above what a proof may cost.
    limit = max(2 * chain.max_fee_per_gas, limit) if empty else min(limit, _most_for_replacement(chain, tx))
    required = OfferedFees(
        newest.max_fee_per_gas * _RISE_PERCENT // 100 + 1, newest.max_priority_fee_per_gas * _RISE_PERCENT // 100 + 1
    )
    priority = max(market.max_priority_fee_per_gas, required.max_priority_fee_per_gas)
    highest = min(limit, max(market.max_fee_per_gas, required.max_fee_per_gas, priority))
    if highest < max(required.max_fee_per_gas, required.max_priority_fee_per_gas):
        return newest
    with lease.writing():
        try:
            version = _sign(chain, _account(chain), tx, OfferedFees(highest, min(priority, highest)), empty=empty)
        except Stopped:
            return newest
        limits.share(Transaction.objects.defer("data").get(pk=tx.pk))
        _show(tx, version.hash)
    if empty and not newest.is_empty:
        logger.info("%s is no longer wanted: replaced by an empty transaction", newest.hash)
    return version


def _most_for_replacement(chain: Chain, tx: Transaction) -> int:
    """In wei for a unit of gas. What was spent since the transaction was stored leaves less for it."""
    queries = list(tx.queries.values_list("pk", flat=True))
    rest = limits.rest_of(chain, queries, with_ways=tx.extends_id is not None)
    (bounds,) = limits.for_each(chain, [tx], rest)
    prices = [limit.price for limit in bounds]
    if chain.daily_limit_wei is not None:
        others = limits.promised_on(chain.id) - tx.cost
        prices.append(max(0, chain.daily_limit_wei - others - tx.data_fee) // tx.gas_limit)
    return min(prices, default=chain.max_fee_per_gas)


# --- Fees, signing, sending -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MarketFees:
    """What the market asks for a unit of gas, in wei: now, and what to offer so that it holds for some blocks."""

    base_and_tip: int
    offer: OfferedFees
    least: int
    """What must be offered for the next block at least, whatever this one does to the base fee (EIP-1559)."""


def _market_fees(rpc: RpcClient) -> MarketFees:
    fees: Fees = rpc.fees()
    # The base fee can double within six full blocks; what is not needed is not paid.
    offer = OfferedFees(2 * fees.base_fee + fees.priority_fee, fees.priority_fee)
    return MarketFees(fees.base_fee + fees.priority_fee, offer, fees.base_fee * 9 // 8 + fees.priority_fee)


def _affordable_fees(  # noqa: PLR0917 (as many as there is to know)
    chain: Chain,
    rpc: RpcClient,
    lease: Lease[Signer],
    intents: Sequence[Intent],
    gas_limits: Sequence[int],
    data_fees: Sequence[int],
) -> tuple[MarketFees, int]:
    """What to offer now, and how many of the intents, with these gas limits and fees (wei) beside, can be paid for.

    Raises `CannotSend` when the operator has stopped it, or the cap, the daily limit or the signer's balance forbids
    the first; `TooDear` where others may ask for less.
    """
    if stopped := why_stopped(chain.id):
        raise Stopped(stopped)
    signer = lease.row
    # Room for one replacement under the cap.
    limit = chain.max_fee_per_gas * 100 // _RISE_PERCENT
    market = _market_fees(rpc)
    balance = rpc.balance(signer.address)
    pending = signer.transactions.filter(state=TransactionState.PENDING).defer("data").prefetch_related("versions")
    free = balance - sum(tx.cost for tx in pending)
    # What the day's limit leaves can't change meanwhile: whoever spends it holds this lease.
    left = None if chain.daily_limit_wei is None else chain.daily_limit_wei - limits.promised_on(chain.id)
    price = min(market.offer.max_fee_per_gas, limit)
    count, gas, beside = 0, 0, 0
    for gas_limit, data_fee in zip(gas_limits, data_fees, strict=True):
        gas, beside = gas + gas_limit, beside + data_fee
        by_limit = price if left is None else max(0, left - beside) // gas
        is_less = by_limit < (price if count else market.base_and_tip)
        if is_less or free < gas * min(price, by_limit) + beside:
            break
        count, price = count + 1, min(price, by_limit)
    who = f"The signer {signer.address} on chain {chain.id} holds {chain.amount(balance)}"
    needed = gas_limits[0] * price + data_fees[0]
    notice = ""
    if balance < chain.minimum_signer_balance_wei:
        notice = f"{who}, less than the {chain.minimum_signer_balance} at which it stops. Its operator must fund it."
    elif market.base_and_tip > limit:
        notice = f"Gas on chain {chain.id} costs more than the cap of {chain.max_fee_per_gas_gwei} gwei."
    elif not count and free < needed:
        notice = (
            f"{who}, less than the {chain.amount(balance - free + needed)} that it may have to pay. Its operator must "
            "fund it."
        )
    elif not count:
        needed = gas_limits[0] * market.base_and_tip + data_fees[0]
        notice = (
            f"The operator's limit of {chain.daily_limit} {chain.native_currency} in 24 hours on chain {chain.id} "
            f"leaves {chain.amount(max(0, left or 0))}, and {chain.amount(needed)} are needed."
        )
    if notice != signer.notice:
        logger.warning("%s", notice or f"the signer {signer.address} on chain {chain.id} sends again")
        Signer.objects.filter(pk=signer.pk).update(notice=notice)
    if notice:
        # What the others ask for may be cheaper.
        raise TooDear(notice, limits.largest(intents[0].queries))
    return replace(market, offer=market.offer.at_most(price)), count


def _gas_limit(rpc: RpcClient, sender: str, intent: Intent) -> int:
    estimate = rpc.estimate_gas(sender, intent.to or None, intent.data)
    if estimate > MAX_GAS:
        raise CannotSend(f"A transaction would need {estimate} gas, and none may have more than {MAX_GAS} (EIP-7825).")
    return min(MAX_GAS, int(estimate * _GAS_MARGIN))


def _sign(
    chain: Chain, account: LocalAccount, tx: Transaction, fees: OfferedFees, *, empty: bool = False
) -> SignedTransaction:
    """Sign and store one version. Inside the caller's database transaction. Raises `Stopped`."""
    if stopped := why_stopped(chain.id):
        raise Stopped(stopped)
    fields: dict[str, Any] = {
        "type": 2,
        "chainId": chain.id,
        "nonce": tx.nonce,
        "gas": EMPTY_GAS if empty else tx.gas_limit,
        "maxFeePerGas": fees.max_fee_per_gas,
        "maxPriorityFeePerGas": fees.max_priority_fee_per_gas,
        "value": 0,
        "data": b"" if empty else bytes(tx.data),
    }
    if empty:
        fields["to"] = account.address
    elif tx.to:
        fields["to"] = tx.to
    signed = account.sign_transaction(fields)
    return SignedTransaction.objects.create(
        transaction=tx,
        hash=_hex(signed.hash),
        raw=bytes(signed.raw_transaction),
        max_fee_per_gas=fees.max_fee_per_gas,
        max_priority_fee_per_gas=fees.max_priority_fee_per_gas,
        is_empty=empty,
    )


def _broadcast(rpc: RpcClient, version: SignedTransaction) -> None:
    """Hand the stored bytes to the node. What it says is noted, not raised: the next look at the chain decides."""
    problem = why_stopped(rpc.chain.id)
    if problem:
        return
    try:
        rpc.send_raw(bytes(version.raw))
    except NonceTooLow:
        pass  # One version of it is mined already; its receipt will tell.
    except ReplacementUnderpriced:
        problem = "The node wants higher fees for the replacement."
    except InsufficientFunds:
        problem = "The signer can't pay for it."
    except (NodeUnavailable, RpcRefused) as error:
        problem = str(error)
    if problem:
        logger.warning("broadcasting %s: %s", version.hash, problem)
    else:
        if version.broadcast_at is None:
            logger.info("broadcast %s", version.hash)
        SignedTransaction.objects.filter(pk=version.pk).update(broadcast_at=timezone.now())
    if problem != version.transaction.last_error:
        Transaction.objects.filter(pk=version.transaction_id).update(last_error=problem)


def _account(chain: Chain) -> LocalAccount:
    assert chain.signer is not None, "chains.chains_file refuses destinations without a signer"
    return chain.signer.account()


def _hex(value: bytes) -> str:
    return "0x" + bytes(value).hex()
