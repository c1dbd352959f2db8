"""What counts against the limits: what was spent in the last 24 hours, and what may still be.

What is pending counts as the most that it can cost. When something is signed, so does all that isn't final: until then
a node may lie about what it has cost.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Q, QuerySet, Sum, Value
from django.db.models.functions import Greatest
from django.utils import timezone

from proving.models import Share, Transaction, TransactionState, goes_to_replaced_registry
from queries import clock
from queries.models import OPEN_STATUSES, Batch, Sender

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Reservation:
    """An amount that is spent, or may still be."""

    gas: int
    wei: int

    def __add__(self, other: "Reservation") -> "Reservation":
        return Reservation(self.gas + other.gas, self.wei + other.wei)


def to_user(user_id: int, destinations: Collection[int]) -> Reservation:
    """Add up what the user's batches cause on these destinations.

    That is their cost of the last 24 hours, rejected ones included, and what the open ones are still
    expected to cause.
    """
    batches = Batch.objects.filter(user=user_id, destination_chain_id__in=destinations)
    # Nothing is sent here for a self-funded batch.
    open_ones = batches.filter(status__in=OPEN_STATUSES, sender=Sender.OPERATOR).exclude(estimated_gas=None)
    of_day = in_a_day(user_id, destinations).annotate(of_open=Value(value=False))
    of_open_ones = _shares().filter(batch__in=open_ones).annotate(of_open=Value(value=True))
    columns = ("batch", "gas", "wei", "of_open")
    gas, wei = 0, 0
    caused: dict[str, list[tuple[int, int]]] = defaultdict(list)
    # By one statement, and before the estimates: what is sent or mined meanwhile must not be missing from both. Not by
    # an OR, for which PostgreSQL reads everybody's.
    both = of_day.values_list(*columns).union(of_open_ones.values_list(*columns), all=True)
    for batch, share_gas, share_wei, is_of_open in both:
        if is_of_open:
            caused[batch].append((share_gas, share_wei))
        else:
            gas, wei = gas + share_gas, wei + share_wei
    for batch, estimated_gas, estimated_wei in open_ones.values_list("pk", "estimated_gas", "estimated_wei"):
        gas += max(0, (estimated_gas or 0) - sum(of_share[0] for of_share in caused[batch]))
        wei += max(0, (estimated_wei or 0) - sum(of_share[1] for of_share in caused[batch]))
    return Reservation(gas, wei)


def in_a_day(user_id: int, destinations: Collection[int]) -> QuerySet[Share]:
    """Return the shares that count against the user's daily limits on these destinations."""
    return _shares().filter(recent("transaction__"), batch__user=user_id, batch__destination_chain_id__in=destinations)


def on_chain(chain_id: int) -> int:
    """Return the wei that the chain's signers spent in the last 24 hours, and may still spend by what is pending."""
    # Asked for with each signature: the database keeps the signed versions, of which there are more than transactions.
    columns = ("state", "gas_limit", "gas_used", "gas_price", "data_fee", "expected_data_fee")
    cancels = Q(versions__gas_limit__isnull=False)
    sent = Transaction.objects.filter(recent(), signer__chain_id=chain_id).annotate(
        price=Max("versions__max_fee_per_gas", filter=~cancels),
        cancelling_gas=Max("versions__gas_limit", filter=cancels),
        cancelling_price=Max("versions__max_fee_per_gas", filter=cancels),
    )
    wei = 0
    for *values, price, cancelling_gas, cancelling_price in sent.values_list(
        *columns, "price", "cancelling_gas", "cancelling_price"
    ):
        tx = Transaction(**dict(zip(columns, values, strict=False)))
        most = max(tx.gas_limit * (price or 0), (cancelling_gas or 0) * (cancelling_price or 0))
        wei += tx.reserved_with(most)
    return wei


def recent(prefix: str = "") -> Q:
    """Select what is spent in the last 24 hours, or pending.

    `prefix` leads to the transaction, and ends in `__`.
    """
    in_a_day = Q(**{f"{prefix}spent_at__gt": _day_began()})
    return in_a_day | Q(**{f"{prefix}state": TransactionState.PENDING})


def recount() -> None:
    """Count what a clock far ahead has stamped, for a day from now."""
    if clock.is_confirmed():
        now = timezone.now()
        Transaction.objects.filter(spent_at__gt=now + clock.BEHIND).update(spent_at=now)


def _day_began() -> datetime:
    return clock.earliest() - _DAY


def sum_wei(shares: QuerySet[Share]) -> int:
    """Add up these shares, in wei."""
    # Databases don't add up 256 bits.
    return sum(shares.values_list("wei", flat=True))


def sum_reserved_wei(shares: QuerySet[Share]) -> int:
    """Return the wei that count of these shares against their users' limits. Older versions have reserved nothing."""
    return sum(max(row) for row in shares.values_list("wei", "reserved_wei"))


def sum_reserved_gas(shares: QuerySet[Share]) -> int:
    """Return the gas that counts of these shares against their users' budgets."""
    return shares.aggregate(total=Sum(Greatest("gas", "reserved_gas")))["total"] or 0


def paid_by(batch: Batch) -> QuerySet[Share]:
    """Return the shares that count against the batch's fee."""
    return _shares().filter(batch=batch)


def _shares() -> QuerySet[Share]:
    """Return the shares that count against fees and limits of users: what went to replaced registries doesn't."""
    return Share.objects.filter(~goes_to_replaced_registry())


def caused_by(batch: Batch) -> int:
    """Return the wei that a batch has spent, and that its pending transactions can cost."""
    return sum_wei(paid_by(batch))
