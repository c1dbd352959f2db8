"""How SQLite finds what statements ask for."""

from collections.abc import Iterable, Mapping

from django.db import connection


def plans(statements: Iterable[Mapping[str, str]]) -> list[str]:
    """The lines of the plans of what was selected, of statements as `CaptureQueriesContext` has them."""
    lines = []
    with connection.cursor() as cursor:
        for sql in [statement["sql"] for statement in statements if statement["sql"].startswith("SELECT")]:
            # It is the captured statement itself.
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            lines += [line for *_, line in cursor.fetchall()]
    return lines


def looks_at_all_due_blocks(lines: Iterable[str]) -> bool:
    """Or at all blocks: as many as there are, whoever asked for them."""
    return any(
        line.startswith("SCAN queries_block") or ("queries_block USING" in line and "due_at" in line) for line in lines
    )
