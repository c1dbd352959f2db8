"""Proofs of plain nodes for `FactsReader`'s views, and a model of what the views answer.

The model reads a proof's list and receipts, and leaves single nodes to `chains.tries.trie`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import rlp
from eth_abi.abi import encode
from eth_utils.crypto import keccak
from trie import HexaryTrie

from chains.contract_artifacts import Artifact
from chains.encoding import Item, decode_rlp, read_bytes, read_integer
from chains.tries.trie import (
    EMPTY_CODE_HASH,
    InvalidProof,
    _read_path,
    _read_value,
    _referenced,
    verify_account,
    verify_slot,
)
from devnet.devchain import DevChain
from tests.contracts import tries
from tests.contracts.blocks import Log
from tests.contracts.blocks import Outcome as Receipt
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Outcome, Simulator

REFUSAL = keccak(text="InvalidProof()")[:4]
_SLOT = keccak(text="verifyOnlyStorage(bytes32,bytes32,bytes)")[:4]
_ACCOUNT = keccak(text="verifyOnlyAccount(uint256,address,bytes32,bytes)")[:4]
_SLOT_IN_ARRAY = keccak(text="slotValue(bytes32,bytes32,bytes[])")[:4]
_SLOTS = keccak(text="slotValues(bytes32[],bytes32,bytes)")[:4]
_ACCOUNT_IN_ARRAY = keccak(text="accountItems(address,bytes32,bytes[])")[:4]
_RECEIPT = keccak(text="receiptByProof(uint256,uint256,uint256,bytes)")[:4]
_LOG = keccak(text="logByProof(uint256,uint256,uint256,uint256,bytes)")[:4]
_RECEIPT_ALONE = keccak(text="receipt(uint256,bytes32,bytes)")[:4]
_LOG_ALONE = keccak(text="receiptLog(uint256,uint256,bytes32,bytes)")[:4]
_NO_SUCH_LOG_ALONE = keccak(text="NoSuchLog(uint256,uint256)")[:4]
_NO_SUCH_LOG = keccak(text="NoSuchLog(uint256,uint256,uint256,uint256)")[:4]
CHAIN_ID = 1

# Code of a registry that answers any `try...` function: proven, and the value is the first argument.
_ECHO = "0x60015f5260043560205260405ff3"
# Keys of all transactions, in digits.
_KEYS = frozenset(bytes(rlp.encode(index)).hex() for index in range(2**16))


class ShownProof(Protocol):
    """A call of a view, and the model's answer to it."""

    @property
    def calldata(self) -> bytes: ...

    def answer(self) -> bytes:
        """Return what the view must answer. Raise InvalidProof if it must revert."""


@dataclass(frozen=True)
class Walk:
    """A proof for a pure view. A `name` of 32 bytes is a slot, one of 20 an account."""

    name: bytes
    root: bytes
    proof: bytes

    @property
    def key(self) -> bytes:
        return keccak(self.name)

    @property
    def calldata(self) -> bytes:
        if len(self.name) == 32:
            return _SLOT + encode(["bytes32", "bytes32", "bytes"], [self.name, self.root, self.proof])
        arguments = [1, self.name, self.root, self.proof]
        return _ACCOUNT + encode(["uint256", "address", "bytes32", "bytes"], arguments)

    def answer(self) -> bytes:
        """Return what the view must answer. Raise InvalidProof if it must revert."""
        nodes = nodes_of(self.proof)
        if len(self.name) == 32:
            return verify_slot(self.root, int.from_bytes(self.name), nodes).to_bytes(32)
        account = verify_account(self.root, self.name, nodes)
        code_hash = account.code_hash if account.exists else EMPTY_CODE_HASH
        return account.nonce.to_bytes(32) + account.balance.to_bytes(32) + code_hash + account.storage_root


