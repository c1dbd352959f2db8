"""What commands print: tables for people, and with --json the API's own spelling for programs.

All commands load this module, --help too. So rich and pydantic are loaded where something is printed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

import batch_query_client as client
from batch_query_client.plain_text import hex_data, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# A file or a program has no margin.
_PIPE_COLUMNS = 10_000
_STEPS_OF_ACCOUNT, _STEPS_OF_HEADER = 4, 3
# Rows of a live table beside those of queries.
_OTHER_ROWS = 10
_COLOURS = {"DONE": "green", "COMPLETED": "green", "REJECTED": "red"}


def print_json(value: Any) -> None:
    """Print JSON, with models as the API spells them."""
    click.echo(json.dumps(_plain_value(value), indent=2 if sys.stdout.isatty() else None))


def _plain_value(value: Any) -> Any:
    from pydantic import BaseModel  # noqa: PLC0415 (as above)

    if isinstance(value, client.Fact):
        shown = value.model_dump(mode="json", by_alias=True)
        return shown | {"value": None if value.word is None else str(value.value)}
    if isinstance(value, client.BatchDetails):
        shown = value.model_dump(mode="json", by_alias=True, exclude={"next"})
        return shown | {"facts": _plain_value(value.facts)}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Mapping):
        return {name: _plain_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(one) for one in value]
    return hex_data(value) if isinstance(value, bytes) else value


def say(sentence: str) -> None:
    """Print a sentence for people, on standard error."""
    click.echo(plain(sentence), err=True)


def console(*, err: bool = False) -> Console:
    from rich.console import Console  # noqa: PLC0415 (as above)

    file = sys.stderr if err else sys.stdout
    return Console(
        file=file, highlight=False, markup=False, emoji=False, width=None if file.isatty() else _PIPE_COLUMNS
    )


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "There is nothing.") -> None:
    """Print a table. No cell is read as markup: others wrote them."""
    filled = list(rows)
    if not filled:
        say(empty)
        return
    table = _table(headings)
    for row in filled:
        table.add_row(*map(cell, row))
    _print(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one a line."""
    table = _table()
    table.show_header = False
    for name, value in fields:
        table.add_row(_text(name, "dim"), cell(value))
    _print(table)


def _print(table: Table) -> None:
    to = console()
    if sys.stdout.isatty():
        to.print(table)
        return
    with to.capture() as captured:
        to.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _table(headings: Sequence[str] = ()) -> Table:
    from rich.table import Table  # noqa: PLC0415 (as above)

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(_text(heading), overflow="fold")
    return table


def _text(words: str, style: str = "") -> Text:
    """Return the words as text without markup."""
    from rich.text import Text  # noqa: PLC0415 (as above)

    return Text(words, style)


def cell(value: object) -> Text:
    text = "" if value is None else plain(value)
    return _text(text, _COLOURS.get(text, ""))


# --- Facts ------------------------------------------------------------------------------------------------------------


def print_facts(facts: Sequence[client.Fact]) -> None:
    headings = ("chain", "block", "account", "property", "value")
    rows = [(one.source_chain_id, one.block_number, one.account, _property(one), shown_value(one)) for one in facts]
    print_table(headings, rows, empty="There are no facts.")


def _property(fact: client.Fact) -> str:
    if fact.property == "SLOT":
        return f"slot {fact.slot}"
    return f"block at {fact.timestamp}" if fact.timestamp is not None else fact.property


def shown_value(fact: client.Fact) -> str:
    """Return the fact's value: a number where it is meant as one, else the word."""
    if fact.word is None:
        return "not proven yet"
    return str(fact.value) if fact.is_number else hex_data(fact.word)


# --- Progress ---------------------------------------------------------------------------------------------------------


class Progress:
    """Fed with a batch again and again: live on a terminal, plain lines otherwise. It is beside the output."""

    def __init__(self) -> None:
        from rich.live import Live  # noqa: PLC0415 (as above)

        self._console = console(err=True)
        self._live = Live(console=self._console, refresh_per_second=8) if sys.stderr.isatty() else None
        self._began = time.monotonic()
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, batch: client.BatchDetails) -> None:
        if self._live:
            self._live.update(self._shown(batch))
            return
        for query in batch.query_list:
            for step in query.steps:
                if step.status == "COMPLETED":
                    self._say_once(f"query {query.number}  {step.kind:<20}  COMPLETED  {step.transaction_hash}")
        for wait in batch.waits:
            self._say_once(wait.sentence)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._console.print(f"{time.monotonic() - self._began:6.1f} s  {line}".rstrip())

    def _shown(self, batch: client.BatchDetails) -> Table:
        table = _table(("query", "chain", "block", "asked", "step", "", "transaction"))
        done = f"{batch.queries_completed} of {batch.queries}"
        table.title = _text(f"{batch.internal_id}  {batch.status}  {done} completed")
        table.title_justify = "left"
        table.caption = _text("\n".join(wait.sentence for wait in batch.waits))
        table.caption_justify = "left"
        for query in self._of_interest(batch):
            step = _current(query)
            number = query.block_number if query.block_number is not None else query.selector
            row = (query.number, query.source_chain_id, number, query.name or query.account or "header")
            table.add_row(*map(cell, (*row, *step)))
        return table

    def _of_interest(self, batch: client.BatchDetails) -> Sequence[client.Query]:
        """Return as many queries as there is room for, open ones first."""
        room = max(1, self._console.height - _OTHER_ROWS)
        return sorted(batch.query_list, key=lambda query: query.is_completed)[:room]


def _current(query: client.Query) -> tuple[str, str, str]:
    """Return the query's present step: which of how many, its status, its transaction."""
    begun: list[client.Step] = [step for step in query.steps if step.status]
    if not begun:
        return "", "not begun", ""
    of = _STEPS_OF_ACCOUNT if query.account else _STEPS_OF_HEADER
    return f"{len(begun)}/{of} {begun[-1].kind}", begun[-1].status, begun[-1].transaction_hash[:18]
