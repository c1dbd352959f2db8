"""The facts registry as a contract: calls encoded, answers and reverts decoded (`contracts/src/FactsRegistry.sol`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eth_abi.abi import decode
from eth_utils.abi import collapse_if_tuple, function_abi_to_4byte_selector
from eth_utils.address import to_checksum_address
from web3 import Web3

from chains import packed
from chains.packed import AccountToProve
from contracts import load_artifact
from queries.models import AccountField, HeaderField

_CODEC = Web3()


@dataclass(frozen=True)
class RevertReason:
    """A custom error of the contract with its arguments, or an empty name for anything else."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})" if self.name else "reverted without a reason"


class Registry:
    """The registry at `address`. Encodes only; whoever has a client makes the calls."""

    def __init__(self, address: str) -> None:
        self.address = to_checksum_address(address)
        self._contract = _CODEC.eth.contract(address=self.address, abi=load_artifact("FactsRegistry").abi)

    def state_root(self, block_number: int) -> tuple[str, bytes]:
        """A call that answers 32 bytes: zero where the block's header is not accumulated."""
        return self._call("stateRoot", block_number)

    def account_field(self, address: str, block_number: int, field: AccountField) -> tuple[str, bytes]:
        """A call whose answer `decode_try` reads, as for the three below."""
        return self._call("tryAccountField", address, block_number, int(field))

    def slot_value(self, address: str, block_number: int, slot: str) -> tuple[str, bytes]:
        return self._call("tryAccountStorageSlotValues", address, block_number, bytes.fromhex(slot[2:]))

    def header_field(self, block_number: int, field: HeaderField) -> tuple[str, bytes]:
        return self._call("tryHeaderField", block_number, int(field))

    def block_at_timestamp(self, timestamp: int) -> tuple[str, bytes]:
        return self._call("tryBlockAtTimestamp", timestamp)

    @staticmethod
    def decode_try(answer: bytes) -> bytes | None:
        """The fact's word (32 bytes), or None where nothing is proven."""
        proven, word = decode(["bool", "bytes32"], answer)
        return bytes(word) if proven else None

    def prove_timestamp(self, header: bytes, following: bytes, timestamp: int) -> bytes:
        """Calldata that stores that the header's block is the latest at a time; `following` is the header after it."""
        return self._call("proveTimestamp", header, following, timestamp)[1]

    @staticmethod
    def prove(
        block: bytes | int,
        state_root: bytes,
        accounts: Iterable[AccountToProve] = (),
        *,
        header_fields: Iterable[HeaderField] = (),
    ) -> bytes:
        """Calldata that stores facts of accounts and, if `block` is a header and not a number, accumulates it."""
        return packed.encode(block, state_root, accounts, header_fields=header_fields)

    def _call(self, function: str, *arguments: Any) -> tuple[str, bytes]:
        return self.address, bytes.fromhex(self._contract.encode_abi(function, args=arguments).removeprefix("0x"))


def block_hash(source_address: str, block_number: int) -> tuple[str, bytes]:
    """A call of a block hash source that answers 32 bytes: zero where it can't vouch for the block."""
    contract = _CODEC.eth.contract(
        address=to_checksum_address(source_address), abi=load_artifact("NativeBlockHashSource").abi
    )
    return contract.address, bytes.fromhex(contract.encode_abi("blockHash", args=[block_number]).removeprefix("0x"))


def creation_code(name: str, *arguments: Any) -> bytes:
    """What to send to create the contract `name`, constructor arguments included."""
    artifact = load_artifact(name)
    contract = _CODEC.eth.contract(abi=artifact.abi, bytecode=artifact.bytecode)
    return bytes.fromhex(contract.constructor(*arguments).data_in_transaction.removeprefix("0x"))


def revert_reason(data: bytes) -> RevertReason:
    """Which of the registry's custom errors the revert data is."""
    for error in load_artifact("FactsRegistry").abi:
        if error["type"] == "error" and function_abi_to_4byte_selector(error) == data[:4]:
            types = [collapse_if_tuple(argument) for argument in error["inputs"]]
            return RevertReason(error["name"], decode(types, data[4:]))
    return RevertReason("")
