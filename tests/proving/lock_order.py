"""The order in which database transactions lock tables (`config.database.statements`).

It is also checked on SQLite, which has no row locks.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.db import connection

# Tables of one rank are locked together or by one holder. The signer's lock covers transactions, versions and shares.
_RANKS = {
    "proving_signer": 0,
    "proving_lane": 1,
    "accounts_user": 2,
    "queries_block": 3,
    "queries_batch": 4,
    **dict.fromkeys(("queries_query", "queries_step"), 5),
    "queries_webhook": 6,
    "queries_webhookdelivery": 7,
}
_CLAUSE = re.compile(r" FOR (NO KEY )?UPDATE( OF \S+)?( NOWAIT| SKIP LOCKED)?$")
_LOCKING = re.compile(r'(?:UPDATE|DELETE FROM) "(\w+)"')
_SELECTED = re.compile(r'SELECT "(\w+)"')
_FEATURES: dict[str, Any] = dict.fromkeys(
    ("has_select_for_update", "has_select_for_no_key_update", "has_select_for_update_of"), True
)


@contextmanager
def recorded() -> Iterator[set[str]]:
    """Yield the set of breaches of the order by database transactions inside the test's own."""
    breaches: set[str] = set()
    locked: list[str] = []
    depth = len(connection.savepoint_ids)

    def execute(execute: Any, sql: str, *more: Any) -> Any:
        if len(connection.savepoint_ids) <= depth:
            locked.clear()
        clause = _CLAUSE.search(sql)
        match = (_SELECTED if clause else _LOCKING).match(sql)
        if match and (table := match[1]) in _RANKS and table not in locked and len(connection.savepoint_ids) > depth:
            if any(_RANKS[earlier] > _RANKS[table] for earlier in locked):
                breaches.add(f"{', '.join(locked)}, and then {table}")
            locked.append(table)
        return execute(_CLAUSE.sub("", sql) if connection.vendor == "sqlite" else sql, *more)

    with (
        patch.multiple(connection.features, **_FEATURES),
        connection.execute_wrapper(execute),
    ):
        yield breaches
