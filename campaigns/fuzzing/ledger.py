"""A model of contracts/src/Facts.sol: the registry's storage, events and answers."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eth_utils.crypto import keccak

from chains.tries.packed import HEADER_FIELDS
from chains.tries.trie import EMPTY_TRIE_ROOT
from tests.contracts.decoder import AccountFacts, PackedFacts
from tests.contracts.simulator import Log

_ACCOUNT_PROVEN = keccak(text="AccountProven(address,uint256,uint8)")
_SLOT_PROVEN = keccak(text="StorageSlotProven(address,uint256,bytes32)")
_HASH_PROVEN = keccak(text="BlockHashProven(bytes32)")
_HEADER_ACCUMULATED = keccak(text="HeaderAccumulated(uint256,bytes32)")
_HEADER_FIELDS_PROVEN = keccak(text="HeaderFieldsProven(uint256,uint256)")
_TIMESTAMP_PROVEN = keccak(text="TimestampProven(uint256,uint256)")

_READ_ACCOUNT = keccak(text="tryAccountField(address,uint256,uint8)")[:4]
_READ_SLOT = keccak(text="tryAccountStorageSlotValues(address,uint256,bytes32)")[:4]
_READ_HEADER = keccak(text="tryHeaderField(uint256,uint8)")[:4]
_READ_HASH = keccak(text="vouches(uint256,bytes32)")[:4]
_READ_TIMESTAMP = keccak(text="tryBlockAtTimestamp(uint256)")[:4]

_NONCE_AND_BALANCE, _STORAGE_ROOT, _CODE_HASH, _ALL_FIELDS = 0b0011, 0b0100, 0b1000, 0b1111
# Header fields that can be read of every accumulated header.
_STATE_ROOT_PLACE, _NUMBER_PLACE = 3, 8


def word(number: int) -> bytes:
    return number.to_bytes(32)


@dataclass(frozen=True)
class Read:
    """A call of a view function, and the required answer."""

    data: bytes
    answer: bytes


def _read(selector: bytes, *arguments: bytes, value: bytes | None) -> Read:
    return Read(selector + b"".join(arguments), bytes(64) if value is None else word(1) + value)


@dataclass
class _Account:
    """The stored facts of an account at one block. None for a fact that isn't stored."""

    presence: AccountFacts | None = None
    storage_root: bytes | None = None
    code_hash: bytes | None = None
    slots: dict[int, int] = field(default_factory=dict)
    zero_slots: set[int] = field(default_factory=set)

    def store(self, facts: AccountFacts) -> int:
        """Store fields. Return the mask of the fields that were not stored before."""
        added = 0
        if self.presence is None and (not facts.exists or facts.fields & _NONCE_AND_BALANCE):
            self.presence = facts
            added = _NONCE_AND_BALANCE if facts.exists else _ALL_FIELDS
        if facts.fields & _STORAGE_ROOT and self.storage_root is None:
            self.storage_root = facts.storage_root
            added |= _STORAGE_ROOT
        if facts.fields & _CODE_HASH and self.code_hash is None:
            self.code_hash = facts.code_hash
            added |= _CODE_HASH
        return added

    def store_slot(self, slot: int, value: int) -> bool:
        """Store a slot's value, and return whether it was not stored before."""
        if slot in (self.slots if value else self.zero_slots):
            return False
        if value:
            self.slots[slot] = value
        else:
            self.zero_slots.add(slot)
        return True

    def fields(self) -> list[bytes | None]:
        """Return the answers for the account's fields, in the order of AccountField."""
        facts = self.presence
        absent = facts is not None and not facts.exists
        return [
            None if facts is None else word(facts.nonce),
            None if facts is None else word(facts.balance),
            self.storage_root or (EMPTY_TRIE_ROOT if absent else None),
            self.code_hash or (bytes(32) if absent else None),
        ]

    def slot(self, slot: int) -> bytes | None:
        if slot in self.slots:
            return word(self.slots[slot])
        return bytes(32) if slot in self.zero_slots else None


