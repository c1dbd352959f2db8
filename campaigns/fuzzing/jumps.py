"""Jumps and walks of the registry, in any order and with one fault. Contract and model must agree.

Blocks lie in beacon blocks, and their headers name the previous beacon block. So a jump may follow a jump.
"""

import random
from collections.abc import Iterator, Sequence

from eth_utils.crypto import keccak

from campaigns.fuzzing.batch import takes
from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.ledger import Ledger
from campaigns.fuzzing.tally import Divergence, Tally, sentence
from chains.beacon.blocks import ExecutionBranch
from chains.beacon.jumps import BeaconChain, CannotProve
from chains.contract_artifacts import NO_CONTRACT, Artifact
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import (
    BLOCK_BEFORE_CAPELLA,
    BLOCK_BEFORE_MERGE,
    HASH_ALONE,
    HEADER_ALONE,
    HEADER_FACTS,
    OLD_BLOCK,
    PARENT,
)
from devnet.devchain import DevChain
from tests.contracts import tries
from tests.contracts.beacon_worlds import SMALL, BeaconWorld
from tests.contracts.decoder import InvalidPacked, PackedFacts, decode
from tests.contracts.deployed import Deployed
from tests.contracts.harness import Harness
from tests.contracts.simulator import Call, Simulator
from tests.contracts.worlds import number_of

_FIRST = 1000
# The source vouches for blocks from this slot on.
_VOUCHED = 85
_SHARE = 500
# Number of proofs that are also tried with a registry without a beacon history.
_BARE = 50


class LinkedWorld(BeaconWorld):
    """A world in which each block's header names the previous block and beacon block."""

    def __post_init__(self) -> None:
        self.headers: dict[int, bytes] = {}
        self.hashes = {}
        super().__post_init__()

    def _block(self, slot: int, parent: bytes) -> ExecutionBranch:
        before = keccak(self.headers[max(self.headers)]) if self.headers else bytes(32)
        fields: list[bytes | int] = [before, bytes(32), bytes(20), self.chance.randbytes(32), bytes(32), bytes(32)]
        fields += [bytes(256), 0, _FIRST + len(self.headers), 0, 0, slot, b"", bytes(32), bytes(8)]
        if slot >= self.chain.capella:
            fields += [7, bytes(32), 0, 0, parent, bytes(32)]
        self.headers[slot] = tries.encode(fields)
        self.hashes = {**self.hashes, slot: keccak(self.headers[slot])}
        return super()._block(slot, parent)


class _Proofs:
    """A maker of proofs, most of them valid."""

    def __init__(self, chance: Chance, world: LinkedWorld) -> None:
        self._chance = chance
        self._world = world

    def make(self) -> bytes:
        chance, world = self._chance, self._world
        slots = sorted(world.blocks)
        if chance.happens(0.3):
            slot = chance.pick([each for each in slots if each < world.chain.capella])
            proof = self._branch(chance.pick((BLOCK_BEFORE_CAPELLA,) * 9 + (BLOCK_BEFORE_MERGE,)), slot, slot)
            if chance.happens(0.3):
                return self._spoil(proof + self._end())
            proof += self._header(slot)
        else:
            slot = chance.pick([each for each in slots if each >= _VOUCHED - chance.happens(0.1)])
            proof = self._header(slot)
        for _ in range(chance.below(4)):
            above = [each for each in slots if each < slot]
            if not above:
                break
            if chance.happens(0.4):
                slot = above[-1]
                proof += bytes([PARENT]) + self._header(slot)
                continue
            anchor, slot = above[-1], chance.pick(above)
            proof += self._branch(OLD_BLOCK, slot, anchor)
            if chance.happens(0.2):
                break
            proof += self._header(slot)
        return self._spoil(proof + self._end())

    def _header(self, slot: int) -> bytes:
        if self._chance.happens(0.04):
            slot = self._chance.pick(sorted(self._world.headers))
        return self._world.headers[slot]

    def _branch(self, operation: int, slot: int, anchor: int) -> bytes:
        chance, world = self._chance, self._world
        if chance.happens(0.03):
            operation = chance.pick((0x39, OLD_BLOCK, BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, 0x3D))
        if chance.happens(0.03):
            anchor = chance.pick(sorted(world.blocks))
        try:
            branch = world.old(slot, anchor) if operation == OLD_BLOCK else world.before_capella(slot)
        except (CannotProve, IndexError):
            branch = chance.randbytes(chance.below(100))
        size = len(branch) + (chance.pick((-32, -1, 1, 32)) if chance.happens(0.03) else 0)
        return bytes([operation]) + max(0, size).to_bytes(2) + branch

    def _end(self) -> bytes:
        facts = bytes([HEADER_FACTS]) + (1 << 0 | 1 << 9).to_bytes(4)
        alone = bytes([HEADER_ALONE])
        return self._chance.pick((bytes([HASH_ALONE]), alone, facts + alone, b"", facts, alone + alone))

    def _spoil(self, proof: bytes) -> bytes:
        chance = self._chance
        if chance.happens(0.8):
            return proof
        place = chance.below(len(proof))
        changed = proof[:place] + bytes([proof[place] ^ 1 << chance.below(8)]) + proof[place + 1 :]
        return chance.pick((proof[:place], proof + bytes(1), changed, changed))


