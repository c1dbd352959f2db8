"""Try many proofs at once, on a chain whose calls have enough gas."""

from collections.abc import Iterable, Sequence

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed

# Nodes refuse much longer requests.
_BYTES_PER_CALL = 500_000


class Harness:
    def __init__(self, chain: DevChain) -> None:
        self._contract = Deployed(chain, "test/ProofHarness")

    def accepted(self, registry: Deployed, proofs: Iterable[bytes]) -> list[bool]:
        """Return whether the registry would accept each proof alone."""
        answers: list[bool] = []
        chunk: list[bytes] = []
        for proof in proofs:
            chunk.append(proof)
            if sum(map(len, chunk)) > _BYTES_PER_CALL:
                answers += self._try(registry, chunk)
                chunk = []
        return answers + self._try(registry, chunk)

    def accepted_flips(self, registry: Deployed, proof: bytes) -> int:
        """Count the accepted proofs among those that differ from `proof` in one bit."""
        return int(self._contract.call("acceptedFlips", registry.address, proof, 0, 8 * len(proof)))

    def accepted_bytes(self, registry: Deployed, proof: bytes, places: Sequence[int]) -> int:
        """Count the accepted proofs among those that differ in one byte, at one of the places."""
        calls = (self._contract.call("acceptedBytes", registry.address, proof, place, place + 1) for place in places)
        return sum(map(int, calls))

    def _try(self, registry: Deployed, proofs: list[bytes]) -> list[bool]:
        return [answer == 1 for answer in self._contract.call("accepted", registry.address, proofs)]
