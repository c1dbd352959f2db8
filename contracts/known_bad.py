"""Versions of contracts that were deployed and must not be believed any more, recognised by their code.

A deployed contract holds its immutables, so no two have the same code. A version is therefore listed by the keccak-256
of its code with zeros for its immutables, and by their places. That is `evm.deployedBytecode.object`, and
`immutableReferences`, of what the compiler answers for the sources of that version with the settings in
`contracts.build`.
"""

from dataclasses import dataclass

from eth_utils.crypto import keccak


@dataclass(frozen=True)
class _BadVersion:
    code_hash: str
    immutables: tuple[int, ...]  # where each begins, 32 bytes long
    why: str  # a clause

    def is_of(self, code: bytes) -> bool:
        zeroed = bytearray(code)
        for place in self.immutables:
            zeroed[place : place + 32] = bytes(32)
        return "0x" + keccak(bytes(zeroed)).hex() == self.code_hash


_FORGED_FACTS = "facts can be forged there, because a branch of a proof could pop below the bottom of the stack"

_BAD_VERSIONS = (
    # FactsRegistry, in the order in which these versions were made.
    _BadVersion("0xa6b557313a5e348e67cf39efaf5ccc17a575f9c2f892f0483b3c7fb1c760a823", (253, 1452, 8523), _FORGED_FACTS),
    _BadVersion("0x3022b7fb1d068b480df93f0716dd5a3ae9e85b193a24ddee4bc84c6bcfda3b2b", (253, 1452, 8475), _FORGED_FACTS),
    _BadVersion("0x9f3e4c7126d26ffa16822503d482a1da1d08f023da396da3943ea559f1720bfa", (264, 1588, 8427), _FORGED_FACTS),
    _BadVersion("0xc5e893d1f302d6cf57589c2caacd1a7f7947baaa0b79b5447e5cd3ae120eedf7", (264, 1588, 8603), _FORGED_FACTS),
)


def why_bad(code: bytes) -> str | None:
    """Return why a contract with this code must not be believed, a clause; None where nothing is known against it."""
    return next((version.why for version in _BAD_VERSIONS if version.is_of(code)), None)
