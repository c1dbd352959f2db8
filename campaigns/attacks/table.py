"""Results of an attack: the attempt, the outcome, and whether the service kept its promise."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """One row of the table of results."""

    tried: str
    promise: str
    seen: str
    kept: bool

    def __str__(self) -> str:
        verdict = "kept" if self.kept else "BROKEN"
        return f"{verdict:<6}  {self.tried}\n        promise: {self.promise}\n        seen: {self.seen}"


def run_all(runs: Iterable[tuple[str, Callable[[], Iterator[Seen]]]]) -> int:
    """Run each attack, print its results, and return the exit code: 1 if a promise was broken."""
    broken = 0
    for name, run in runs:
        print(f"--- {name}", flush=True)
        began = time.monotonic()
        for seen in run():
            print(seen, flush=True)
            broken += not seen.kept
        print(f"--- {name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{broken} broken promises" if broken else "All promises were kept.")
    return 1 if broken else 0
