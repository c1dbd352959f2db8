"""Locks of rows, for databases that run transactions side by side. They last until the transaction ends.

SQLite runs transactions one after another (`config.settings` says how), so there these functions do nothing.
Elsewhere what a transaction reads may change until it writes, unless the rows that it depends on are locked.

Nobody may wait in a circle. So everybody locks in the same order: signers, users, blocks, batches, and then what
belongs to a batch: queries, steps and shares, which nobody writes who hasn't locked the batch or the signer; and last
webhooks, which are locked for their deliveries too. Rows of one table are locked by primary key. Where new rows break
the order, the database ends one of the two transactions with an error, and `retried` does that one again.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import OperationalError, connection
from django.db.models import Model, QuerySet

logger = logging.getLogger(__name__)

_TRIES = 5
# Before the next one, in which those who waited take what has become free: otherwise it meets them again.
_PAUSE_SECONDS = 0.05
# serialization_failure and deadlock_detected (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_CIRCLES = {"40001", "40P01"}

_M = TypeVar("_M", bound=Model)
_Result = TypeVar("_Result")


def lock(rows: QuerySet[_M]) -> None:
    """Keep these rows from other transactions. What is read after that is as the others have left it."""
    if connection.features.has_select_for_update:
        list(rows.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))


def retried(write: Callable[[], _Result]) -> _Result:
    """Return what `write` returns. Call it again where the database ended its transaction because of others.

    Inside a transaction it is called once: that transaction has ended, too.
    """
    is_inside = connection.in_atomic_block
    for _ in range(_TRIES - 1):
        try:
            return write()
        except OperationalError as error:
            if is_inside or getattr(error.__cause__, "sqlstate", None) not in _CIRCLES:
                raise
            logger.warning("a database transaction is done again: %s", error)
            time.sleep(_PAUSE_SECONDS)
    return write()