@dataclass(frozen=True)
class ArrayWalk:
    """The nodes of a walk as an array, for `PackageUser`. Those of less than 32 bytes behind the root don't count."""

    name: bytes
    root: bytes
    nodes: Sequence[bytes]

    @property
    def calldata(self) -> bytes:
        if len(self.name) == 32:
            return _SLOT_IN_ARRAY + encode(["bytes32", "bytes32", "bytes[]"], [self.name, self.root, self.nodes])
        return _ACCOUNT_IN_ARRAY + encode(["address", "bytes32", "bytes[]"], [self.name, self.root, self.nodes])

    def answer(self) -> bytes:
        """Return what the user must answer. Raise InvalidProof if it must revert."""
        counted = [*self.nodes[:1], *(node for node in self.nodes[1:] if len(node) >= 32)]
        # The empty trie has no node, so that none is embedded.
        return walk(self.name, self.root, self.nodes if self.root == tries.EMPTY_ROOT else counted).answer()


@dataclass(frozen=True)
class OneOfSeveral:
    """A walk to a slot as the only one of several, for `PackageUser`."""

    walk: Walk

    @property
    def calldata(self) -> bytes:
        return slots_calldata([self.walk.name], self.walk.root, self.walk.proof)

    def answer(self) -> bytes:
        """Return what the user must answer. Raise InvalidProof if it must revert."""
        return slots_answer([int.from_bytes(self.walk.answer())])


def slots_calldata(slots: Sequence[bytes], root: bytes, proof: bytes) -> bytes:
    return _SLOTS + encode(["bytes32[]", "bytes32", "bytes"], [slots, root, proof])


def slots_answer(values: Sequence[int]) -> bytes:
    return encode(["uint256[]"], [values])


class NamedRefusal(InvalidProof):
    """A refusal that has an error of its own, `data`."""

    def __init__(self, sentence: str, data: bytes) -> None:
        super().__init__(sentence)
        self.data = data


@dataclass(frozen=True)
class ReceiptWalk:
    """A proof for a view under the receipts' root of a block whose number is that root: `anyone_reader` has such ones.

    Without a `log` it is for the receipt.
    """

    index: int
    log: int | None
    root: bytes
    proof: bytes

    @property
    def _arguments(self) -> list[int]:
        numbers = [CHAIN_ID, int.from_bytes(self.root), self.index]
        return numbers if self.log is None else [*numbers, self.log]

    @property
    def calldata(self) -> bytes:
        numbers = self._arguments
        types = [*(["uint256"] * len(numbers)), "bytes"]
        return (_RECEIPT if self.log is None else _LOG) + encode(types, [*numbers, self.proof])

    def answer(self) -> bytes:
        """Return what the view must answer. Raise InvalidProof if it must revert."""
        receipt = verify_receipt(self.root, self.index, nodes_of(self.proof))
        if self.log is None:
            return bytes(6 * 32) if receipt is None else encode_receipt(receipt)
        if receipt is None or self.log >= len(receipt.logs):
            error = _NO_SUCH_LOG + encode(["uint256"] * 4, self._arguments)
            raise NamedRefusal("There is no such log.", error)
        return encode_log(receipt.logs[self.log])


@dataclass(frozen=True)
class WithoutRegistry:
    """A walk to a receipt or a log under a root alone, for `PackageUser`."""

    walk: ReceiptWalk

    @property
    def _places(self) -> list[int]:
        return [self.walk.index] if self.walk.log is None else [self.walk.index, self.walk.log]

    @property
    def calldata(self) -> bytes:
        places = self._places
        types = [*(["uint256"] * len(places)), "bytes32", "bytes"]
        selector = _RECEIPT_ALONE if self.walk.log is None else _LOG_ALONE
        return selector + encode(types, [*places, self.walk.root, self.walk.proof])

    def answer(self) -> bytes:
        """Return what the user must answer. Raise InvalidProof if it must revert."""
        try:
            return self.walk.answer()
        except NamedRefusal as refusal:
            error = _NO_SUCH_LOG_ALONE + encode(["uint256"] * 2, self._places)
            raise NamedRefusal(str(refusal), error) from None


