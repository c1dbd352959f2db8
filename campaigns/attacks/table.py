"""Results of an attack: the attempt, the outcome, and whether the service kept its promise."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """One row of the table of results."""

    tried: str
    promise: str
    seen: str
    kept: bool | None
    """None: a tool of the attack failed, so nothing is known of the service."""

    def __str__(self) -> str:
        verdict = "UNKNOWN" if self.kept is None else "kept" if self.kept else "BROKEN"
        return f"{verdict:<7} {self.tried}\n        promise: {self.promise}\n        seen: {self.seen}"


def run_all(runs: Iterable[tuple[str, Callable[[], Iterator[Seen]]]]) -> int:
    """Run each attack, print its results, and return the exit code.

    It is 1 if a promise was broken, else 2 if a tool failed, else 0.
    """
    verdicts = Counter[bool | None]()
    for name, run in runs:
        print(f"--- {name}", flush=True)
        began = time.monotonic()
        for seen in run():
            print(seen, flush=True)
            verdicts[seen.kept] += 1
        print(f"--- {name}: {time.monotonic() - began:.0f} s", flush=True)
    unknown = f"{verdicts[None]} of unknown outcome, because a tool of the attack failed" if verdicts[None] else ""
    broken = f"{verdicts[False]} broken promises" if verdicts[False] else ""
    print("; ".join(filter(None, (broken, unknown))) or "All promises were kept.")
    return 1 if broken else 2 if unknown else 0
