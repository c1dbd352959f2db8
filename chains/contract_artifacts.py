"""Compiled contracts: their ABI and code, and the addresses at which they are created.

They are in `contracts/artifacts`, which is committed. So no compiler is needed: `python -m contracts.build` makes them.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eth_typing import ABI
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

ARTIFACTS_DIR = Path(__file__).parents[1] / "contracts" / "artifacts"
# Artifacts of version 0.3.0 whose code this version has changed. They never change.
_EARLIER_DIR = ARTIFACTS_DIR.with_name("earlier")
# The zero address, which stands for no contract.
NO_CONTRACT = "0x" + "00" * 20

# The deterministic deployer that most chains have (github.com/Arachnid/deterministic-deployment-proxy). It creates a
# contract by CREATE2 from a salt (32 bytes) and the creation code. Its own transaction has no chain id, and a signature
# that nobody has a key for. So anybody can send it on any chain, once its signer has the wei that it costs.
DEPLOYER = "0x4e59b44847b379578588920cA78FbF26c0B4956C"
DEPLOYER_CODE = bytes.fromhex(
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe0"
    "3601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3"
)
DEPLOYER_SIGNER, DEPLOYER_COST = "0x3fAB184622Dc19b6109349B94811493BF2a45362", 10**16
DEPLOYER_TRANSACTION = bytes.fromhex(
    "f8a58085174876e800830186a08080b853604580600e600039806000f350fe"
    + DEPLOYER_CODE.hex()
    + "1ba0"
    + "22" * 32
    + "a0"
    + "22" * 32
)


@dataclass(frozen=True)
class Artifact:
    """A contract to deploy: its ABI, and its creation bytecode without constructor arguments.

    `runtime` is the deployed code, with zeros for the immutables. `immutables` has the offsets of each immutable by its
    name. An immutable takes 32 bytes.
    """

    abi: ABI
    bytecode: bytes
    runtime: bytes
    immutables: Mapping[str, Sequence[int]]

    def deployed(self, **immutables: int) -> bytes:
        """Return the deployed code with the values of all immutables. Addresses are given as numbers."""
        code = bytearray(self.runtime)
        for name, places in self.immutables.items():
            for place in places:
                code[place : place + 32] = immutables[name].to_bytes(32)
        return bytes(code)


@cache
def load_artifact(name: str) -> Artifact:
    """Return the artifact of a contract by its name, such as `FactsRegistry`.

    The names of contracts for tests begin with `test/`.

    Raises FileNotFoundError if there is no such contract.
    """
    return _read(ARTIFACTS_DIR / f"{name}.json")


@cache
def earlier_registry() -> Artifact:
    """Return the FactsRegistry of version 0.3.0, in whose proofs each child of a branch has a byte of its own."""
    return _read(_EARLIER_DIR / "FactsRegistry.json")


def _read(path: Path) -> Artifact:
    stored = json.loads(path.read_text())
    return Artifact(
        abi=stored["abi"],
        bytecode=bytes.fromhex(stored["bytecode"].removeprefix("0x")),
        runtime=bytes.fromhex(stored["deployedBytecode"].removeprefix("0x")),
        immutables=stored["immutables"],
    )


def create2_address(creation_code: bytes, salt: int = 0) -> str:
    """Return the address at which the deterministic deployer creates a contract (EIP-1014)."""
    parts = b"\xff", bytes.fromhex(DEPLOYER.removeprefix("0x")), salt.to_bytes(32), keccak(creation_code)
    return to_checksum_address(keccak(b"".join(parts))[12:])


def code_digest(without: Collection[str] = ()) -> str:
    """Return a keccak-256 hash over the code of all contracts except those for tests, and the named ones.

    It hashes the keccak-256 hashes of the creation bytecodes, which include constructors, in the order of names.
    """
    names = sorted({path.stem for path in ARTIFACTS_DIR.glob("*.json")}.difference(without))
    return "0x" + keccak(b"".join(keccak(load_artifact(name).bytecode) for name in names)).hex()