def encode_receipt(receipt: Receipt) -> bytes:
    """Return the answer of `receiptByProof`."""
    status = receipt.facts.status
    numbers = [1, status is not None, status or 0, receipt.type, receipt.gas, len(receipt.logs)]
    return b"".join(int(number).to_bytes(32) for number in numbers)


def encode_log(log: Log) -> bytes:
    """Return the answer of `logByProof`."""
    return encode(["address", "bytes32[]", "bytes"], log)


def verify_receipt(root: bytes, index: int, nodes: Sequence[bytes]) -> Receipt | None:
    """Return the receipt at an index under a receipts' root. None if the nodes prove that there is none.

    Raise InvalidProof.
    """
    if index >= 2**16:
        raise InvalidProof("No block has such an index.")
    if root == tries.EMPTY_ROOT:
        if list(nodes) not in ([], [tries.EMPTY]):
            raise InvalidProof("The proof has nodes, but the trie is empty.")
        return None
    remaining = iter(nodes)
    key = bytes(rlp.encode(index)).hex()
    passed, value = _find_receipt(root, key, remaining)
    if next(remaining, None) is not None:
        raise InvalidProof("The proof has nodes after its end.")
    return read_receipt(value) if value and passed == key else None


def _find_receipt(root: bytes, key: str, remaining: Iterator[bytes]) -> tuple[str, bytes]:
    """Return the digits and the value of the leaf where the walk ends. The value is empty if it ends elsewhere."""
    passed, child = "", root
    while child:
        node = _referenced(child, remaining)
        if len(node) == 17:
            if node[-1] != b"":
                raise InvalidProof("The proof has a branch with a value.")
            if passed == key:
                raise InvalidProof("The proof is deeper than its key is long.")
            children = [b"" if each == b"" else _hashed(each) for each in node[:-1]]
            child, passed = children[int(key[len(passed)], 16)], key[: len(passed) + 1]
            continue
        prefix, is_leaf = _read_path(node[0])
        passed += prefix
        if is_leaf:
            value = _read_value(node[1])
            if passed not in _KEYS:
                raise InvalidProof("The proof has a leaf of a key that no transaction has.")
            return passed, value
        if not prefix or len(passed) >= len(key):
            raise InvalidProof("The proof has an extension that is empty or longer than its key.")
        child = _hashed(node[1])
        if not key.startswith(passed):
            break
    return passed, b""


def _hashed(child: Item) -> bytes:
    if not isinstance(child, bytes) or len(child) != 32:
        raise InvalidProof("The proof has a child that is no hash.")
    return child


def read_receipt(value: bytes) -> Receipt:
    """Read a receipt as the trie has it. Raise InvalidProof."""
    type_ = value[0] if value[0] < 0x80 else None
    if type_ == 0:
        raise InvalidProof("The receipt has a byte for the type 0.")
    try:
        status, gas, bloom, logs, *more = _read_items(decode_rlp(value if type_ is None else value[1:]))
        if more and ((type_ or 0) < 0x64 or not all(isinstance(each, bytes) for each in more)):
            raise ValueError("a list of another length")  # noqa: TRY301 - handled like the other faults.
        if not (isinstance(status, bytes) and (status in {b"", b"\1"} or (len(status) == 32 and type_ is None))):
            raise ValueError("a status that is none")  # noqa: TRY301
        read_bytes(bloom, 256)
        return Receipt(
            status if len(status) == 32 else len(status),
            type_ or 0,
            read_integer(gas, 8),
            [_read_log(each) for each in _read_items(logs)],
            [each for each in more if isinstance(each, bytes)],
        )
    except ValueError as error:
        raise InvalidProof(f"The receipt is malformed: {error}.") from None


def _read_log(item: Item) -> Log:
    emitter, topics, data = _read_items(item)
    words = [read_bytes(topic, 32) for topic in _read_items(topics)]
    if len(words) > 4 or not isinstance(data, bytes):
        raise ValueError("a log that is none")
    return read_bytes(emitter, 20), words, data


