"""How the database finds what statements ask for."""

import re
from collections.abc import Iterable, Mapping

from django.db import connection


def plans(statements: Iterable[Mapping[str, str]]) -> list[str]:
    """The lines of the plans of what was selected, of statements as `CaptureQueriesContext` has them."""
    lines = []
    is_sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        if not is_sqlite:
            # Of tables with few rows PostgreSQL reads all; it shall use an index wherever one would help with many.
            cursor.execute("SET LOCAL enable_seqscan = off")
        for sql in [statement["sql"] for statement in statements if statement["sql"].startswith("SELECT")]:
            # It is the captured statement itself.
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}" if is_sqlite else f"EXPLAIN {sql}")
            lines += [named for *_, line in cursor.fetchall() for named in _by_name(line, tables(sql))]
    return lines


def tables(sql: str) -> dict[str, set[str]]:
    """The tables of a statement by their aliases; subqueries may give one alias to several."""
    found: dict[str, set[str]] = {}
    for table, alias in re.findall(r'(?:FROM|JOIN) "?(\w+)"?(?: "?([A-Z]\d+|own)\b"?)?', sql):
        found.setdefault(alias or table, set()).add(table)
    return found


def _by_name(line: str, by_alias: Mapping[str, set[str]]) -> list[str]:
    """The line with a table's name instead of its alias, for each that it may be."""
    alias = next((alias for alias in by_alias if re.search(rf"\b{alias}\b", line)), None)
    return [re.sub(rf"\b{alias}\b", table, line) for table in sorted(by_alias[alias])] if alias else [line]


def looks_at_all_due_blocks(lines: Iterable[str]) -> bool:
    """Or at all blocks: as many as there are, for all users."""
    return any(
        line.startswith("SCAN queries_block")
        or ("queries_block USING" in line and "due_at" in line)
        or "Seq Scan on queries_block" in line
        or re.search(r"using (?:queries_block_due_at_\w+|places|blocks_due_by_user) on queries_block", line)
        for line in lines
    )