class Ledger:
    """The registry's storage. Events are added to `logs`."""

    def __init__(self, known_hashes: Container[bytes] = ()) -> None:
        """`known_hashes` are the block hashes that are stored at the beginning."""
        self.logs: list[Log] = []
        self._known_hashes = known_hashes
        self.state_roots: dict[int, bytes] = {}
        self.block_hashes: set[bytes] = set()
        self._accounts: dict[tuple[bytes, int], _Account] = {}
        self._headers: dict[int, dict[int, bytes]] = {}
        self._timestamps: dict[int, int] = {}

    def store(self, facts: PackedFacts) -> None:
        """Store everything that packed calldata proves. The order of events is not modelled."""
        if facts.headers and (facts.accounts or not facts.known_hashes):
            self.store_state_root(facts.block_number, facts.state_root)
        self.store_header_fields(facts.block_number, facts.header_fields)
        for digest in facts.known_hashes:
            self.store_block_hash(digest)
        for address, account in facts.accounts.items():
            for slot, value in account.slots.items():
                self.store_slot(facts.block_number, address, slot, value)
            self.store_account(facts.block_number, address, account)

    def store_state_root(self, block: int, root: bytes) -> None:
        if block not in self.state_roots:
            self.state_roots[block] = root
            self._log(_HEADER_ACCUMULATED, word(block), data=root)

    def store_header_fields(self, block: int, words: Mapping[int, bytes]) -> None:
        stored = self._headers.setdefault(block, {})
        added = sum(1 << place for place in words if place not in stored)
        self._headers[block] = {**words, **stored}
        if added:
            self._log(_HEADER_FIELDS_PROVEN, word(block), data=word(added))

    def store_block_hash(self, digest: bytes) -> None:
        if digest not in self.block_hashes and digest not in self._known_hashes:
            self.block_hashes.add(digest)
            self._log(_HASH_PROVEN, digest)

    def store_account(self, block: int, address: bytes, facts: AccountFacts) -> None:
        if added := self._account(block, address).store(facts):
            self._log(_ACCOUNT_PROVEN, address.rjust(32, b"\0"), word(block), data=word(added))

    def store_slot(self, block: int, address: bytes, slot: int, value: int) -> None:
        if self._account(block, address).store_slot(slot, value):
            self._log(_SLOT_PROVEN, address.rjust(32, b"\0"), word(block), word(slot))

    def store_timestamp(self, timestamp: int, block: int) -> None:
        if timestamp not in self._timestamps:
            self._timestamps[timestamp] = block
            self._log(_TIMESTAMP_PROVEN, word(timestamp), word(block))

    def reads(self) -> Iterator[Read]:
        """Yield the reads of all accounts with a stored fact."""
        for address, block in list(self._accounts):
            yield from self.account_reads(address, block)

    def account_reads(self, address: bytes, block: int) -> Iterator[Read]:
        """Yield the reads of an account's stored facts, and of some slots that aren't stored."""
        account = self._account(block, address)
        where = address.rjust(32, b"\0"), word(block)
        for number, value in enumerate(account.fields()):
            yield _read(_READ_ACCOUNT, *where, word(number), value=value)
        slots = {*account.slots, *account.zero_slots}
        for slot in slots | {slot ^ 1 for slot in slots}:
            yield _read(_READ_SLOT, *where, word(slot), value=account.slot(slot))

    def timestamp_read(self, timestamp: int) -> Read:
        block = self._timestamps.get(timestamp)
        return _read(_READ_TIMESTAMP, word(timestamp), value=None if block is None else word(block))

    def hash_read(self, block: int, digest: bytes) -> Read:
        """Return the read of a hash for a block that the block hash source doesn't vouch for."""
        return Read(_READ_HASH + word(block) + digest, word(int(digest in self.block_hashes)))

    def header_reads(self, block: int, places: Iterable[int] = range(HEADER_FIELDS + 1)) -> Iterator[Read]:
        root = self.state_roots.get(block)
        words = dict(self._headers.get(block, {}))
        if root is not None:
            words |= {_STATE_ROOT_PLACE: root, _NUMBER_PLACE: word(block)}
        for place in places:
            yield _read(_READ_HEADER, word(block), word(place), value=words.get(place))

    def _account(self, block: int, address: bytes) -> _Account:
        return self._accounts.setdefault((address, block), _Account())

    def _log(self, *topics: bytes, data: bytes = b"") -> None:
        self.logs.append(Log(topics, data))
