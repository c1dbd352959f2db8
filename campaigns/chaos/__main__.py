"""Run every chaos scenario on every engine, one after another: `make chaos [ONLY=name] [ENGINE=name] [SEED=1]`.

Nothing leaves this machine. The command prints each attempt and its result. The exit code is 1 if a promise was broken.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from campaigns.attacks.table import Seen, run_all
from campaigns.chaos import kills, upgrade
from campaigns.chaos.engines import ENGINES

# Each function takes an engine and a seed. It yields nothing on an engine that it doesn't concern.
CHAOS: Mapping[str, Callable[[str, int], Iterator[Seen]]] = {"kills": kills.run, "upgrade": upgrade.run}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--only", choices=sorted(CHAOS))
    parser.add_argument("--engine", choices=[*ENGINES])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    names = [name for name in CHAOS if options.only in {None, name}]
    engines = [engine for engine in ENGINES if options.engine in {None, engine}]
    return run_all(
        (f"{name} on {engine}", partial(CHAOS[name], engine, options.seed)) for name in names for engine in engines
    )


if __name__ == "__main__":
    sys.exit(main())
