"""Try many proofs at once on a chain whose calls have enough gas."""

from collections.abc import Iterable, Sequence

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed

# Nodes refuse requests that are much larger.
_BYTES_PER_CALL = 500_000


class Harness:
    def __init__(self, chain: DevChain) -> None:
        self._contract = Deployed(chain, "test/ProofHarness")

    def accepted(self, registry: Deployed, proofs: Iterable[bytes]) -> list[bool]:
        """Return for each proof whether the registry would accept it alone."""
        answers: list[bool] = []
        chunk: list[bytes] = []
        for proof in proofs:
            chunk.append(proof)
            if sum(map(len, chunk)) > _BYTES_PER_CALL:
                answers += self._try(registry, chunk)
                chunk = []
        return answers + self._try(registry, chunk)

    def accepted_flips(self, registry: Deployed, proof: bytes, first: int = 0, end: int | None = None) -> int:
        """Return how many one-bit changes of `proof` the registry accepts, in bytes from `first` to before `end`."""
        bits = 8 * first, 8 * (len(proof) if end is None else end)
        return int(self._contract.call("acceptedFlips", registry.address, proof, *bits))

    def accepted_bytes(self, registry: Deployed, proof: bytes, places: Sequence[int]) -> int:
        """Return how many changes of one byte the registry accepts, at the given places of `proof`."""
        calls = (self._contract.call("acceptedBytes", registry.address, proof, offset, offset + 1) for offset in places)
        return sum(map(int, calls))

    def _try(self, registry: Deployed, proofs: list[bytes]) -> list[bool]:
        return [answer == 1 for answer in self._contract.call("accepted", registry.address, proofs)]
