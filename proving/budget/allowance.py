"""What a batch may cost by its fee, and a user's batches in a day, as admission holds them to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from django.conf import settings

from accounts import models
from accounts.models import User
from chains.chains_file import Chain
from config.configured_chains import get_chains
from proving.budget import reservations
from proving.budget.reservations import Reservation
from queries.columns import Rejection, RejectionCode


@dataclass(frozen=True)
class DailyAllowance:
    """The limit of a user's batches in any 24 hours, and how much of it is used, or reserved for open ones."""

    chain: Chain | None  # in wei, on this destination; None: in gas, on all that are no test networks
    most: int
    used: int

    @property
    def left(self) -> int:
        return max(0, self.most - self.used)

    @property
    def share(self) -> int:
        """Return how much is used, in percent."""
        return min(100, 100 * self.used // self.most) if self.most else 100


def of_user(user: User) -> Iterator[DailyAllowance]:
    """Yield the allowances of the user; none if only test networks are proven to, and nothing else is set."""
    yield from _in_gas(user)
    for chain in get_chains().destinations():
        yield from _in_wei(user, chain)


def of_user_on(user: User, destination: Chain) -> Iterator[DailyAllowance]:
    """Yield the allowances of `of_user` that a batch for this destination counts against."""
    if not destination.test_network:
        yield from _in_gas(user)
    yield from _in_wei(user, destination)


def _in_gas(user: User) -> Iterator[DailyAllowance]:
    if costly := [chain.id for chain in get_chains().destinations() if not chain.test_network]:
        most = models.own_or(user.daily_gas_budget, settings.DAILY_GAS_BUDGET)
        yield DailyAllowance(None, most, reservations.to_user(user.pk, costly).gas)


def _in_wei(user: User, chain: Chain) -> Iterator[DailyAllowance]:
    if (limit := models.daily_wei(user.daily_limits_wei, chain)) is not None:
        yield DailyAllowance(chain, limit, reservations.to_user(user.pk, [chain.id]).wei)


def too_large(user: User, destination: Chain, needed: Reservation, before: Reservation) -> Iterator[Rejection]:
    """Return a rejection for each limit that the batch, with what was admitted `before`, can never fit."""
    return filter(None, (_never_fits(limit, needed, before) for limit in _limits(user, destination)))


def exceeded(user: User, destination: Chain, needed: Reservation, before: Reservation) -> Iterator[Rejection]:
    """Yield a rejection for each limit that leaves no room for this, now or ever.

    With nothing `needed`, each limit that is used up is rejected.
    """
    for limit in _limits(user, destination):
        if rejection := _never_fits(limit, needed, before) or _is_used_up(limit, needed):
            yield rejection


def _never_fits(limit: "_DailyLimit", needed: Reservation, before: Reservation) -> Rejection | None:
    whole = limit.part(needed) + limit.part(before)
    retryable = False
    if not limit.most:
        reason = f"{limit.rule[0].upper()}{limit.rule[1:]} {limit.shown(0)} in 24 hours."
    elif whole > limit.most:
        reason = (
            f"This batch is estimated at {limit.shown(whole)}, and {limit.rule} {limit.shown(limit.most)} in 24 hours. "
            "Send it in parts."
        )
        # Gas may become cheaper.
        retryable = limit.is_in_wei
    else:
        return None
    return Rejection(RejectionCode.TOO_LARGE_FOR_BUDGET, reason, retryable=retryable)


def _is_used_up(limit: "_DailyLimit", needed: Reservation) -> Rejection | None:
    more, used = limit.part(needed), limit.reserved()
    if used + more <= limit.most and (more or used < limit.most):
        return None
    said = f"; this batch is estimated at {limit.shown(more)}." if more else "."
    return Rejection(
        RejectionCode.BUDGET_EXCEEDED,
        f"{limit.rule[0].upper()}{limit.rule[1:]} {limit.shown(limit.most)} in 24 hours. {limit.shown(used)} "
        f"of this are used or reserved{said}",
        retryable=True,
    )


def fee_too_low(fee: int, needed: Reservation, *, path_gas: int, data_wei: int) -> Rejection | None:
    """Return a rejection if a fee, in wei, is less than this needs.

    `path_gas` of it is for paths, `data_wei` for a rollup's data.
    """
    if needed.wei <= fee:
        return None
    path = f", {path_gas:,} of it for the path to old blocks" if path_gas else ""
    beside = f", and {data_wei:,} wei for its data" if data_wei else ""
    return Rejection(
        RejectionCode.FEE_TOO_LOW,
        f"Proving this batch may cost {needed.wei:,} wei, more than its fee of {fee:,} wei. It is estimated at "
        f"{needed.gas:,} gas{path}{beside}, at a gas price a quarter above the present one.",
        retryable=True,
    )


@dataclass(frozen=True)
class _DailyLimit:
    rule: str  # the beginning of a sentence
    most: int
    reserved: Callable[[], int]
    part: Callable[[Reservation], int]
    shown: Callable[[int], str]
    is_in_wei: bool = True


def _limits(user: User, destination: Chain) -> Iterator[_DailyLimit]:
    """Yield limits in gas over all destinations that cost real money, and in the currency of this one."""
    if not destination.test_network:
        costly = [chain.id for chain in get_chains().destinations() if not chain.test_network]
        yield _DailyLimit(
            "a user's batches may use",
            models.own_or(user.daily_gas_budget, settings.DAILY_GAS_BUDGET),
            lambda: reservations.to_user(user.pk, costly).gas,
            attrgetter("gas"),
            "{} gas".format,
            is_in_wei=False,
        )
    if (most := models.daily_wei(user.daily_limits_wei, destination)) is not None:
        yield _DailyLimit(
            f"a user's batches may cost, on chain {destination.id},",
            most,
            lambda: reservations.to_user(user.pk, [destination.id]).wei,
            attrgetter("wei"),
            destination.amount,
        )
    if (most := destination.daily_limit_wei) is not None:
        # What others have used up is waited for.
        yield _DailyLimit(
            f"all batches together may cost, on chain {destination.id},",
            most,
            lambda: 0,
            attrgetter("wei"),
            destination.amount,
        )
