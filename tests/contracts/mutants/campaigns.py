"""The campaigns of `tests.contracts.fuzzing` that mutants are tried with: always the same steps, a few seconds long.

`python -m tests.contracts.mutants.campaigns registry` tries whole transactions, `... harness` single operations. It
ends with 1 where contract and model differ.
"""

import sys
from collections.abc import Callable, Mapping

from devnet.devchain import DevChain
from tests.contracts.fuzzing import boundaries, headers, steps, transactions
from tests.contracts.fuzzing.tally import Divergence, Tally

_SEED = 1
_CAMPAIGNS: Mapping[str, tuple[tuple[Callable[[DevChain, int, int], Tally], int], ...]] = {
    "registry": ((headers.run, 4_000), (transactions.run, 4_000)),
    "harness": ((boundaries.run, 10_000), (steps.run, 40_000)),
}


def main() -> int:
    """Returns the exit code."""
    with DevChain(extra_args=("--gas-limit", str(10**12))) as chain:
        for run, count in _CAMPAIGNS[sys.argv[1]]:
            try:
                run(chain, _SEED, count)
            except Divergence as divergence:
                print(str(divergence)[:2000])
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
