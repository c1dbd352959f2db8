"""All chaos on all engines, one after another: `make chaos`, ONLY=name, ENGINE=name, SEED=1.

Everything stays on this machine. It prints what was tried and what was seen, and ends with 1 where a promise was
broken.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from tests.attacks.table import Seen
from tests.chaos import clocks, kills, outages, upgrade
from tests.chaos.engines import ENGINES

# By name. Each is given an engine and a seed. Where there is nothing to try on the engine, it has seen nothing.
CHAOS: Mapping[str, Callable[[str, int], Iterator[Seen]]] = {
    "kills": kills.run,
    "database": outages.database,
    "broker": outages.broker,
    "node": outages.node,
    "clocks": clocks.run,
    "upgrade": upgrade.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--only", choices=sorted(CHAOS))
    parser.add_argument("--engine", choices=[*ENGINES])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    broken = 0
    for name, chaos in CHAOS.items():
        for engine in ENGINES:
            if options.only not in {None, name} or options.engine not in {None, engine}:
                continue
            began = time.monotonic()
            for seen in chaos(engine, options.seed):
                print(seen, flush=True)
                broken += not seen.kept
            print(f"--- {name} on {engine}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{broken} broken promises" if broken else "All promises were kept.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
