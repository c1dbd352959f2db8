"""How often, and how much, a user may submit in a minute, and have estimated.

Every request counts, refused ones too: refusing one may cost as much as storing one. Accounts, slots and headers
count only once they are stored, or estimated. Status polls don't count: they come every few seconds, and must cost no
write.
"""

from dataclasses import dataclass

from django.conf import settings

from accounts import throttle
from accounts.models import User, own_or
from config.error_answers import Refused

REQUESTS, QUERIES = "submissions", "submitted queries"


@dataclass(frozen=True)
class Rate:
    """A kind of request that is counted by itself. The same limits hold for each."""

    verb: str
    requests: str
    queries: str


SUBMISSIONS = Rate("submit", REQUESTS, QUERIES)
ESTIMATES = Rate("estimate", "estimates", "estimated queries")


class TooLarge(Refused):
    """It is more than the user may ever submit in a minute."""

    def __init__(self, sentence: str) -> None:
        super().__init__("too_large_for_limit", f"{sentence} Ask the operator of this service for more.")


def check(user: User) -> None:
    """Check that the user may submit now. Only reads.

    Raises `TooLarge`, and `Refused`: too_many_requests where the user has to wait anyway.
    """
    batches, queries = _batches(user), _queries(user)
    if not batches or not queries:
        raise TooLarge("You may submit no batches.")
    # A request holds at least one query, so there is nothing to do once the queries are used up.
    limits = ((QUERIES, queries), (REQUESTS, batches))
    seconds = next(filter(None, (throttle.seconds_to_wait(what, user.pk, most) for what, most in limits)), 0)
    _refuse_for(user, seconds, SUBMISSIONS)


def count_request(user: User, rate: Rate = SUBMISSIONS) -> None:
    """Count one request of the user. Raises `TooLarge`, and `Refused`: too_many_requests."""
    if not (most := _batches(user)):
        raise TooLarge("You may submit no batches.")
    _refuse_for(user, throttle.take(rate.requests, user.pk, most), rate)


def count_queries(user: User, queries: int, rate: Rate = SUBMISSIONS) -> None:
    """Count the accounts, slots and headers that a request asks for.

    Raises `TooLarge`, and `Refused`: too_many_requests.
    """
    if queries > (most := _queries(user)):
        raise TooLarge(
            f"This batch has {queries} accounts, slots and headers, and you may submit {most} in a minute. Send it in "
            "parts."
        )
    _refuse_for(user, throttle.take(rate.queries, user.pk, most, queries), rate)


def _batches(user: User) -> int:
    return own_or(user.max_batches_per_minute, settings.MAX_BATCHES_PER_MINUTE)


def _queries(user: User) -> int:
    return own_or(user.max_queries_per_minute, settings.MAX_QUERIES_PER_MINUTE)


def _refuse_for(user: User, seconds: int, rate: Rate) -> None:
    if seconds:
        raise Refused(
            "too_many_requests",
            f"You may {rate.verb} {_batches(user)} batches a minute, faulty ones included, with {_queries(user)} "
            "accounts, slots and headers in them.",
            retry_after=seconds,
        )
