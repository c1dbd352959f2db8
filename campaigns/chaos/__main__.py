"""All chaos on all engines, one after another: `make chaos`, ONLY=name, ENGINE=name, SEED=1.

Everything stays on this machine. It prints what was tried and what was seen, and ends with 1 where a promise was
broken.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from campaigns.attacks.table import Seen, run_all
from campaigns.chaos import kills, upgrade
from campaigns.chaos.engines import ENGINES

# By name. Each is given an engine and a seed. Where there is nothing to try on the engine, it has seen nothing.
CHAOS: Mapping[str, Callable[[str, int], Iterator[Seen]]] = {"kills": kills.run, "upgrade": upgrade.run}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--only", choices=sorted(CHAOS))
    parser.add_argument("--engine", choices=[*ENGINES])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wanted = [name for name in CHAOS if options.only in {None, name}]
    engines = [engine for engine in ENGINES if options.engine in {None, engine}]
    return run_all(
        (f"{name} on {engine}", partial(CHAOS[name], engine, options.seed)) for name in wanted for engine in engines
    )


if __name__ == "__main__":
    sys.exit(main())
