"""The facts registry as a contract: calls encoded, answers and reverts decoded (`contracts/src/FactsRegistry.sol`)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import collapse_if_tuple, function_abi_to_4byte_selector
from eth_utils.address import to_checksum_address

from chains import history, packed
from chains.packed import AccountToProve, HeaderParts
from contracts import load_artifact
from queries.properties import AccountField, HeaderField

Call = tuple[str, bytes]
"""An address and the calldata to send there."""


@dataclass(frozen=True)
class RevertReason:
    """A custom error of the contract with its arguments, or an empty name for anything else."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})" if self.name else "reverted without a reason"


class Registry:
    """The registry at `address`. It only encodes: its caller makes the calls."""

    def __init__(self, address: str) -> None:
        self.address = to_checksum_address(address)

    def state_root(self, block_number: int) -> Call:
        """Return a call that answers 32 bytes: zero where the block's header is not accumulated."""
        return self._call("stateRoot", block_number)

    def vouches(self, block_number: int, block_hash: bytes) -> Call:
        """Return a call that answers a word: whether the header of this number and hash would be trusted now."""
        return self._call("vouches", block_number, block_hash)

    def account_field(self, address: str, block_number: int, field: AccountField) -> Call:
        """Return a call whose answer `decode_try` reads, as for the three below."""
        return self._call("tryAccountField", address, block_number, int(field))

    def slot_value(self, address: str, block_number: int, slot: str) -> Call:
        return self._call("tryAccountStorageSlotValues", address, block_number, bytes.fromhex(slot[2:]))

    def header_field(self, block_number: int, field: HeaderField) -> Call:
        return self._call("tryHeaderField", block_number, int(field))

    def block_at_timestamp(self, timestamp: int) -> Call:
        return self._call("tryBlockAtTimestamp", timestamp)

    @staticmethod
    def decode_try(answer: bytes) -> bytes | None:
        """Return the fact's word (32 bytes), or None where nothing is proven."""
        proven, word = decode(["bool", "bytes32"], answer)
        return bytes(word) if proven else None

    def prove_timestamp(self, header: bytes, following: bytes, timestamp: int) -> bytes:
        """Return calldata that stores that the header's block is the latest at a time.

        `following` is the header after it.
        """
        return self._call("proveTimestamp", header, following, timestamp)[1]

    @staticmethod
    def prove(
        block: bytes | int | HeaderParts,
        state_root: bytes,
        accounts: Iterable[AccountToProve] = (),
        *,
        header_fields: Iterable[HeaderField] = (),
        history_window: int = history.WINDOW,
    ) -> bytes:
        """Return calldata that stores facts of accounts and, unless `block` is a number, accumulates its header."""
        return packed.encode(block, state_root, accounts, header_fields=header_fields, history_window=history_window)

    def _call(self, function: str, *arguments: Any) -> Call:
        return self.address, _calldata("FactsRegistry", function, *arguments)


def call(contract: str, address: str, function: str, *arguments: Any) -> Call:
    """Return a call of the contract `contract` (by its name here) at an address."""
    return to_checksum_address(address), _calldata(contract, function, *arguments)


def in_one_call(address: str, calls: Sequence[Call]) -> Call:
    """Return one call that makes all of them in order, all or nothing, through the `Multicall` at an address."""
    return calls[0] if len(calls) == 1 else call("Multicall", address, "run", calls)


def selector(contract: str, function: str) -> bytes:
    """Return the four bytes that name a function of the contract `contract` (by its name here)."""
    return _selector_and_types(contract, function)[0]


def _calldata(contract: str, function: str, *arguments: Any) -> bytes:
    # web3's contract objects take milliseconds to make, and each reconcile of each block would make one.
    named, types = _selector_and_types(contract, function)
    return named + encode(types, arguments)


@cache
def _selector_and_types(contract: str, function: str) -> tuple[bytes, list[str]]:
    abi = load_artifact(contract).abi
    (found,) = (one for one in abi if one["type"] == "function" and one["name"] == function)
    return function_abi_to_4byte_selector(found), [collapse_if_tuple(argument) for argument in found["inputs"]]


def creation_code(name: str, *arguments: Any) -> bytes:
    """Return the data that creates the contract `name`, constructor arguments included."""
    artifact = load_artifact(name)
    inputs = next((one["inputs"] for one in artifact.abi if one["type"] == "constructor"), [])
    types = [collapse_if_tuple(argument) for argument in inputs]
    return artifact.bytecode + encode(types, arguments)


def revert_reason(data: bytes) -> RevertReason:
    """Return which custom error of the contracts that this service calls the revert data is."""
    for contract in (
        "FactsRegistry",
        "AttestedBlockHashSource",
        "OpStackBlockHashSource",
        "OpStackGamesBlockHashSource",
        "ArbitrumSlotBlockHashSource",
        "BeaconHistory",
        "Multicall",
    ):
        for error in load_artifact(contract).abi:
            if error["type"] == "error" and function_abi_to_4byte_selector(error) == data[:4]:
                types = [collapse_if_tuple(argument) for argument in error["inputs"]]
                try:
                    return RevertReason(error["name"], decode(types, data[4:]))
                except DecodingError:
                    # A node has told something else than the contract says.
                    return RevertReason("")
    return RevertReason("")
