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

logger = logging.getLogger(__name__)

Notices: TypeAlias = dict[str, str]
"""Sentences for the operator by the addresses of signers; empty: there is nothing to tell."""

# A nonce may wait for the longer of the two.
_PATIENCE_SECONDS, _PATIENCE_BLOCKS = 60, 10
# How much may wait to be mined: transactions, about as many as nodes keep of one account, and gas, a few blocks' worth.
_TRANSACTIONS, _GAS = 64, 120_000_000


@dataclass(frozen=True)
class Unsent:
    """Nothing is stored of it: why not, a sentence."""

    sentence: str
    batches: frozenset[str] = frozenset()
    """The batches whose fees, or whose users' limits, don't suffice at the present gas price."""
    is_brief: bool = False
    """True if it waits for what is under way."""


def why_none(chain: Chain) -> str:
    """Return a sentence if the chain has no signer; else an empty one."""
    if chain.all_signers:
        return ""
    return (
        f"This service has no signer on chain {chain.id}, so it sends nothing there. Batches with the sender self are "
        "proven, by transactions that their submitters send."
    )


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
) -> tuple[Sender | str, Notices]:
    """Return the signer that sends: the first of the file that is neither stopped, nor short of money, nor stuck.

    It must have the `least` wei that anything costs that is to be sent. If there is none, a sentence says why. One that
    is stuck sends if no other can. Beside it, what each signer's operator is told. `rows` are locked.
    """
    notices: Notices = dict.fromkeys(rows, "")
    refused = ""
    able: list[Sender] = []
    for address, balance in balances.items():
        sender = _sender(rows[address], balance, nonces[address])
        # Stops are told by themselves.
        why_not = stops.why_signer_is_stopped(chain.id, address)
        if not why_not and balance < chain.minimum_signer_balance_wei:
            why_not = notices[address] = (
                f"{_who_holds(chain, sender)}, less than the {chain.minimum_signer_balance} at which it stops. Its "
                "operator must fund it."
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
            notices[address] = (
                f"The signer {address} on chain {chain.id} sends nothing more until its transaction "
                f"{waiting.label} is mined, which has waited for long. What comes meanwhile is sent by others."
            )
    return next(iter(moving or able), refused), notices


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


def _who_holds(chain: Chain, sender: Sender) -> str:
    return f"The signer {sender.row.address} on chain {chain.id} holds {chain.amount(sender.balance)}"


def too_poor(chain: Chain, sender: Sender, cost: int) -> str:
    """Say that the signer can't pay so many wei beside what is pending."""
    needed = chain.amount(sender.balance - sender.free + cost)
    return f"{_who_holds(chain, sender)}, less than the {needed} that it may have to pay. Its operator must fund it."


def show(rows: Collection[Signer], notices: Notices) -> None:
    """Tell the operator what is lacking, on pages and in the log; or, with an empty one, that nothing is any more."""
    for row in rows:
        if row.notice != notices[row.address]:
            logger.warning(
                "%s", notices[row.address] or f"the signer {row.address} on chain {row.chain_id} sends again"
            )
            Signer.objects.filter(pk=row.pk).update(notice=notices[row.address])
