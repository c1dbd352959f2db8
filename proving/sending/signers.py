"""The signers of a destination, and the choice of the sending one. The next signer sends only if the first can't.

Earlier transactions of other signers are still monitored, replaced and cancelled.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Now
from django.utils import timezone

from chains.chains_file import Chain
from proving import stops
from proving.models import GWEI, Signer, Transaction, TransactionState
from queries import clock
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

Notices: TypeAlias = dict[str, WaitReason | None]
"""Notices for the operator by the addresses of signers; None: there is nothing to do."""

# A signer is stuck if its lowest pending nonce has waited for the longer of these times.
_STUCK_SECONDS, _STUCK_BLOCKS = 60, 10
# The time in which a refused estimate is asked for again. The longest pause of a failing block is a minute.
_REFUSED_AGAIN = timedelta(seconds=90)
# Maximum that may be pending: transactions, about as many as nodes keep per account, and the gas of a few blocks.
_TRANSACTIONS, _GAS = 64, 120_000_000


@dataclass(frozen=True)
class Unsent:
    """The reason why nothing of an order is stored."""

    reason: WaitReason
    batches: frozenset[str] = frozenset()
    """The batches whose fees, or whose users' limits, don't suffice at the present gas price."""
    is_brief: bool = False
    """True if it only waits for transactions under way."""


def why_none(chain: Chain) -> WaitReason | None:
    """Return a reason if the chain has no signer."""
    return None if chain.all_signers else wait("no_signer", chain=chain.id)


@contextmanager
def locked(chain: Chain, addresses: Collection[str] = ()) -> Iterator[dict[str, Signer]]:
    """Open a database transaction in which no other worker reserves on this chain.

    Yield the current rows by address. All rows of the chain are locked, even those of signers that chains.toml no
    longer has. The order is always the same, so that workers don't wait for each other in a circle. Missing rows of
    `addresses` are created.
    """
    with transaction.atomic():
        locking = Signer.objects.filter(chain_id=chain.id).order_by("pk").select_for_update(no_key=True)
        rows = {row.address: row for row in locking}
        if missing := set(addresses).difference(rows):
            made = [Signer(chain_id=chain.id, address=address) for address in sorted(missing)]
            Signer.objects.bulk_create(made, ignore_conflicts=True)
            rows = {row.address: row for row in locking.all()}
        yield rows


@dataclass
class SendingSigner:
    """A signer that may send now, with its money and pending transactions."""

    row: Signer
    nonce: int  # at the newest block, because a pending nonce can't be verified
    balance: int  # wei
    free: int  # part of the balance in wei that pending transactions can't use
    transactions: int  # number of pending transactions
    gas: int  # sum of their gas limits

    @property
    def has_room(self) -> bool:
        """Return whether one more transaction may be pending. The last one may exceed the gas limit."""
        return self.transactions < _TRANSACTIONS and self.gas < _GAS


@dataclass(frozen=True)
class SignerChoice:
    signer: SendingSigner | WaitReason
    """The signer that sends now, or the reason why none can."""
    notices: Notices


def choose(
    chain: Chain, rows: Mapping[str, Signer], balances: Mapping[str, int], nonces: Mapping[str, int], least: int
) -> SignerChoice:
    """Choose the first signer of chains.toml that isn't stopped, silent, stuck or too poor.

    It needs `least` wei, the cost of the cheapest intent. A stuck signer sends if no other can. The caller has locked
    `rows`.
    """
    notices: Notices = dict.fromkeys(rows)
    refused: WaitReason | None = None
    able: list[SendingSigner] = []
    for address, balance in balances.items():
        sender = sender_of(rows[address], balance, nonces[address])
        # These two get no notice here, because they have their own.
        why_not = stops.why_signer_is_stopped(chain.id, address) or rows[address].signing_problem
        if not why_not and balance < chain.minimum_signer_balance_wei:
            minimum = str(chain.minimum_signer_balance)
            why_not = notices[address] = wait(
                "signer_below_minimum", signer=address, chain=chain.id, balance=balance, minimum=minimum
            )
        elif not why_not and sender.free < least:
            why_not = notices[address] = too_poor(chain, sender, least)
        refused = refused or why_not
        if not why_not:
            able.append(sender)
    stuck = {sender.row.address: _stuck(chain, sender.row) if sender.transactions else None for sender in able}
    moving = [sender for sender in able if stuck[sender.row.address] is None]
    for address, waiting in stuck.items():
        if moving and waiting is not None:
            notices[address] = wait("signer_stuck", signer=address, chain=chain.id, transaction=waiting.label)
    sender_or_why = next(iter(moving or able), refused)
    assert sender_or_why is not None, "there are signers, and each is able or refused"
    return SignerChoice(sender_or_why, notices)


def next_stored(row: Signer) -> int:
    """Return the nonce after the newest one of the signer's stored transactions. 0 if there is none."""
    newest = row.transactions.order_by("-nonce").values_list("nonce", flat=True).first()
    return 0 if newest is None else newest + 1


def sender_of(row: Signer, balance: int, nonce: int) -> SendingSigner:
    waiting = row.transactions.filter(state=TransactionState.PENDING)
    sums = waiting.aggregate(count=Count("pk"), gas=Sum("gas_limit"), gwei=Sum("reserved_gwei"))
    free = balance - GWEI * (sums["gwei"] or 0)
    return SendingSigner(row, nonce, balance, free, sums["count"], sums["gas"] or 0)


def _stuck(chain: Chain, row: Signer) -> Transaction | None:
    """Return the pending transaction with the lowest nonce if it has waited too long. Later nonces wait for it."""
    lowest = row.transactions.filter(state=TransactionState.PENDING).defer("data").order_by("nonce").first()
    # A time in the future was stored while a clock was ahead.
    return lowest if lowest and abs(clock.earliest() - lowest.spent_at) > stuck_after(chain) else None


def stuck_after(chain: Chain) -> timedelta:
    """Return after how long a signer is stuck whose lowest pending nonce still waits."""
    return timedelta(seconds=max(_STUCK_SECONDS, _STUCK_BLOCKS * chain.block_seconds))


def too_poor(chain: Chain, sender: SendingSigner, cost: int) -> WaitReason:
    """Return the reason that the signer can't pay this cost, in wei, in addition to its pending transactions."""
    needed, signer = sender.balance - sender.free + cost, sender.row.address
    return wait("signer_too_poor", signer=signer, chain=chain.id, balance=sender.balance, needed=needed)


def show(rows: Collection[Signer], notices: Notices) -> None:
    """Store the signers' notices for pages, and log each change.

    A refused estimate stays until its batch must have been tried again, because other batches' estimates may succeed.
    """
    for row in rows:
        notice = notices[row.address]
        is_refused = row.wait is not None and row.wait.code in {"estimate_refused", "node_gas_cap"}
        if is_refused and not notice and row.wait_seen_at and timezone.now() - row.wait_seen_at < _REFUSED_AGAIN:
            continue
        if row.wait != notice:
            logger.warning("the signer %s: %s", row, notice or "It sends again.")
        if row.wait or notice:
            Signer.objects.filter(pk=row.pk).update(wait=notice, wait_seen_at=Now())
