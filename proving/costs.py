"""What proving costs: estimates before, and each batch's share of the gas afterwards."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Case, Exists, F, OuterRef, Sum, When
from django.utils import timezone

from config.chains import get_chains
from proving.models import LIVE_STATES, Share, Transaction, TransactionState
from queries.models import OPEN_STATUSES, Batch, Query

_TRANSACTION_GAS = 21_000
_SPENT_STATES = (TransactionState.CONFIRMED, TransactionState.FINAL)


# --- Before -----------------------------------------------------------------------------------------------------------

# Rounded up from what the transactions of this service use for mainnet-sized proofs (make bench-gas).
_HEADER_GAS = 60_000
_HEADER_FIELD_GAS = 25_000
_ACCOUNT_GAS = 200_000
_FIRST_SLOT_GAS = 170_000  # of an account; the others share its upper nodes
_SLOT_GAS = 60_000
_TIME_GAS = 120_000
# Of a block that rides along with the way to another one: one slot more in a proof.
RIDER_GAS = 30_000


@dataclass
class Work:
    """What the registries don't hold yet of a batch, by kind."""

    headers: int = 0
    header_fields: int = 0
    accounts: int = 0
    first_slots: int = 0
    slots: int = 0  # beside the first of each account
    times: int = 0
    way_gas: int = 0  # by which the registry comes to trust the blocks

    def estimate_gas(self) -> int:
        """What proving it takes, on the high side."""
        gas = (
            self.headers * _HEADER_GAS
            + self.header_fields * _HEADER_FIELD_GAS
            + self.accounts * _ACCOUNT_GAS
            + self.first_slots * _FIRST_SLOT_GAS
            + self.slots * _SLOT_GAS
            + self.times * _TIME_GAS
            + self.way_gas
        )
        return gas + _TRANSACTION_GAS if gas else 0


def gas_in_last_day(user_id: int) -> int:
    """Gas that a user's batches of the last 24 hours have used, or are expected to use while they are open."""
    since = timezone.now() - timedelta(days=1)
    gas = Case(When(status__in=OPEN_STATUSES, then=F("estimated_gas")), default=F("gas_used"))
    return Batch.objects.filter(user=user_id, created_at__gt=since).aggregate(total=Sum(gas))["total"] or 0


def affordable_price(tx: Transaction) -> int | None:
    """The most that a unit of the transaction's gas may cost, in wei, so that no batch pays more than its fee.

    None where fees don't count. What the batches' other transactions have cost, or may still cost, is taken off.
    """
    if get_chains().chain(tx.signer.chain_id).test_network:
        return None
    portions = _portions(tx, tx.gas_limit)
    prices = []
    for batch in Batch.objects.filter(pk__in=portions).only("fee", "spent"):
        under_way = Query.objects.filter(batch=batch, transactions=OuterRef("pk"))
        others = Transaction.objects.filter(Exists(under_way), state__in=LIVE_STATES).exclude(pk=tx.pk)
        promised = sum(
            _portions(other, other.gas_limit)[batch.pk] * other.newest.max_fee_per_gas
            for other in others.defer("data").prefetch_related("versions")
        )
        prices.append(max(0, batch.fee - batch.spent - promised) // (portions[batch.pk] + 1))
    return min(prices, default=None)


def _portions(tx: Transaction, gas: int) -> Counter[str]:
    """How much of a transaction's gas each of its batches causes.

    Evenly by queries; but who rides along with a way to another block pays for what that adds, and not for the way.
    """
    portions: Counter[str] = Counter()
    asking = list(tx.queries.values_list("batch", "block"))
    main = [batch for batch, block in asking if tx.leads_to_id in {None, block}]
    riders = [(batch, block) for batch, block in asking if tx.leads_to_id not in {None, block}] if main else []
    at_block = Counter(block for _, block in riders)
    each = min(RIDER_GAS, gas // (1 + len(at_block)))
    for batch, block in riders:
        portions[batch] += each // at_block[block]
    rest = gas - portions.total()
    everybody = main or [batch for batch, _ in asking]
    for batch, count in Counter(everybody).items():
        portions[batch] += rest * count // len(everybody)
    return portions


# --- Afterwards -------------------------------------------------------------------------------------------------------


def share(tx: Transaction) -> None:
    """Divide a transaction's gas among its batches, after it was confirmed or taken back.

    Derived anew each time, never added up: doing it twice changes nothing. Inside the caller's database transaction.
    """
    touched = set(tx.shares.values_list("batch", flat=True))
    tx.shares.all().delete()
    if tx.state in _SPENT_STATES:
        portions = _portions(tx, tx.gas_used)
        touched.update(portions)
        for batch, gas in portions.items():
            Share.objects.create(transaction=tx, batch_id=batch, gas=gas, wei=gas * tx.gas_price)
    for batch in sorted(touched):
        shares = list(Share.objects.filter(batch=batch).values_list("gas", "wei"))
        Batch.objects.filter(pk=batch).update(
            gas_used=sum(gas for gas, _ in shares), spent=sum(wei for _, wei in shares)
        )
