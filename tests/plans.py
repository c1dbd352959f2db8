"""Read the database's query plans."""

import re
from collections.abc import Iterable, Mapping

from django.db import connection


def plans(statements: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the plans' lines for SELECT statements captured by `CaptureQueriesContext`."""
    lines = []
    is_sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        if not is_sqlite:
            # PostgreSQL would scan small tables. This setting shows the index that it uses for large ones.
            cursor.execute("SET LOCAL enable_seqscan = off")
        for sql in [statement["sql"] for statement in statements if statement["sql"].startswith("SELECT")]:
            # EXPLAIN accepts no parameters here, and the statement comes from the capture.
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}" if is_sqlite else f"EXPLAIN {sql}")
            lines += [named for *_, line in cursor.fetchall() for named in _by_name(line, tables(sql))]
    return lines


def tables(sql: str) -> dict[str, set[str]]:
    """Return a statement's tables by alias. An alias in several subqueries may stand for several tables."""
    by_alias: dict[str, set[str]] = {}
    for table, alias in re.findall(r'(?:FROM|JOIN) "?(\w+)"?(?: "?([A-Z]\d+|own)\b"?)?', sql):
        by_alias.setdefault(alias or table, set()).add(table)
    return by_alias


def _by_name(line: str, by_alias: Mapping[str, set[str]]) -> list[str]:
    """Return the line with an alias replaced by all table names that it may stand for."""
    alias = next((alias for alias in by_alias if re.search(rf"\b{alias}\b", line)), None)
    return [re.sub(rf"\b{alias}\b", table, line) for table in sorted(by_alias[alias])] if alias else [line]


def looks_at_all_due_blocks(lines: Iterable[str]) -> bool:
    """Return whether a plan reads all due blocks, or all blocks, of all users."""
    return any(
        line.startswith("SCAN queries_block")
        or ("queries_block USING" in line and "due_at" in line)
        or "Seq Scan on queries_block" in line
        or re.search(r"using (?:queries_block_due_at_\w+|places|blocks_due_by_user) on queries_block", line)
        for line in lines
    )


def rows_of(statements: Iterable[Mapping[str, str]]) -> int:
    """Return how many rows SELECT statements captured by `CaptureQueriesContext` return, as the tables are now."""
    with connection.cursor() as cursor:
        count = 0
        for sql in [statement["sql"] for statement in statements if statement["sql"].startswith("SELECT")]:
            cursor.execute(f"SELECT COUNT(*) FROM ({sql}) AS returned")
            count += cursor.fetchone()[0]
    return count
