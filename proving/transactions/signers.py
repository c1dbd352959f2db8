"""The signers of a destination, and the choice of the one that sends. Another one sends only if it can't.

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

from chains.chains_file import Chain
from proving import stops
from proving.models import GWEI, Signer, Transaction, TransactionState
from queries import clock
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

Notices: TypeAlias = dict[str, WaitReason | None]
"""Notices for the operator by the addresses of signers; None: there is nothing to do."""

# A signer is stuck when its lowest pending nonce has waited for the longer of these.
_PATIENCE_SECONDS, _PATIENCE_BLOCKS = 60, 10
# The most that may wait to be mined: transactions, about as many as nodes keep of one account; and gas of a few blocks.
_TRANSACTIONS, _GAS = 64, 120_000_000


@dataclass(frozen=True)
class Unsent:
    """An order of which nothing is stored, with the reason."""

    reason: WaitReason
    batches: frozenset[str] = frozenset()
    """The batches whose fees, or whose users' limits, don't suffice at the present gas price."""
    is_brief: bool = False
    """True if it only waits for transactions under way."""


def why_none(chain: Chain) -> WaitReason | None:
    """Say that the chain has no signer, if it has none."""
    return None if chain.all_signers else wait("no_signer", chain=chain.id)


@contextmanager
def locked(chain: Chain, addresses: Collection[str] = ()) -> Iterator[dict[str, Signer]]:
    """Open a database transaction in which nobody else reserves on this chain.

    Yield the rows by address, as they are now. All rows of the chain are locked, also of signers that chains.toml no
    longer names, always in the same order, so that no two workers wait for each other. Missing rows of `addresses` are
    created.
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
    """A signer that may send now, with its money and its pending transactions."""

    row: Signer
    nonce: int  # at the newest block: a node's pending nonce can't be checked, and isn't needed
    balance: int  # wei
    free: int  # wei of it that pending transactions can't cost
    transactions: int  # number of pending ones
    gas: int  # the most that these may take

    @property
    def has_room(self) -> bool:
        """Return whether one more transaction may wait to be mined. The last one may exceed the gas."""
        return self.transactions < _TRANSACTIONS and self.gas < _GAS


def active(
    chain: Chain, rows: Mapping[str, Signer], balances: Mapping[str, int], nonces: Mapping[str, int], least: int
) -> tuple[SendingSigner | WaitReason, Notices]:
    """Return the signer that sends, and the notices: the first of chains.toml that isn't stopped, stuck or too poor.

    It must have `least` wei, the cost of the cheapest intent. A stuck signer sends if no other can. If no signer can
    send, return the reason instead. The caller has locked `rows`.
    """
    notices: Notices = dict.fromkeys(rows)
    refused: WaitReason | None = None
    able: list[SendingSigner] = []
    for address, balance in balances.items():
        sender = _sender(rows[address], balance, nonces[address])
        # A stop gets no notice here, because it has one of its own.
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


def _sender(row: Signer, balance: int, nonce: int) -> SendingSigner:
    waiting = row.transactions.filter(state=TransactionState.PENDING)
    sums = waiting.aggregate(count=Count("pk"), gas=Sum("gas_limit"), gwei=Sum("reserved_gwei"))
    free = balance - GWEI * (sums["gwei"] or 0)
    return SendingSigner(row, nonce, balance, free, sums["count"], sums["gas"] or 0)


def _stuck(chain: Chain, row: Signer) -> Transaction | None:
    """Return the pending transaction with the lowest nonce if it has waited too long: later nonces wait behind it."""
    lowest = row.transactions.filter(state=TransactionState.PENDING).defer("data").order_by("nonce").first()
    patience = timedelta(seconds=max(_PATIENCE_SECONDS, _PATIENCE_BLOCKS * chain.block_seconds))
    # A time in the future was written while a clock was ahead.
    return lowest if lowest and abs(clock.earliest() - lowest.spent_at) > patience else None


def too_poor(chain: Chain, sender: SendingSigner, cost: int) -> WaitReason:
    """Say that the signer can't pay this cost, in wei, beside its pending transactions."""
    needed, signer = sender.balance - sender.free + cost, sender.row.address
    return wait("signer_too_poor", signer=signer, chain=chain.id, balance=sender.balance, needed=needed)


def show(rows: Collection[Signer], notices: Notices) -> None:
    """Store the signers' notices for pages, and log each change."""
    for row in rows:
        notice = notices[row.address]
        if row.notice or row.wait != notice:
            logger.warning("%s", notice or f"the signer {row.address} on chain {row.chain_id} sends again")
            Signer.objects.filter(pk=row.pk).update(wait=notice, notice="")
