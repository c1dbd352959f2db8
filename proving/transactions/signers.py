"""The signers of a destination: what of each is pending, and which of them sends what comes next.

Each has nonces of its own, which are mined in their order. So what waits behind one that isn't mined waits with one
signer alone.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction

from chains.chains_file import Chain
from proving.models import LIVE_STATES, Signer, Transaction, TransactionState
from proving.transactions import signing
from proving.transactions.intents import Order
from queries import clock
from queries.models import Block

# A nonce may wait for the longer of the two.
_PATIENCE_SECONDS, _PATIENCE_BLOCKS = 60, 10


@dataclass
class Pending:
    """The sent transactions of one signer that aren't mined."""

    gas: dict[int, int] = field(default_factory=dict)
    """Gas limits by the ids of its transactions, in the order of their nonces."""
    since: datetime | None = None
    """The time when the lowest of its nonces was signed, or left the chain; None where nothing is pending."""

    def is_stuck(self, chain: Chain) -> bool:
        """Return whether its lowest nonce has waited so long that others may have to wait as long behind it."""
        # A moment that lies ahead is that of a clock that was ahead.
        return self.since is not None and abs(clock.earliest() - self.since) > _patience(chain)


def _patience(chain: Chain) -> timedelta:
    """Return how long a nonce may wait: some blocks, and time for its fees to be raised."""
    return timedelta(seconds=max(_PATIENCE_SECONDS, _PATIENCE_BLOCKS * chain.block_seconds))


def why_none(chain: Chain) -> str:
    """Return a sentence if the chain has no signer; else an empty one."""
    if chain.all_signers:
        return ""
    return (
        f"This service has no signer on chain {chain.id}, so it sends nothing there. Batches with the sender self are "
        "proven, by transactions that their submitters send."
    )


@contextmanager
def locked(chain: Chain, addresses: Collection[str] = ()) -> Iterator[dict[int, Signer]]:
    """Open a database transaction in which nobody else sends on this chain. Gives the rows as they are now, by pk.

    It locks all of them, those too that the file names no more, and always in one order: who holds one waits for none.
    Rows of these `addresses` are made where they are missing.
    """
    with transaction.atomic():
        locking = Signer.objects.filter(chain_id=chain.id).order_by("pk").select_for_update(no_key=True)
        rows = {row.pk: row for row in locking}
        if missing := set(addresses).difference(row.address for row in rows.values()):
            made = [Signer(chain_id=chain.id, address=address) for address in sorted(missing)]
            Signer.objects.bulk_create(made, ignore_conflicts=True)
            rows = {row.pk: row for row in locking.all()}
        yield rows


def pending(chain: Chain) -> dict[str, Pending]:
    """Return what is pending by address, in the file's order."""
    found = {address: Pending() for address in signing.senders(chain)}
    waiting = Transaction.objects.filter(
        signer__chain_id=chain.id, signer__address__in=found, state=TransactionState.PENDING
    )
    columns = waiting.order_by("nonce").values_list("signer__address", "pk", "gas_limit", "spent_at")
    for address, pk, gas, since in columns:
        found[address].gas[pk] = gas
        found[address].since = found[address].since or since
    return found


def free(chain: Chain, pending: Mapping[str, Pending]) -> list[str]:
    """Return the addresses of signers that aren't stuck; of all, if all are."""
    return [address for address, one in pending.items() if not one.is_stuck(chain)] or list(pending)


def ranked(chain: Chain, pending: Mapping[str, Pending], follows: Collection[str] = ()) -> list[str]:
    """Return addresses, first the signer that should send next: one that isn't stuck, and has the least pending.

    A signer that it `follows` goes before: nonces of one signer are mined in order, those of two in any order.
    """
    not_stuck = free(chain, pending)

    def rank(address: str) -> tuple[bool, bool, int, int]:
        gas = pending[address].gas
        return (address not in not_stuck, address not in follows, len(gas), sum(gas.values()))

    return sorted(pending, key=rank)


def why_left_out(signer: Signer, pending: Pending) -> str:
    """Return a sentence for the operator about a signer that is stuck while others are not."""
    lowest = Transaction.objects.defer("data").get(pk=next(iter(pending.gas)))
    return (
        f"The signer {signer.address} on chain {signer.chain_id} sends nothing more until its transaction "
        f"{lowest.latest_hash} is mined, which has waited for long. What comes meanwhile is sent by others."
    )


