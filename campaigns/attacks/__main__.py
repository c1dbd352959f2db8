"""Run all attacks one after another: `make attack`, ONLY=name, SEED=1, REQUESTS=100000, SEQUENCES=2000.

Nothing leaves this machine. The command prints each attempt and its result. The exit code is 1 if a promise was broken,
and 2 if a tool failed, so that nothing is known of a promise.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from campaigns.attacks import (
    costs,
    lists,
    money,
    nodes,
    parameters,
    proofs,
    receipts,
    requests,
    starvation,
    storage,
    threads,
)
from campaigns.attacks.table import Seen, run_all

Attack = Callable[[int], Iterator[Seen]]


def attacks(count: int, orders: int) -> Mapping[str, Attack]:
    """Return the attacks by name. Each takes a seed, and yields its results one by one.

    `count` is the number of requests, `orders` the number of sequences.
    """
    return {
        "costs": costs.run,
        "lists": lists.run,
        "money": money.run,
        "nodes": nodes.run,
        "parameters": parameters.run,
        "proofs": proofs.run,
        "receipts": receipts.run,
        "requests": lambda seed: requests.run(seed, count),
        "sequences": lambda seed: money.search(seed, orders),
        "starvation": starvation.run,
        "storage": storage.run,
        "threads": threads.run,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--only", choices=sorted(attacks(0, 0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=20_000, help="to be made by `requests`")
    parser.add_argument("--sequences", type=int, default=200, help="to be tried by `sequences`")
    options = parser.parse_args()
    chosen = {
        name: run for name, run in attacks(options.requests, options.sequences).items() if options.only in {None, name}
    }
    return run_all((name, partial(run, options.seed)) for name, run in chosen.items())


if __name__ == "__main__":
    sys.exit(main())
