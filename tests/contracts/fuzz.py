"""Mutated proofs of random states, tried on the contract and on the Python verifier: `make fuzz`, SEED=..., COUNT=...

Nothing mutated may verify. What happens to be the one encoding of other true facts, as py-trie tells them, is another
proof and counted apart.
"""

import argparse
import random
import sys
import time
from dataclasses import dataclass

from chains.devchain import DevChain
from chains.packed import InvalidPacked, PackedFacts, decode
from tests.contracts.deployed import Deployed
from tests.contracts.harness import Harness
from tests.contracts.worlds import World, empty_world, mutate, random_world

_SIZES = (1, 1, 2, 3, 5, 17, 40, 200)


class Disagreement(AssertionError):
    """Two verifiers differ, or one took what isn't so; the message holds the proof."""


@dataclass
class Tally:
    proofs: int = 0
    mutations: int = 0
    others: int = 0


class Bench:
    """A registry, the source that it trusts, and the harness that tries many proofs at once."""

    def __init__(self, chain: DevChain) -> None:
        self.source = Deployed(chain, "test/SettableBlockHashSource")
        self.registry = Deployed(chain, "FactsRegistry", 1, self.source.address)
        self.harness = Harness(chain)

    def vouch(self, world: World) -> None:
        self.source.send("set", world.number, world.block_hash)


def python_accepts(proof: bytes, world: World, *, accumulated: bool) -> PackedFacts | None:
    try:
        return decode(
            proof,
            block_hash=lambda number: world.block_hash if number == world.number else None,
            state_root=lambda number: world.root if accumulated and number == world.number else None,
        )
    except InvalidPacked:
        return None


def check(bench: Bench, world: World, proof: bytes, mutated: list[bytes], *, accumulated: bool, tally: Tally) -> None:
    """Raises `Disagreement`."""
    taken, *answers = bench.harness.accepted(bench.registry, [proof, *mutated])
    facts = python_accepts(proof, world, accumulated=accumulated)
    if not taken or facts is None or not world.agrees(facts) or world.encode_again(facts) != proof:
        raise Disagreement(f"A valid proof at block {world.number} is refused, or misread: {proof.hex()}")
    tally.proofs += 1
    for spoilt, answer in zip(mutated, answers, strict=True):
        facts = python_accepts(spoilt, world, accumulated=accumulated)
        if answer != (facts is not None):
            raise Disagreement(f"Contract ({answer}) and Python ({not answer}) differ on: {spoilt.hex()}")
        if facts is None:
            tally.mutations += 1
        elif world.agrees(facts) and world.encode_again(facts) == spoilt:
            tally.others += 1
        else:
            raise Disagreement(f"A mutated proof verifies: {spoilt.hex()}")


def run(chain: DevChain, seed: int, count: int, *, largest: int = 200, per_proof: int = 250) -> Tally:
    """Try at least `count` mutations, first in a state of `largest` accounts. Deterministic in `seed`."""
    chance = random.Random(seed)
    tally = Tally()
    number = 0
    while tally.mutations < count:
        # A registry of its own for each state: what one has accumulated, another hasn't.
        bench = Bench(chain)
        number += 1
        size = chance.choice(_SIZES) if number > 1 else largest
        world = empty_world(number) if chance.random() < 0.03 else random_world(chance, number, size)
        bench.vouch(world)
        other = world.prove(world.ask())
        for known in (False, True):
            if known:
                bench.registry.send_raw(world.header + b"\x37")
            proof = world.prove(world.ask(), known=known)
            mutated = [mutate(chance, proof, other) for _ in range(per_proof)]
            mutated = [spoilt for spoilt in dict.fromkeys(mutated) if spoilt not in {proof, b""}]
            check(bench, world, proof, mutated, accumulated=known, tally=tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contracts.fuzz", description="Try mutated proofs.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100_000, help="how many mutations, at least")
    arguments = parser.parse_args()
    began = time.monotonic()
    with DevChain(extra_args=("--gas-limit", str(10**12))) as chain:
        tally = run(chain, arguments.seed, arguments.count, largest=10_000)
    print(
        f"{tally.mutations:,} mutations of {tally.proofs:,} proofs, none verified (seed {arguments.seed}, "
        f"{time.monotonic() - began:.0f} s). {tally.others:,} more were proofs of other true facts."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
