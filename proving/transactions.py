"""Sends transactions so that each nonce is used once and none is left open, whenever the process is killed.

A transaction is signed and stored before it is broadcast, under the lease of its signer. From then on `tend` looks
after it: it broadcasts the same bytes again, raises the fees under the same nonce, empties it when its purpose is gone,
and follows it from the mempool to a final block, and back when the chain is reorganised.
"""

import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from eth_account.signers.local import LocalAccount
from hexbytes import HexBytes

from chains.config import Chain
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
from config.chains import get_chains, get_rpc
from proving import costs
from proving.heads import Heads, poll_seconds
from proving.models import (
    LIVE_STATES,
    WATCHED_STATES,
    SignedTransaction,
    Signer,
    Transaction,
    TransactionState,
)
from queries import leases
from queries.leases import Lease
from queries.models import BatchStatus, Block

logger = logging.getLogger(__name__)

# Of the estimate, for what changes between estimating and mining (another's transaction that goes first).
_GAS_MARGIN = 1.15
# EIP-7825: no transaction may have more.
MAX_GAS = 16_777_216
# Nodes replace a pending transaction only if both fees rise by at least 10 %.
_FEE_RISE_PERCENT = 113
_EMPTY_GAS = 21_000


class SignerBusy(Exception):
    """Another worker sends from this signer at this moment; it takes well under a second."""


class UnderWay(Exception):
    """A transaction for some of these queries was stored meanwhile: whoever asks has lost the block's lease."""


class CannotSend(Exception):
    """Nothing can be sent for now, such as at a low balance; the message is a sentence."""


@dataclass(frozen=True)
class Intent:
    """What to send. An empty `to` creates a contract.

    `queries` are the ids whose facts it proves, `accumulates` is the block whose header it carries.
    """

    to: str
    data: bytes
    queries: Collection[int] = ()
    accumulates: Block | None = None


def submit_all(
    chain: Chain, intents: Sequence[Intent], *, and_store: Callable[[int], None] | None = None
) -> list[Transaction]:
    """Simulate, sign, store and broadcast with consecutive nonces. Returns the stored transactions: all, or none.

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
        fees = _affordable_fees(chain, rpc, lease)
        gas_limits = [_gas_limit(rpc, account.address, intent) for intent in intents]
        pending_nonce = rpc.nonce(account.address, "pending")
        with lease.writing() as signer:
            first_nonce = next_nonce(signer, pending_nonce)
            sent = []
            for nonce, intent, gas_limit in zip(itertools.count(first_nonce), intents, gas_limits, strict=False):
                if live(intent.queries).exists():
                    raise UnderWay
                tx = Transaction.objects.create(
                    signer=signer,
                    nonce=nonce,
                    to=intent.to,
                    data=intent.data,
                    gas_limit=gas_limit,
                    accumulates=intent.accumulates,
                )
                tx.queries.set(intent.queries)
                sent.append((tx, _sign(chain, account, tx, fees)))
            if and_store:
                and_store(first_nonce)
        for _, version in sent:
            _broadcast(rpc, version)
    finally:
        # `tend` looks after it at once; it knows when to look again.
        lease.release(timezone.now())
    return [tx for tx, _ in sent]


def next_nonce(signer: Signer, pending_nonce: int) -> int:
    """The first nonce that neither the chain nor a stored transaction has; `pending_nonce` is the node's word."""
    last = signer.transactions.order_by("-nonce").values_list("nonce", flat=True).first()
    return max(pending_nonce, 0 if last is None else last + 1)


def live(queries: Collection[int]) -> QuerySet[Transaction]:
    """The transactions that are under way for some of the queries (ids)."""
    return Transaction.objects.filter(queries__in=queries, state__in=LIVE_STATES).distinct()


def latest_hash(tx: Transaction) -> str:
    """Hash of the mined version, else of the newest one."""
    return tx.hash or tx.versions.order_by("-pk").values_list("hash", flat=True)[0]


# --- Looking after what was sent --------------------------------------------------------------------------------------


