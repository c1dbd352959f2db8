"""Upgrade each earlier version, on each engine: `make chaos [ENGINE=name] [VERSION=0.3.0] [SEED=1]`.

Nothing leaves this machine. The command prints each attempt and its result. The exit code is 1 if a promise was broken.
"""

import argparse
import sys
from functools import partial
from itertools import product

from campaigns.attacks.table import run_all
from campaigns.chaos import upgrade
from campaigns.chaos.engines import ENGINES


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--version", choices=upgrade.VERSIONS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    engines = [engine for engine in ENGINES if options.engine in {None, engine}]
    versions = [version for version in upgrade.VERSIONS if options.version in {None, version}]
    return run_all(
        (f"upgrade of {version} on {engine}", partial(upgrade.run, engine, version, options.seed))
        for engine, version in product(engines, versions)
    )


if __name__ == "__main__":
    sys.exit(main())
