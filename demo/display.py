"""Shows the progress of a batch: live on a terminal, plain lines otherwise."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table


class Display:
    """Fed with the explorer's JSON of a batch, again and again; shows each query's steps once they change."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._live = Live(console=self._console, refresh_per_second=8) if sys.stdout.isatty() else None
        self._began = time.monotonic()
        self._printed: set[str] = set()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, batch: dict[str, Any]) -> None:
        if self._live:
            self._live.update(_table(batch))
            return
        for query in batch["queries"]:
            for step in query["steps"]:
                if step["status"] == "COMPLETED":
                    line = f"{_source(query)}  {step['kind']:<20} COMPLETED  {step['transactionHash']}".rstrip()
                    self._print_once(line)

    def _print_once(self, line: str) -> None:
        if line not in self._printed:
            self._printed.add(line)
            print(f"  {time.monotonic() - self._began:5.1f} s  {line}", flush=True)


def _table(batch: dict[str, Any]) -> Table:
    waits = "\n".join(wait["sentence"] for wait in batch["waits"])
    table = Table(
        title=f"{batch['internalId']}  {batch['status']}",
        title_justify="left",
        caption=waits,
        caption_justify="left",
        box=None,
        padding=(0, 2),
    )
    for heading in ("source", "step", "status", "seconds", "transaction"):
        table.add_column(heading)
    for query in batch["queries"]:
        for step in query["steps"]:
            table.add_row(_source(query), *_cells(step))
    return table


def _cells(step: dict[str, Any]) -> tuple[str, ...]:
    if not step["status"]:
        return step["kind"], "[dim]not begun[/]", "", ""
    colour = "green" if step["status"] == "COMPLETED" else "yellow"
    seconds = f"{step['seconds']:.1f}" if step["seconds"] is not None else ""
    return step["kind"], f"[{colour}]{step['status']}[/]", seconds, step["transactionHash"][:18]


def _source(query: dict[str, Any]) -> str:
    return f"chain {query['source']['id']}"
