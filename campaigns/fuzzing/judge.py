"""A judge of a registry's facts. It uses only the headers and nodes that were shown.

It doesn't use the registry's code or its model. Keys, header fields and values come from the bytes themselves.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from eth_utils.crypto import keccak

from campaigns.fuzzing.walker import EMPTY_ROOT, NotShown, Odd, Walker, split, string
from tests.contracts.simulator import Log

PARENT_HASH, STATE_ROOT, LOGS_BLOOM, NUMBER, EXTRA_DATA = 0, 3, 6, 8, 12
NONCE, BALANCE, STORAGE_ROOT, CODE_HASH = range(4)
# EIP-2935.
HISTORY = bytes.fromhex("0000F90827F1C53a10cb7A02335B175320002935")

# A number that no block has. The source vouches for a hash with it.
_OTHER_NUMBER = 2**64 - 1


def word(number: int) -> bytes:
    return number.to_bytes(32)


def selector(signature: str) -> bytes:
    return keccak(text=signature)[:4]


_READ_ACCOUNT = selector("tryAccountField(address,uint256,uint8)")
_READ_SLOT = selector("tryAccountStorageSlotValues(address,uint256,bytes32)")
_READ_HEADER = selector("tryHeaderField(uint256,uint8)")
_READ_BLOCK_HASH = selector("vouches(uint256,bytes32)")

_HEADER_ACCUMULATED = keccak(text="HeaderAccumulated(uint256,bytes32)")
_ACCOUNT_PROVEN = keccak(text="AccountProven(address,uint256,uint8)")
_SLOT_PROVEN = keccak(text="StorageSlotProven(address,uint256,bytes32)")
_HEADER_FIELDS_PROVEN = keccak(text="HeaderFieldsProven(uint256,uint256)")
_BLOCK_HASH_PROVEN = keccak(text="BlockHashProven(bytes32)")


class AccountField(NamedTuple):
    number: int
    address: bytes
    field: int

    def calldata(self) -> bytes:
        return _READ_ACCOUNT + bytes(12) + self.address + word(self.number) + word(self.field)


class Slot(NamedTuple):
    number: int
    address: bytes
    slot: bytes  # 32 bytes

    def calldata(self) -> bytes:
        return _READ_SLOT + bytes(12) + self.address + word(self.number) + self.slot


class HeaderField(NamedTuple):
    number: int
    place: int

    def calldata(self) -> bytes:
        return _READ_HEADER + word(self.number) + word(self.place)


class BlockHash(NamedTuple):
    """A known block hash. Reading it gives no value."""

    digest: bytes

    def calldata(self) -> bytes:
        return _READ_BLOCK_HASH + word(_OTHER_NUMBER) + self.digest


Fact = AccountField | Slot | HeaderField | BlockHash


def facts_of(logs: Iterable[Log]) -> Iterator[Fact]:
    """Yield the facts that became readable, according to the registry's events.

    For an accumulated header, that is its state root.
    """
    for log in logs:
        event, *topics = log.topics
        if event == _ACCOUNT_PROVEN:
            number, address = int.from_bytes(topics[1]), topics[0][12:]
            yield from (AccountField(number, address, place) for place in ones(int.from_bytes(log.data)))
        elif event == _SLOT_PROVEN:
            yield Slot(int.from_bytes(topics[1]), topics[0][12:], topics[2])
        elif event == _HEADER_FIELDS_PROVEN:
            number = int.from_bytes(topics[0])
            yield from (HeaderField(number, place) for place in ones(int.from_bytes(log.data)))
        elif event == _HEADER_ACCUMULATED:
            yield HeaderField(int.from_bytes(topics[0]), STATE_ROOT)
        elif event == _BLOCK_HASH_PROVEN:
            yield BlockHash(topics[0])
        else:
            raise AssertionError(f"There is an event that the judge doesn't know: {event.hex()}")


def ones(mask: int) -> Iterator[int]:
    return (place for place in range(mask.bit_length()) if mask >> place & 1)


class NotSo(Exception):
    """A fact is false or can't be confirmed. The message says why."""