def tend(signer_id: int) -> None:
    """Bring a signer's stored transactions into agreement with the chain. Does nothing while another worker does."""
    lease = leases.claim(Signer.objects.all(), signer_id)
    if lease is None:
        return
    signer = lease.row
    chain = get_chains().chain(signer.chain_id)
    try:
        _tend(chain, get_rpc(chain.id), lease)
    except leases.LeaseLost:
        return
    except (NodeUnavailable, RpcRefused) as error:
        logger.warning("transactions on chain %d wait: %s", chain.id, error)
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
    watched = list(lease.row.transactions.filter(state__in=WATCHED_STATES).order_by("nonce"))
    if not watched:
        return
    heads = Heads.read(chain, rpc)
    used = rpc.nonce(lease.row.address, "latest")
    used_for_good = rpc.nonce(lease.row.address, heads.confirmed.number)
    for tx in watched:
        receipt = _receipt(rpc, tx)
        if receipt is not None:
            _note_mined(lease, tx, receipt, heads)
        elif tx.nonce < used_for_good:
            # The account's nonce is past it in a confirmed block, and none of our versions is there.
            _displace(lease, tx)
        else:
            if tx.state != TransactionState.PENDING:
                _note_vanished(lease, tx)
            if tx.nonce >= used:
                _push(chain, rpc, lease, tx)


def _holds_key(chain: Chain, signer: Signer) -> bool:
    """Whether new versions can be signed: the key of the configuration may have been exchanged since."""
    return _account(chain).address == signer.address


def _receipt(rpc: RpcClient, tx: Transaction) -> Receipt | None:
    """The receipt of the version that is in the canonical chain, if one is."""
    for tx_hash in tx.versions.order_by("-pk").values_list("hash", flat=True):
        receipt = rpc.receipt(HexBytes(tx_hash))
        if receipt is not None:
            header = rpc.header(receipt.block_number)
            # A node may still serve the receipt of a block that it has left; the next look decides.
            if header is not None and header.hash == receipt.block_hash:
                return receipt
    return None


def _note_mined(lease: Lease[Signer], tx: Transaction, receipt: Receipt, heads: Heads) -> None:
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
    with lease.writing():
        tx.state, tx.hash, tx.block_hash, tx.block_number = state, tx_hash, block_hash, receipt.block_number
        tx.succeeded, tx.gas_used, tx.gas_price = receipt.status == 1, receipt.gas_used, receipt.effective_gas_price
        tx.last_error = "" if tx.succeeded else "The transaction was mined, but it reverted."
        tx.save()
        if state not in LIVE_STATES:
            costs.share(tx)
            _wake_blocks(tx)


def _note_vanished(lease: Lease[Signer], tx: Transaction) -> None:
    logger.warning("%s is no longer in the chain: the chain was reorganised", tx.hash)
    with lease.writing():
        tx.state, tx.hash, tx.block_hash, tx.block_number = TransactionState.PENDING, "", "", None
        tx.succeeded, tx.gas_used, tx.gas_price = None, 0, 0
        tx.save()
        costs.share(tx)
        _wake_blocks(tx)


def _displace(lease: Lease[Signer], tx: Transaction) -> None:
    logger.error(
        "nonce %d of %s was used by a transaction that isn't ours: does something else hold this key?",
        tx.nonce,
        lease.row.address,
    )
    with lease.writing():
        tx.state = TransactionState.DISPLACED
        tx.last_error = "Its nonce was used by another transaction."
        tx.save()
        _wake_blocks(tx)


def _wake_blocks(tx: Transaction) -> None:
    Block.objects.filter(queries__transactions=tx).update(due_at=timezone.now())


def _push(chain: Chain, rpc: RpcClient, lease: Lease[Signer], tx: Transaction) -> None:
    """Get a transaction mined that isn't: broadcast it, again, or with higher fees, or empty."""
    newest = tx.versions.order_by("-pk")[0]
    if not _holds_key(chain, lease.row):
        pass  # The stored bytes are all there is.
    elif not newest.is_empty and not _is_wanted(tx):
        logger.info("transaction %s is no longer wanted: replacing it by an empty one", newest.hash)
        newest = _replace(chain, rpc, lease, tx, newest, empty=True)
    elif timezone.now() - newest.created_at > _patience(chain):
        newest = _replace(chain, rpc, lease, tx, newest, empty=newest.is_empty or _reverts(rpc, lease.row, tx))
    _broadcast(rpc, newest)


def _patience(chain: Chain) -> timedelta:
    """How long a version may wait in the mempool before its fees are raised."""
    return timedelta(seconds=max(15, 4 * chain.block_seconds))


