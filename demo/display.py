"""Shows the progress of a batch: live on a terminal, plain lines otherwise."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

STEPS = ("INITIAL_STATE", "BLOCKHASH_AVAILABLE", "HEADER_ACCUMULATED", "ACCOUNT_ACCUMULATED")


class Display:
    """Fed with the explorer's JSON of a batch, again and again; shows each step once it changes."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._live = Live(console=self._console, refresh_per_second=8) if sys.stdout.isatty() else None
        self._began = time.monotonic()
        self._seen: set[tuple[str, str]] = set()

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
        steps = {step["kind"]: step for step in batch["queries"][0]["steps"]}
        if self._live:
            self._live.update(self._table(batch, steps))
            return
        for kind in STEPS:
            status = steps[kind]["status"] if kind in steps else ""
            if status == "COMPLETED" and (kind, status) not in self._seen:
                self._seen.add((kind, status))
                transaction = steps[kind]["transactionHash"]
                print(
                    f"  {time.monotonic() - self._began:5.1f} s  {kind:<20} {status}"
                    + (f"  {transaction}" if transaction else ""),
                    flush=True,
                )

    def _table(self, batch: dict[str, Any], steps: dict[str, Any]) -> Table:
        table = Table(title=f"{batch['internalId']}  {batch['status']}", title_justify="left", box=None, padding=(0, 2))
        for heading in ("step", "status", "seconds", "transaction"):
            table.add_column(heading)
        for kind in STEPS:
            step = steps.get(kind)
            if step is None:
                table.add_row(kind, "[dim]not begun[/]", "", "")
                continue
            colour = "green" if step["status"] == "COMPLETED" else "yellow"
            seconds = f"{step['seconds']:.1f}" if step["seconds"] is not None else ""
            table.add_row(kind, f"[{colour}]{step['status']}[/]", seconds, step["transactionHash"][:18])
        return table
