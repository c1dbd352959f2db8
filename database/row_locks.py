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
from contextlib import nullcontext
from typing import TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import OperationalError, connection, transaction
from django.db.models import Model, QuerySet
from django.db.models.expressions import RawSQL

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


def update(rows: QuerySet[_M], **values: object) -> int:
    """Update these rows by one statement, which locks them in order. How many there were."""
    if not connection.features.has_select_for_update:
        return rows.update(**values)
    return rows.model._default_manager.filter(pk__in=_locked_keys(rows)).update(**values)


def update_free(rows: QuerySet[_M], **values: object) -> int:
    """Update as `update` does, without the rows that others have locked.

    It is for what others may do as well, or what can wait.
    """
    return _free(rows).update(**values)


def delete_free(rows: QuerySet[_M]) -> int:
    """Delete those of the rows that nobody else has locked. How many there were."""
    # Finding and deleting may be several statements.
    with transaction.atomic(savepoint=False) if connection.features.has_select_for_update else nullcontext():
        return _free(rows).delete()[0]


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


def _free(rows: "QuerySet[_M]") -> "QuerySet[_M]":
    if not connection.features.has_select_for_update:
        return rows
    # Named twice: rows may have become others between the beginning of the statement and the lock.
    return rows.filter(pk__in=_locked_keys(rows, "SKIP LOCKED"))


def _locked_keys(rows: QuerySet[_M], how: str = "") -> "RawSQL | list[object]":
    """Return a subquery that locks rows and gives their keys.

    By hand: Django asks for a transaction around such a statement, which is one by itself.
    """
    try:
        keys, parameters = rows.order_by("pk").values("pk").query.sql_with_params()
    except EmptyResultSet:
        return []
    # Keys never change: rows that refer to these may be inserted meanwhile.
    return RawSQL(f"{keys} FOR NO KEY UPDATE {how}", parameters)  # noqa: S611 (only the word is ours)
