"""Proofs of withdrawals for `FactsReader`'s view, and a model of what the view answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import rlp
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from chains.encoding import decode_rlp, read_bytes, read_integer
from chains.tries.trie import InvalidProof
from tests.contracts import tries
from tests.contracts.walks import CHAIN_ID, NamedRefusal, _find_receipt, nodes_of, receipt_nodes, receipt_trie
from tests.fixtures_folder import load_fixture, unhex

_VIEW = keccak(text="withdrawalByProof(uint256,uint256,uint256,bytes)")[:4]
_NO_SUCH = keccak(text="NoSuchWithdrawal(uint256,uint256,uint256)")[:4]
NO_SUCH_WITHDRAWAL = "There is no such withdrawal."


@dataclass(frozen=True)
class Withdrawal:
    number: int
    """Its index over all blocks."""
    validator: int
    recipient: bytes
    amount: int
    """In Gwei."""

    @property
    def fields(self) -> list[int | bytes]:
        return [self.number, self.validator, self.recipient, self.amount]


@dataclass(frozen=True)
class Block:
    header: bytes
    withdrawals: Sequence[Withdrawal]

    @property
    def root(self) -> bytes:
        """Return the root that the header names."""
        return bytes(rlp.decode(self.header)[16])


def recorded(number: int) -> Block:
    """Return a recorded block of mainnet."""
    fixture = load_fixture(f"withdrawals/eth-mainnet-{number}.json")
    withdrawals = [
        Withdrawal(
            int(told["index"], 16), int(told["validatorIndex"], 16), unhex(told["address"]), int(told["amount"], 16)
        )
        for told in fixture["withdrawals"]
    ]
    return Block(unhex(fixture["header"]), withdrawals)


@dataclass(frozen=True)
class WithdrawalWalk:
    """A proof for the view under the root of a block whose number is that root: `walks.anyone_reader` has such ones."""

    place: int
    root: bytes
    proof: bytes

    @property
    def _numbers(self) -> list[int]:
        return [CHAIN_ID, int.from_bytes(self.root), self.place]

    @property
    def calldata(self) -> bytes:
        return _VIEW + encode(["uint256", "uint256", "uint256", "bytes"], [*self._numbers, self.proof])

    def answer(self) -> bytes:
        """Return what the view must answer. Raise InvalidProof if it must revert."""
        withdrawal = verify(self.root, self.place, nodes_of(self.proof))
        if withdrawal is None:
            raise NamedRefusal(NO_SUCH_WITHDRAWAL, _NO_SUCH + encode(["uint256"] * 3, self._numbers))
        return encode_answer(withdrawal)


def encode_answer(withdrawal: Withdrawal) -> bytes:
    """Return the answer of `withdrawalByProof`."""
    return encode(["uint64", "uint64", "address", "uint64"], withdrawal.fields)


def verify(root: bytes, place: int, nodes: Sequence[bytes]) -> Withdrawal | None:
    """Return the withdrawal at a place under a root. None if the nodes prove that there is none. Raise InvalidProof."""
    if place >= 2**16:
        raise InvalidProof("No block has such a place.")
    if root == tries.EMPTY_ROOT:
        if list(nodes) not in ([], [tries.EMPTY]):
            raise InvalidProof("The proof has nodes, but the trie is empty.")
        return None
    if any(len(node) < 32 for node in nodes):
        raise InvalidProof("The proof has a node that is embedded, or a root as short.")
    remaining = iter(nodes)
    key = tries.encode(place).hex()
    passed, value = _find_receipt(root, key, remaining)
    if next(remaining, None) is not None:
        raise InvalidProof("The proof has nodes after its end.")
    if not value:
        return None
    withdrawal = read(value)
    return withdrawal if passed == key else None


def read(value: bytes) -> Withdrawal:
    """Read a withdrawal as the trie has it. Raise InvalidProof."""
    try:
        items = decode_rlp(value)
        index, validator, recipient, amount = () if isinstance(items, bytes) else items
        return Withdrawal(
            read_integer(index, 8), read_integer(validator, 8), read_bytes(recipient, 20), read_integer(amount, 8)
        )
    except ValueError as error:
        raise InvalidProof(f"The withdrawal is malformed: {error}.") from None


def values_of(withdrawals: Iterable[Withdrawal]) -> list[bytes]:
    return [tries.encode(withdrawal.fields) for withdrawal in withdrawals]


def shown(values: Sequence[bytes], places: Iterable[int]) -> list[WithdrawalWalk]:
    """Return the proofs of places in a block whose trie has these values."""
    built = receipt_trie(dict(enumerate(values)))
    return [WithdrawalWalk(place, built.root_hash, tries.encode(receipt_nodes(built, place))) for place in places]
