"""The signers of a destination, and which of them sends: one at a time, and the others when it can't.

What was sent before by another one is still followed, replaced and cancelled.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from django.db import transaction
from django.db.models import Count, Sum

from chains.chains_file import Chain
from proving import stops
from proving.models import GWEI, Signer, Transaction, TransactionState
from queries import clock
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

Notices: TypeAlias = dict[str, WaitReason | None]
"""What the operator must see to, by the addresses of signers; None: there is nothing to tell."""

# A nonce may wait for the longer of the two.
_PATIENCE_SECONDS, _PATIENCE_BLOCKS = 60, 10
# How much may wait to be mined: transactions, about as many as nodes keep of one account, and gas, a few blocks' worth.
_TRANSACTIONS, _GAS = 64, 120_000_000


@dataclass(frozen=True)
class Unsent:
    """Nothing is stored of it: why not."""

    reason: WaitReason
    batches: frozenset[str] = frozenset()
    """The batches whose fees, or whose users' limits, don't suffice at the present gas price."""
    is_brief: bool = False
    """True if it waits for what is under way."""


def why_none(chain: Chain) -> WaitReason | None:
    """Say that the chain has no signer, if it has none."""
    return None if chain.all_signers else wait("no_signer", chain=chain.id)


@contextmanager
def locked(chain: Chain, addresses: Collection[str] = ()) -> Iterator[dict[str, Signer]]:
    """Open a database transaction in which nobody else reserves on this chain.

    It gives the rows by address, as they are now. It locks all of them, those too that the file names no more, and
    always in one order: who holds one waits for none. Rows of these `addresses` are made where they are missing.
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
class Sender:
    """The signer that sends now, and how much it can."""

    row: Signer
    nonce: int  # at the newest block: a node's pending nonce can't be checked, and isn't needed
    balance: int  # wei
    free: int  # wei of it that pending transactions can't cost
    transactions: int  # that are pending
    gas: int  # that these may take

    @property
    def has_room(self) -> bool:
        """Return whether one more may wait to be mined. What isn't used up yet is enough for one."""
        return self.transactions < _TRANSACTIONS and self.gas < _GAS


def active(
    chain: Chain, rows: Mapping[str, Signer], balances: Mapping[str, int], nonces: Mapping[str, int], least: int
) -> tuple[Sender | WaitReason, Notices]:
    """Return the signer that sends: the first of the file that is neither stopped, nor short of money, nor stuck.

    It must have the `least` wei that anything costs that is to be sent. If there is none, the reason is returned. One
    that is stuck sends if no other can. Beside it, what each signer's operator is told. `rows` are locked.
    """
    notices: Notices = dict.fromkeys(rows)
    refused: WaitReason | None = None
    able: list[Sender] = []
    for address, balance in balances.items():
        sender = _sender(rows[address], balance, nonces[address])
        # Stops are told by themselves.
        why_not = stops.why_signer_is_stopped(chain.id, address)
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
    stuck = {sender.row.address: _stuck(chain, sender.row) for sender in able}
    moving = [sender for sender in able if stuck[sender.row.address] is None]
    for address, waiting in stuck.items():
        if moving and waiting is not None:
            notices[address] = wait("signer_stuck", signer=address, chain=chain.id, transaction=waiting.label)
    sender_or_why = next(iter(moving or able), refused)
    assert sender_or_why is not None, "there are signers, and each is able or refused"
    return sender_or_why, notices


def _sender(row: Signer, balance: int, nonce: int) -> Sender:
    waiting = row.transactions.filter(state=TransactionState.PENDING)
    sums = waiting.aggregate(count=Count("pk"), gas=Sum("gas_limit"), gwei=Sum("reserved_gwei"))
    free = balance - GWEI * (sums["gwei"] or 0)
    return Sender(row, nonce, balance, free, sums["count"], sums["gas"] or 0)


def _stuck(chain: Chain, row: Signer) -> Transaction | None:
    """Return its lowest nonce if that has waited so long that others may have to wait as long behind it."""
    lowest = row.transactions.filter(state=TransactionState.PENDING).defer("data").order_by("nonce").first()
    patience = timedelta(seconds=max(_PATIENCE_SECONDS, _PATIENCE_BLOCKS * chain.block_seconds))
    # A moment that lies ahead is that of a clock that was ahead.
    return lowest if lowest and abs(clock.earliest() - lowest.spent_at) > patience else None


def too_poor(chain: Chain, sender: Sender, cost: int) -> WaitReason:
    """Say that the signer can't pay so many wei beside what is pending."""
    needed, signer = sender.balance - sender.free + cost, sender.row.address
    return wait("signer_too_poor", signer=signer, chain=chain.id, balance=sender.balance, needed=needed)


def show(rows: Collection[Signer], notices: Notices) -> None:
    """Tell the operator what is lacking, on pages and in the log; or, with none, that nothing is any more."""
    for row in rows:
        notice = notices[row.address]
        if row.notice or row.wait != notice:
            logger.warning("%s", notice or f"the signer {row.address} on chain {row.chain_id} sends again")
            Signer.objects.filter(pk=row.pk).update(wait=notice, notice="")
