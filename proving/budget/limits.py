"""What a transaction may cost.

Three limits bound what is signed on a chain that is no test network: a batch never pays more than its fee, a user's
batches no more than the limit per user, and all of them no more than the chain's daily limit.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from django.conf import settings
from django.db.models import Exists, OuterRef, Sum

from accounts import models
from chains.chains_file import Chain
from config.configured_chains import get_chains
from proving.budget import reservations
from proving.budget.reservations import sum_reserved_gas, sum_reserved_wei, sum_wei
from proving.gas_model import proof_gas
from proving.gas_model.proof_gas import RemainingWork
from proving.models import Transaction
from queries.models import Batch, Query


@dataclass(frozen=True)
class Limit:
    """The limit of a transaction's cost, so that the batch's fee or the user's limit suffices to the end."""

    batches: frozenset[str]  # that it holds for
    what: str  # of whose money
    gas: int  # that must be paid at about one price: this transaction's part, and what is reserved for the rest
    left: int  # wei for it
    queries: int  # that are unfinished

    @property
    def price(self) -> int:
        """Return wei for a unit of gas. Costs of batches are rounded, by less than a unit for each."""
        return max(0, self.left) // (self.gas + 1)

    def sentence(self, chain: Chain, price: int) -> str:
        """Say what is left undone at this price, and what it would take."""
        undone = "1 query is" if self.queries == 1 else f"{self.queries} queries are"
        return (
            f"{undone} left undone: at the present gas price of chain {chain.id}, {_gwei(price)}, they take about "
            f"{self.gas} gas, {chain.amount(self.gas * price)}, and {self.what} leaves "
            f"{chain.amount(max(0, self.left))}. Waiting for gas at {_gwei(self.price)} or less."
        )


Rest = Mapping[str, RemainingWork]
"""By batch: what is still to do beside certain transactions."""


def rest_of(chain: Chain, queries: Collection[int], *, proven: Collection[int] = (), with_paths: bool) -> Rest:
    """Count what these queries' batches still need, once the queries `proven` are.

    What completes queries comes first: only what leads to old blocks must leave enough `with_paths`.
    """
    return rests_of(chain, [(queries, proven)], with_paths=with_paths)[0]


def rests_of(
    chain: Chain, orders: Sequence[tuple[Collection[int], Collection[int]]], *, with_paths: bool
) -> list[Rest]:
    """Count what `rest_of` does for several orders, each with its queries and those that it proves.

    It takes long for large batches, so each batch is counted once for all orders.
    """
    if chain.test_network:
        return [{} for _ in orders]
    queries = {pk for of_order, _ in orders for pk in of_order}
    batches = Batch.objects.filter(Exists(Query.objects.filter(batch=OuterRef("pk"), pk__in=queries))).defer("request")
    work = {batch.pk: proof_gas.unproven(batch, with_paths=with_paths) for batch in batches}
    return [{batch: one.without(proven) for batch, one in work.items()} for _, proven in orders]


def for_each(chain: Chain, stored: Mapping[Transaction, Counter[str]], rest: Rest) -> Iterator[list[Limit]]:
    """Yield the limits of each of these stored transactions, whose own share doesn't count.

    `rest` is that beside all of them. `stored` has them in their order, with `weights_of` each. Each is worked out when
    it is asked for: the shares of those before count, and those behind are reserved.
    """
    following: Counter[str] = sum(stored.values(), Counter())
    for tx, own in stored.items():
        following -= own
        yield [*_limits_by_fee(chain, tx, own, rest, following), *_limits_by_user(chain, tx, own)]


def _limits_by_fee(
    chain: Chain, tx: Transaction, portions: Counter[str], rest: Rest, following: Counter[str]
) -> Iterator[Limit]:
    if chain.test_network:
        return
    for batch in Batch.objects.filter(pk__in=portions).defer("request"):
        work = rest.get(batch.pk, RemainingWork())
        others = reservations.paid_by(batch).exclude(transaction=tx)
        # Of a path, the transaction is a part.
        behind = replace(work, path_gas=max(0, work.path_gas - portions[batch.pk])).gas
        signed = portions[batch.pk] + following[batch.pk]
        # What is partly proven counts whole: but all of it takes no more than was estimated.
        most = (batch.estimated_gas or 0) - (others.aggregate(total=Sum("gas"))["total"] or 0)
        # What is admitted later brings its own part of a fee that is the estimate.
        unadmitted = 0 if batch.fee_is_estimate else work.unadmitted_gas
        gas = max(signed, min(signed + behind, most)) + unadmitted
        left = batch.fee - sum_wei(others) - _data_fee(tx, gas)
        yield Limit(frozenset({batch.pk}), "the batch's fee", gas, left, _unfinished([batch.pk]))


def _limits_by_user(chain: Chain, tx: Transaction, portions: Counter[str]) -> Iterator[Limit]:
    batches_of: dict[int, set[str]] = defaultdict(set)
    limits: dict[int, int | None] = {}
    for pk, user, own in Batch.objects.filter(pk__in=portions).values_list("pk", "user", "user__daily_limits_wei"):
        batches_of[user].add(pk)
        limits[user] = models.daily_wei(own, chain)
    for user, batches in batches_of.items():
        if (most := limits[user]) is None:
            continue
        gas = sum(portions[pk] for pk in batches)
        others = reservations.in_a_day(user, [chain.id]).exclude(transaction=tx)
        left = most - sum_reserved_wei(others) - _data_fee(tx, gas)
        yield Limit(frozenset(batches), "the daily limit of its user", gas, left, _unfinished(batches))


def why_over_budget(chain: Chain, tx: Transaction, portions: Counter[str]) -> tuple[str, frozenset[str]] | None:
    """Say why a stored transaction, whose own share doesn't count, exceeds a user's gas budget, and for which batches.

    Admission counts what is expected; this holds also for what reverts and is sent again.
    """
    if chain.test_network:
        return None
    costly = [one.id for one in get_chains().destinations() if not one.test_network]
    by_user: Counter[int] = Counter()
    users: dict[str, int] = {}
    budgets: dict[int, int] = {}
    for batch, user, own in Batch.objects.filter(pk__in=portions).values_list("pk", "user", "user__daily_gas_budget"):
        users[batch] = user
        budgets[user] = models.own_or(own, settings.DAILY_GAS_BUDGET)
        by_user[user] += portions[batch]
    for user, gas in by_user.items():
        others = reservations.in_a_day(user, costly).exclude(transaction=tx)
        left = budgets[user] - sum_reserved_gas(others)
        if gas > left:
            sentence = (
                f"The transaction may take {gas} gas, and of the {budgets[user]} gas that a user's batches "
                f"may use in 24 hours {max(0, left)} are left. Waiting until there is room."
            )
            return sentence, frozenset(batch for batch, owner in users.items() if owner == user)
    return None


def _data_fee(tx: Transaction, gas: int) -> int:
    """Return the data fee of this gas, in wei, if it carries as much data as the transaction's gas does."""
    return tx.data_fee * gas // tx.gas_limit


def _unfinished(batches: Collection[str]) -> int:
    return Query.objects.filter(batch__in=batches, step__isnull=False).count()


def _gwei(wei: int) -> str:
    return f"{wei / 10**9:.3f} gwei"