def _read_items(item: Item) -> Sequence[Item]:
    if isinstance(item, bytes):
        raise ValueError("a string instead of a list")
    return item


def anyone_reader(chain: DevChain, artifact: Artifact | None = None) -> Deployed:
    """Return a reader for which each number of a block is this block's root of receipts."""
    registry = Deployed(chain, "test/SettableBlockHashSource", CHAIN_ID)
    reader = Deployed(chain, "FactsReader", [registry.address], artifact=artifact)
    chain.rpc("anvil_setCode", registry.address, _ECHO)
    return reader


def receipt_trie(values: Mapping[int, bytes]) -> HexaryTrie:
    """Return the trie of receipts, given as the trie's values by index."""
    return tries.build({tries.encode(index): value for index, value in values.items()})


def receipt_nodes(trie: HexaryTrie, index: int) -> list[bytes]:
    return tries.proof(trie, tries.encode(index))


def nodes_of(proof: bytes) -> list[bytes]:
    """Return the nodes in a proof. Raise InvalidProof if it isn't the RLP of a list of byte strings."""
    try:
        items = decode_rlp(proof)
    except ValueError:
        raise InvalidProof("The proof is no RLP.") from None
    if isinstance(items, bytes) or not all(isinstance(item, bytes) for item in items):
        raise InvalidProof("The proof is no list of byte strings.")
    return [bytes(item) for item in items if isinstance(item, bytes)]


def spoilt_proofs(genuine: bytes) -> list[bytes]:
    """Return proofs that are cut anywhere, longer, or have a node too few, twice, spoilt or in another place."""
    nodes = [bytes(node) for node in rlp.decode(genuine)]
    changed = [[*nodes, other] for other in (b"", b"\x80", b"\xc0", nodes[0])]
    for place, node in enumerate(nodes):
        before, behind = nodes[:place], nodes[place + 1 :]
        flipped = bytes([*node[:-1], node[-1] ^ 1])
        changed += [[*before, *behind], [*before, node, node, *behind], [*before, node[:-1], *behind]]
        changed += [
            [*before, node + b"\0", *behind],
            [*before, flipped, *behind],
            [*before, *behind, node][: len(nodes)],
        ]
    proofs = [tries.encode(each) for each in changed if each != nodes]
    proofs += [genuine[:size] for size in range(0, len(genuine), 50)]
    proofs += [genuine + b"\0", tries.encode(genuine), tries.listed(genuine), b"".join(nodes)]
    return proofs


def walk(name: bytes, root: bytes, nodes: Sequence[bytes]) -> Walk:
    return Walk(name, root, tries.encode(list(nodes)))


def arrays(walks: Iterable[Walk]) -> Iterator[ArrayWalk]:
    """Yield the walks whose proof is a list of byte strings, as arrays."""
    for each in walks:
        with suppress(InvalidProof):
            yield ArrayWalk(each.name, each.root, nodes_of(each.proof))


def difference(walk: ShownProof, outcome: Outcome) -> tuple[str, str]:
    """Return the model's refusal, and how the contract's outcome differs from the model's; empty where it doesn't."""
    try:
        answer, refusal = walk.answer(), ""
    except InvalidProof as error:
        answer, refusal = getattr(error, "data", REFUSAL), str(error)
    agrees = outcome.succeeded == (not refusal) and outcome.data == answer
    shown = f"The model: {refusal or answer.hex()}. The contract: {outcome.succeeded} {outcome.data.hex()}. {walk}"
    return refusal, "" if agrees else shown


def refusals(simulator: Simulator, reader: Deployed, walks: Iterable[ShownProof]) -> list[str]:
    """Return the model's refusal of each walk, empty where it answers. The contract must agree."""
    all_walks = list(walks)
    outcomes = simulator.run([Call(reader.address, each.calldata) for each in all_walks])
    differences = [difference(each, outcome) for each, outcome in zip(all_walks, outcomes, strict=True)]
    assert [how for _, how in differences if how] == []
    return [refusal for refusal, _ in differences]