@dataclass(frozen=True)
class Beside:
    """The transactions under way beside an order, about its block or for the registry's trust.

    The order may rest on it: on a header that a reorganisation can take back, or on storage that is written by then,
    which costs less.
    """

    senders: frozenset[str] = frozenset()
    is_pending: bool = False  # some of it is not mined


def beside(orders: Sequence[Order]) -> list[Beside]:
    """Return what is under way beside each of these orders."""
    by_block = _under_way("queries__block", {order.block.pk for order in orders if order.block})
    by_registry = _under_way("extends", {one.extends for order in orders for one in order.intents if one.extends})
    found: list[Beside] = []
    for order in orders:
        sent = {*by_block.get(order.block.pk, ())} if order.block else set()
        sent.update(*(by_registry.get(intent.extends, ()) for intent in order.intents if intent.extends))
        is_pending = any(state == TransactionState.PENDING for _, state in sent)
        found.append(Beside(frozenset(address for address, _ in sent), is_pending))
    return found


def _under_way(about: str, wanted: Collection[int]) -> dict[int, list[tuple[str, str]]]:
    """Return the senders and states of live transactions, by what these are about."""
    live = Transaction.objects.filter(**{f"{about}__in": wanted}, state__in=LIVE_STATES)
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for pk, address, state in live.order_by().values_list(about, "signer__address", "state").distinct():
        found[pk].append((address, state))
    return found


# --- Room -------------------------------------------------------------------------------------------------------------

# How much may wait to be mined, in all and of one user: a signer's nonces are mined in order, so that a user who comes
# next waits for all that it has sent before. Each user may have as much as is left free (a dynamic threshold: Choudhury
# and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998): one alone takes half of the
# room, the next half of the rest. Each signer of a destination has room of its own.
# Of one signer: transactions, about as many as nodes keep of one account, and gas, a few blocks' worth.
_TRANSACTIONS, _GAS = 64, 120_000_000


@dataclass(frozen=True)
class Room:
    """The room that one signer has for more transactions of one user."""

    transactions: int
    gas: int
    has_none: bool
    """True if the user has nothing under way: then one may always be sent."""

    def fits(self, gas_limits: Sequence[int]) -> int:
        """Return how many of these transactions fit, the first ones. What isn't used up yet is enough for one more."""
        before = itertools.accumulate(gas_limits, initial=0)
        count = sum(1 for _, used in zip(gas_limits, before, strict=False) if used < self.gas)
        return max(min(self.transactions, count), 1 if self.has_none and gas_limits else 0)


def most(chain: Chain, blocks: Sequence[Block | None], pending: Mapping[str, Pending]) -> list[int]:
    """Return for each block how many more transactions one of the chain's signers may send, for the user in whose
    turns the block is; for none, as many as may be pending. How much gas they take is not known yet.
    """
    with_room = free(chain, pending)
    by_user: dict[int | None, int] = {}
    for block in blocks:
        if block is not None and block.turn_of_id not in by_user:
            rooms = left_by_signer(chain, block, pending)
            by_user[block.turn_of_id] = max(rooms[address].fits([0] * _TRANSACTIONS) for address in with_room)
    return [_TRANSACTIONS if block is None else by_user[block.turn_of_id] for block in blocks]


def left_by_signer(chain: Chain, block: Block, pending: Mapping[str, Pending]) -> dict[str, Room]:
    """Return the room for that user, by a signer's address."""
    of_user: set[int] = set()
    if any(one.gas for one in pending.values()):
        own = Transaction.objects.filter(
            signer__chain_id=chain.id,
            signer__address__in=pending,
            state=TransactionState.PENDING,
            queries__block__turn_of=block.turn_of_id,
        )
        of_user.update(own.values_list("pk", flat=True))
    return {address: _room(one.gas, of_user) for address, one in pending.items()}


def _room(gas: Mapping[int, int], of_user: set[int]) -> Room:
    own = [gas[pk] for pk in gas if pk in of_user]
    return Room(_TRANSACTIONS - len(gas) - len(own), _GAS - sum(gas.values()) - sum(own), not of_user)
