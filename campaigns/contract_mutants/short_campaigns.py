"""Short, deterministic campaigns of `campaigns.fuzzing` to try mutants with. Each takes a few seconds.

`python -m campaigns.contract_mutants.short_campaigns transactions headers` runs these two. The exit code is 1 if a
campaign finds a divergence.
"""

import sys
from collections.abc import Callable, Mapping

from campaigns.fuzzing import boundaries, branches, headers, jumps, receipts, sequences, steps, transactions, walks
from campaigns.fuzzing.tally import Divergence, Tally
from devnet.devchain import DevChain

_SEED = 1
_CAMPAIGNS: Mapping[str, tuple[Callable[[DevChain, int, int], Tally], int]] = {
    # Campaigns on the registry.
    "transactions": (transactions.run, 4_000),
    "headers": (headers.run, 4_000),
    "receipts": (receipts.run, 4_000),
    "sequences": (sequences.run, 4_000),
    "jumps": (jumps.run, 4_000),
    # Campaigns on the beacon histories.
    "branches": (branches.run, 4_000),
    "branches-before-gloas": (branches.run_before_gloas, 4_000),
    # Campaigns on the reader.
    "walks": (walks.run, 4_000),
    # Campaigns on the harness that runs single operations.
    "boundaries": (boundaries.run, 10_000),
    "steps": (steps.run, 40_000),
}


def main() -> int:
    """Run the named campaigns, and return the exit code."""
    with DevChain(extra_args=("--gas-limit", str(10**12))) as chain:
        for name in sys.argv[1:]:
            run, count = _CAMPAIGNS[name]
            try:
                run(chain, _SEED, count)
            except Divergence as divergence:
                print(str(divergence)[:2000])
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