def _is_wanted(tx: Transaction) -> bool:
    """Whether anybody still needs what it proves. A batch that is DONE does: this one may have left the chain."""
    is_proof = tx.queries.exists()
    return not is_proof or tx.queries.exclude(batch__status=BatchStatus.REJECTED).exists()


def _reverts(rpc: RpcClient, signer: Signer, tx: Transaction) -> bool:
    try:
        rpc.estimate_gas(signer.address, tx.to or None, bytes(tx.data))
    except Reverted:
        return True
    return False


def _replace(
    chain: Chain, rpc: RpcClient, lease: Lease[Signer], tx: Transaction, newest: SignedTransaction, *, empty: bool
) -> SignedTransaction:
    """A new version under the same nonce with fees that nodes accept as a replacement, if the cap leaves room."""
    market = _market_fees(rpc)
    priority = max(market.max_priority_fee_per_gas, newest.max_priority_fee_per_gas * _FEE_RISE_PERCENT // 100 + 1)
    highest = max(market.max_fee_per_gas, newest.max_fee_per_gas * _FEE_RISE_PERCENT // 100 + 1, priority)
    if highest > chain.max_fee_per_gas:
        return newest
    with lease.writing():
        return _sign(chain, _account(chain), tx, OfferedFees(highest, priority), empty=empty)


# --- Fees, signing, sending -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfferedFees:
    """EIP-1559 fees of a transaction, in wei per gas."""

    max_fee_per_gas: int
    max_priority_fee_per_gas: int


def _market_fees(rpc: RpcClient) -> OfferedFees:
    fees: Fees = rpc.fees()
    # The base fee can double within six full blocks; what is not needed is not paid.
    return OfferedFees(2 * fees.base_fee + fees.priority_fee, fees.priority_fee)


def _affordable_fees(chain: Chain, rpc: RpcClient, lease: Lease[Signer]) -> OfferedFees:
    """The fees to offer now. Raises `CannotSend` above the chain's cap or below the signer's minimum balance."""
    balance = rpc.balance(lease.row.address)
    fees = _market_fees(rpc)
    notice = ""
    if balance < chain.minimum_signer_balance_wei:
        notice = (
            f"The signer {lease.row.address} on chain {chain.id} holds {balance / 10**18:.6f} {chain.native_currency}, "
            f"less than the {chain.minimum_signer_balance} at which it stops. Its operator must fund it."
        )
    elif fees.max_priority_fee_per_gas + (fees.max_fee_per_gas - fees.max_priority_fee_per_gas) // 2 > (
        chain.max_fee_per_gas
    ):
        notice = f"Gas on chain {chain.id} costs more than the cap of {chain.max_fee_per_gas_gwei} gwei."
    if notice != lease.row.notice:
        logger.warning("%s", notice or f"the signer {lease.row.address} on chain {chain.id} sends again")
        Signer.objects.filter(pk=lease.row.pk).update(notice=notice)
    if notice:
        raise CannotSend(notice)
    return OfferedFees(min(fees.max_fee_per_gas, chain.max_fee_per_gas), fees.max_priority_fee_per_gas)


def _gas_limit(rpc: RpcClient, sender: str, intent: Intent) -> int:
    return min(MAX_GAS, int(rpc.estimate_gas(sender, intent.to or None, intent.data) * _GAS_MARGIN))


def _sign(
    chain: Chain, account: LocalAccount, tx: Transaction, fees: OfferedFees, *, empty: bool = False
) -> SignedTransaction:
    """Sign and store one version. Inside the caller's database transaction."""
    fields: dict[str, Any] = {
        "type": 2,
        "chainId": chain.id,
        "nonce": tx.nonce,
        "gas": _EMPTY_GAS if empty else tx.gas_limit,
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
    problem = ""
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
    elif version.broadcast_at is None:
        logger.info("broadcast %s", version.hash)
        SignedTransaction.objects.filter(pk=version.pk).update(broadcast_at=timezone.now())
    if problem != version.transaction.last_error:
        Transaction.objects.filter(pk=version.transaction_id).update(last_error=problem)


def _account(chain: Chain) -> LocalAccount:
    assert chain.signer is not None, "chains.config refuses destinations without a signer"
    return chain.signer.account()


def _hex(value: bytes) -> str:
    return "0x" + bytes(value).hex()
