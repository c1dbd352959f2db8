"""How often, and how much, a user may submit in a minute.

Every request counts, whatever becomes of it: refusing one may cost as much as storing one. Accounts, slots and headers
count only once they are stored. Status polls don't count: they come every few seconds, and must cost no write.
"""

from django.conf import settings

from accounts import throttle
from config.error_answers import Refused

REQUESTS, QUERIES = "submissions", "submitted queries"


def check(user_id: int) -> None:
    """Raises `Refused`: too_many_requests where the user has to wait anyway. Only reads."""
    # A request holds at least one query, so there is nothing to do once the queries are used up.
    limits = ((QUERIES, settings.MAX_QUERIES_PER_MINUTE), (REQUESTS, settings.MAX_BATCHES_PER_MINUTE))
    _refuse_for(next(filter(None, (throttle.seconds_to_wait(what, user_id, most) for what, most in limits)), 0))


def count_request(user_id: int) -> None:
    """Count one request of the user. Raises `Refused`: too_many_requests."""
    _refuse_for(throttle.take(REQUESTS, user_id, settings.MAX_BATCHES_PER_MINUTE))


def count_queries(user_id: int, queries: int) -> None:
    """Count the accounts, slots and headers that a request asks for. Raises `Refused`: too_many_requests."""
    _refuse_for(throttle.take(QUERIES, user_id, settings.MAX_QUERIES_PER_MINUTE, queries))


def _refuse_for(seconds: int) -> None:
    if seconds:
        raise Refused(
            "too_many_requests",
            f"You may submit {settings.MAX_BATCHES_PER_MINUTE} batches a minute, faulty ones included, with "
            f"{settings.MAX_QUERIES_PER_MINUTE} accounts, slots and headers in them.",
            retry_after=seconds,
        )