class Judge:
    def __init__(
        self,
        vouched: Mapping[int, bytes],
        headers: Iterable[bytes],
        shown: Mapping[bytes, bytes],
        proven: Container[bytes],
        history_slots: Container[str],
    ) -> None:
        """`vouched` has trusted block hashes by number, and `shown` the RLP of nodes by their hashes.

        `proven` has the block hashes that became known. If they are true, they are trusted with any number.
        `history_slots` has the keys of the slots that the protocol writes in the history contract.
        """
        self._walker = Walker(shown)
        self._history_slots = history_slots
        self._headers: dict[int, list[bytes]] = {}
        # The number of the trusted child, by its parent's hash.
        self._children: dict[bytes, int] = {}
        self._accounts: dict[tuple[int, bytes], list[bytes]] = {}
        self._in_history: dict[int, set[bytes]] = {}
        self._trust(vouched, headers, proven)

    def value(self, fact: Fact) -> bytes:
        """Return the 32 bytes that a read must return. Raise NotSo."""
        try:
            if isinstance(fact, BlockHash):
                if not self._is_block_hash(fact.digest):
                    raise NotSo("Nothing shows that this is the hash of a block.")
                return word(1)
            if isinstance(fact, HeaderField):
                return self._header_field(fact)
            account = self._account(fact.number, fact.address)
            return self._slot(account, fact.slot) if isinstance(fact, Slot) else _field(account, fact.field)
        except NotShown as error:
            raise NotSo(f"Nobody has shown the node {error}.") from error
        except Odd as error:
            raise NotSo(str(error)) from error

    def _trust(self, vouched: Mapping[int, bytes], headers: Iterable[bytes], proven: Container[bytes]) -> None:
        """Find the trusted headers: those that are vouched for, and those that they lead to."""
        waiting = [(keccak(each), split(each)) for each in headers]
        progress = True
        while waiting and progress:
            progress = False
            for digest, fields in list(waiting):
                number = int.from_bytes(string(fields[NUMBER]))
                is_parent = self._children.get(digest) == number + 1
                is_known = digest in proven and self._is_block_hash(digest)
                if vouched.get(number) == digest or is_parent or is_known:
                    self._headers[number] = fields
                    # A chain's first block has no parent.
                    if number:
                        self._children[string(fields[PARENT_HASH])] = number
                    waiting.remove((digest, fields))
                    progress = True

    def _is_block_hash(self, digest: bytes) -> bool:
        return any(digest) and (
            digest in self._children or any(digest in self._block_hashes(number) for number in self._headers)
        )

    def _block_hashes(self, number: int) -> set[bytes]:
        """Return the block hashes in the history contract's state at a block, as far as the shown nodes reveal them."""
        if number not in self._in_history:
            try:
                root = _field(self._account(number, HISTORY), STORAGE_ROOT)
                leaves = [value for key, value in self._walker.leaves(root) if key in self._history_slots]
                self._in_history[number] = {_number(value).rjust(32, b"\0") for value in leaves}
            except (NotShown, Odd):
                self._in_history[number] = set()
        return self._in_history[number]

    def _header_field(self, fact: HeaderField) -> bytes:
        fields = self._trusted(fact.number)
        if fact.place >= len(fields):
            raise NotSo("The header has no such field.")
        content = string(fields[fact.place])
        if fact.place in {LOGS_BLOOM, EXTRA_DATA}:
            return keccak(content)
        if len(content) > 32:
            raise NotSo("A field of the header is no word.")
        return content.rjust(32, b"\0")

    def _trusted(self, number: int) -> list[bytes]:
        if number not in self._headers:
            raise NotSo(f"No header of block {number} is to be trusted.")
        return self._headers[number]

    def _account(self, number: int, address: bytes) -> list[bytes]:
        """Return nonce, balance, storage root and code hash. Empty for an absent account."""
        if (number, address) not in self._accounts:
            leaf = self._walker.value(string(self._trusted(number)[STATE_ROOT]), keccak(address).hex())
            self._accounts[number, address] = _account(leaf) if leaf else []
        return self._accounts[number, address]

    def _slot(self, account: list[bytes], slot: bytes) -> bytes:
        leaf = self._walker.value(_field(account, STORAGE_ROOT), keccak(slot).hex())
        return _number(leaf).rjust(32, b"\0") if leaf else bytes(32)


def _account(leaf: bytes) -> list[bytes]:
    items = [string(item) for item in split(leaf)]
    if len(items) != 4 or len(items[STORAGE_ROOT]) != 32 or len(items[CODE_HASH]) != 32:
        raise Odd("A leaf holds no account.")
    if any(len(items[place]) > most or items[place][:1] == b"\0" for place, most in ((NONCE, 8), (BALANCE, 32))):
        raise Odd("Nonce or balance of an account are no numbers.")
    return items


def _field(account: list[bytes], field: int) -> bytes:
    if account:
        return account[field].rjust(32, b"\0")
    return EMPTY_ROOT if field == STORAGE_ROOT else bytes(32)


def _number(leaf: bytes) -> bytes:
    """Return the number in a leaf of a storage trie as bytes. Raise Odd."""
    digits = string(leaf)
    if not digits or digits[0] == 0 or len(digits) > 32:
        raise Odd("A leaf holds no number, or zero.")
    return digits
