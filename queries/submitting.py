"""A submission from its arrival to what it is answered, whether a program or a page sends it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db import Error as DatabaseError

from accounts.models import ApiKey, User
from config.configured_chains import get_chains
from queries import batch_request, idempotency, submission, submission_rate

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Submitted:
    batch_id: str
    is_replayed: bool  # a former request with the same Idempotency-Key has made it


def submit(key: ApiKey, named_by: str | None, body_of: Callable[[], bytes]) -> Submitted:
    """Store what `body_of` reads as a batch of the key's user, and count it, or that it was refused.

    `named_by` is the header Idempotency-Key. Raises `InvalidRequest`, and `Refused` for all else: what `body_of`,
    `idempotency.read`, `Earlier.check`, `account_names.resolve`, `submission.store` and `submission_rate` raise.
    """
    with _counting(key.user):
        named = idempotency.read(named_by, key.user_id)
    earlier = named.find() if named else None
    if earlier:
        return _replayed(key.user, earlier, body_of)
    submission_rate.check(key.user)
    try:
        with _counting(key.user):
            body = body_of()
            parsed = batch_request.parse(body, get_chains(), max_queries=settings.MAX_QUERIES_PER_BATCH)
            batch = submission.store(parsed, body, key, named)
    except idempotency.AlreadyStored as already:
        return _replayed(key.user, already.earlier, body_of)
    # Workers' lines have the batch and not the request.
    logger.info("batch %s is stored", batch.pk, extra={"batch": batch.pk})
    return Submitted(batch.pk, is_replayed=False)


def _replayed(user: User, earlier: idempotency.Earlier, body_of: Callable[[], bytes]) -> Submitted:
    """Answer as an earlier request with the same key was answered."""
    submission_rate.count_request(user)
    earlier.check(body_of())
    return Submitted(earlier.batch_id, is_replayed=True)


@contextmanager
def _counting(user: User) -> Iterator[None]:
    """Count a request that is refused in this block. What is stored was counted with it, in one transaction."""
    try:
        yield
    except (DatabaseError, idempotency.AlreadyStored):
        raise  # To count it would wait for the same lock once more; the other one is counted as an answer.
    except Exception:
        submission_rate.count_request(user)
        raise
