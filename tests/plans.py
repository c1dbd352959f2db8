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
            lines += [line for *_, line in cursor.fetchall()]
    return lines


def looks_at_all_due_blocks(lines: Iterable[str]) -> bool:
    """Or at all blocks: as many as there are, whoever asked for them."""
    return any(
        line.startswith("SCAN queries_block")
        or ("queries_block USING" in line and "due_at" in line)
        or "Seq Scan on queries_block" in line
        or re.search(r"using (?:queries_block_due_at_\w+|places|blocks_due_by_user) on queries_block", line)
        for line in lines
    )
