"""Proofs of random states with bytes changed, on contract and model (`tests/contracts/fuzz.py`)."""

from chains.devchain import DevChain
from tests.contracts import fuzz
from tests.contracts.fuzzing.tally import Divergence, Tally


def run(chain: DevChain, seed: int, count: int) -> Tally:
    """Try at least `count` of them. Deterministic in `seed`. Raises Divergence."""
    try:
        found = fuzz.run(chain, seed, count, largest=60)
    except fuzz.Disagreement as disagreement:
        raise Divergence(f"mutations.run, seed {seed}, count {count}: {disagreement}") from disagreement
    tally = Tally(found.mutations + found.others + found.proofs)
    tally.accepted.update({"genuine proofs": found.proofs, "proofs of other true facts": found.others})
    tally.refused["Something was changed."] = found.mutations
    return tally
