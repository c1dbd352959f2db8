"""What a batch may cost by its fee, and a user's batches in a day, as admission holds them to it."""

from collections.abc import Iterator
from dataclasses import dataclass

from accounts import models
from accounts.models import User
from chains.chains_file import Chain
from config.configured_chains import get_chains
from proving.budget import money
from proving.budget.money import Reservation
from queries.columns import Rejection, RejectionCode


@dataclass(frozen=True)
class DailyAllowance:
    """The limit of a user's batches in any 24 hours, in wei, and how much is used, or reserved for open ones."""

    chain: Chain  # the destination
    most: int
    used: int

    @property
    def left(self) -> int:
        return max(0, self.most - self.used)

    @property
    def share(self) -> int:
        """Return how much is used, in percent."""
        return min(100, 100 * self.used // self.most) if self.most else 100


def of_user(user: User) -> list[DailyAllowance]:
    """Return the allowances of the user on all destinations that limit users."""
    found = (of_user_on(user, chain) for chain in get_chains().destinations())
    return [one for one in found if one is not None]


def of_user_on(user: User, destination: Chain) -> DailyAllowance | None:
    """Return the user's allowance on this destination; None where nothing is limited."""
    limit = models.daily_wei(user.daily_limits_wei, destination)
    return None if limit is None else DailyAllowance(destination, limit, money.to_user(user.pk, destination.id))


def too_large(user: User, destination: Chain, needed: Reservation, before: Reservation) -> Iterator[Rejection]:
    """Return a rejection for each limit that the batch, with what was admitted `before`, can never fit."""
    return filter(None, (_never_fits(limit, needed, before) for limit in _limits(user, destination)))


def exceeded(
    user: User, destination: Chain, needed: Reservation, before: Reservation, used: int
) -> Iterator[Rejection]:
    """Yield a rejection for each limit that leaves no room for this, now or ever, where the user has `used` so many wei
    of the day (`money.to_user`).

    With nothing `needed`, each limit that is used up is rejected.
    """
    for limit in _limits(user, destination):
        # What others have used up is waited for.
        of_limit = used if limit.is_users else 0
        if rejection := _never_fits(limit, needed, before) or _is_used_up(limit, needed, of_limit):
            yield rejection


def _never_fits(limit: "_DailyLimit", needed: Reservation, before: Reservation) -> Rejection | None:
    whole, shown = needed.wei + before.wei, limit.chain.amount
    rule = f"{limit.whose} may cost, on chain {limit.chain.id},"
    # Gas may become cheaper.
    retryable = bool(limit.most)
    if not limit.most:
        reason = f"{rule[0].upper()}{rule[1:]} {shown(0)} in 24 hours."
    elif whole > limit.most:
        reason = (
            f"This batch is estimated at {shown(whole)}, and {rule} {shown(limit.most)} in 24 hours. Send it in parts."
        )
    else:
        return None
    return Rejection(RejectionCode.TOO_LARGE_FOR_BUDGET, reason, retryable=retryable)


def _is_used_up(limit: "_DailyLimit", needed: Reservation, used: int) -> Rejection | None:
    more, shown = needed.wei, limit.chain.amount
    if used + more <= limit.most and (more or used < limit.most):
        return None
    said = f"; this batch is estimated at {shown(more)}." if more else "."
    return Rejection(
        RejectionCode.BUDGET_EXCEEDED,
        f"{limit.whose[0].upper()}{limit.whose[1:]} may cost, on chain {limit.chain.id}, {shown(limit.most)} in 24 "
        f"hours. {shown(used)} of this are used or reserved{said}",
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
    chain: Chain
    whose: str  # the beginning of a sentence
    most: int  # wei
    is_users: bool


def _limits(user: User, destination: Chain) -> Iterator[_DailyLimit]:
    """Yield the limits on this destination: of the user, and of all users."""
    if (most := models.daily_wei(user.daily_limits_wei, destination)) is not None:
        yield _DailyLimit(destination, "a user's batches", most, is_users=True)
    if (most := destination.daily_limit_wei) is not None:
        yield _DailyLimit(destination, "all batches together", most, is_users=False)