def run(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try `count` proofs, and return the tally. `artifact` replaces the FactsRegistry. The same `seed` repeats a run.

    Raise Divergence if contract and model differ.
    """
    chance, tally = Chance(seed), Tally()
    world = LinkedWorld(random.Random(seed), SMALL, SMALL.end + 2, missed=frozenset({9, 41, 58, 68, 79}))
    source = Deployed(chain, "test/SettableBlockHashSource", 1)
    vouched = {}
    for slot in range(_VOUCHED, SMALL.end + 2):
        number = number_of(world.headers[slot])
        vouched[number] = keccak(world.headers[slot])
        source.send("set", number, vouched[number])
    beacon = Deployed(chain, "GloasBeaconHistory", world.chain.arguments)
    registry = Deployed(chain, "FactsRegistry", 1, source.address, HISTORY_WINDOW, beacon.address, artifact=artifact)
    bare = Deployed(chain, "FactsRegistry", 1, source.address, HISTORY_WINDOW, NO_CONTRACT, artifact=artifact)
    harness, simulator = Harness(chain), Simulator(chain)
    proofs = _Proofs(chance, world)

    def taken(registry: Deployed, tried: Sequence[bytes], beacon: BeaconChain | None) -> Iterator[PackedFacts]:
        """Yield the model's facts of each proof that both accept. Raise Divergence if only one of them accepts."""
        for proof, accepted in zip(tried, harness.accepted(registry, tried), strict=True):
            shown = f"jumps.run, seed {seed}, count {count}, of {beacon}: 0x{proof.hex()}"
            try:
                facts = decode(proof, block_hash=vouched.get, state_root=lambda _: None, beacon=beacon)
            except InvalidPacked as invalid:
                tally.refused[sentence(str(invalid))] += 1
                if accepted:
                    raise Divergence(f"The model refuses: {invalid} {shown}") from None
                continue
            if not accepted:
                raise Divergence(f"The contract refuses. {shown}")
            ledger = Ledger()
            ledger.store(facts)
            [outcome] = simulator.run([Call(registry.address, proof)])
            if why := takes(ledger.logs)(outcome):
                raise Divergence(f"{why}. {shown}")
            yield facts

    while tally.done < count:
        tried = [proofs.make() for _ in range(min(_SHARE, count - tally.done))]
        tally.done += len(tried)
        for _ in taken(bare, tried[:_BARE], None):
            pass
        tally.accepted.update(
            "hash" if facts.known_hashes else "header" for facts in taken(registry, tried, world.chain)
        )
    return tally
