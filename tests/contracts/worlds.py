"""Random states of accounts and storages, py-trie's view of them, their packed proofs, and mutated proofs."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie

from chains.tries.packed import HISTORY_ADDRESS, AccountToProve, encode, encode_parent_hash
from chains.tries.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT
from tests.contracts import tries
from tests.contracts.decoder import PackedFacts

# Keys of these slots share their first 32 bits, so leaves with small values are embedded in a branch.
NEAR_SLOTS = (40364, 105566)
# Bytes of branches, known block hashes and ends of proofs, and neighbouring bytes.
_NEAR_OPERATIONS = bytes.fromhex("00 01 0f 10 11 12 1f 20 21 2f 30 31 36 37 38 39 3a 40 41 42 43 44")
FIELDS = (0b0011, 0b0100, 0b1000, 0b0111, 0b1011, 0b1100, 0b1111)


def slot_key(slot: int) -> bytes:
    return keccak(slot.to_bytes(32))


class Asked(NamedTuple):
    """A requested account: a mask of fields to store, slots, and slots of the history contract that
    hold block hashes.
    """

    address: bytes
    fields: int
    slots: Sequence[int]
    history: Sequence[int] = ()


@dataclass
class World:
    """A state (accounts and their storage), and the headers that lead back to it.

    `walked` is the number of headers after the block's own. The block hash source vouches for the newest header, or, if
    `by_child`, for that header's child.
    """

    chance: random.Random
    number: int
    walked: int = 0
    by_child: bool = False
    accounts: dict[bytes, tuple[int, int, bytes]] = field(default_factory=dict)  # nonce, balance, code hash
    storages: dict[bytes, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._storage_tries: dict[bytes, HexaryTrie] = {}
        self.state: HexaryTrie = tries.build({})
        self.header = b""
        self.headers: list[bytes] = []
        self.vouched = b""

    def close(self) -> "World":
        """Build the tries. The state must not change afterwards."""
        leaves = {}
        for address, (nonce, balance, code_hash) in self.accounts.items():
            slots = self.storages.get(address, {})
            storage = tries.build({slot_key(slot): tries.encode(value) for slot, value in slots.items()})
            self._storage_tries[address] = storage
            leaves[keccak(address)] = tries.account(nonce, balance, storage.root_hash, code_hash)
        self.state = tries.build(leaves)
        self.make_headers()
        return self

    def make_headers(self, extra_data: bytes = b"") -> None:
        """Make the headers of the block and of the blocks after it. `extra_data` is the block's own."""
        self.header = tries.header(self.number, self.root, self.chance.randbytes(32), extra_data)
        self.headers = [self.header]
        for _ in range(self.walked):
            self.headers.insert(0, self._child(self.headers[0]))
        self.vouched = self._child(self.headers[0]) if self.by_child else self.headers[0]

    def _child(self, header: bytes) -> bytes:
        return tries.header(number_of(header) + 1, self.chance.randbytes(32), keccak(header))

    @property
    def root(self) -> bytes:
        return bytes(self.state.root_hash)

    @property
    def block_hash(self) -> bytes:
        return keccak(self.header)

    def to_prove(
        self, address: bytes, fields: int, slots: Iterable[int], history: Iterable[int] = ()
    ) -> AccountToProve:
        storage = self._storage_tries.get(address, tries.build({}))

        def proofs(wanted_slots: Iterable[int]) -> dict[int, list[bytes]]:
            return {slot: tries.proof(storage, slot_key(slot)) for slot in wanted_slots}

        return AccountToProve(address, fields, tries.proof(self.state, keccak(address)), proofs(slots), proofs(history))

    def prove(self, requests: Iterable[Asked | tuple[bytes, int, list[int]]], *, known: bool = False) -> bytes:
        """Return packed calldata for these accounts."""
        accounts = [self.to_prove(*each) for each in requests]
        return encode(self.number if known else self.headers, self.root, accounts)

    def ask(self, most: int = 6) -> list[Asked]:
        """Return random requests for existing and absent accounts and slots."""
        chance = self.chance
        addresses = chance.sample(sorted(self.accounts), min(len(self.accounts), chance.randint(0, most)))
        addresses += [chance.randbytes(20) for _ in range(chance.randint(0 if addresses else 1, most))]
        requests = [Asked(address, chance.choice(FIELDS), self._ask_slots(address)) for address in addresses]
        return [self._ask_history(each) if each.address == HISTORY_ADDRESS else each for each in requests]

    def _ask_history(self, request: Asked) -> Asked:
        """Request some slots as block hashes."""
        there = self.storages.get(HISTORY_ADDRESS, {})
        history = [slot for slot in there if self.chance.random() < 0.4]
        return request._replace(slots=[slot for slot in request.slots if slot not in history], history=history)

    def _ask_slots(self, address: bytes) -> list[int]:
        chance = self.chance
        if chance.random() < 0.5:
            return []
        there = sorted(self.storages.get(address, {}))
        slots = chance.sample(there, min(len(there), chance.randint(0, 4)))
        slots += [
            chance.choice([chance.randrange(2**16), chance.randrange(2**256)]) for _ in range(chance.randint(0, 4))
        ]
        return sorted(set(slots))

    def agrees(self, facts: PackedFacts) -> bool:
        """Return whether the facts are true of this state according to py-trie, or true of a header
        above the block's.
        """
        if facts.headers and facts.headers[-1] != self.header:
            return not facts.accounts and self._agrees_on_headers(facts)
        return self._agrees_on_headers(facts) and all(
            self._agrees_on(address, account.exists, account.slots)
            and all(
                self.storages[address][slot].to_bytes(32) == digest in facts.known_hashes
                for slot, digest in account.history.items()
            )
            and (
                self.state.get(keccak(address))
                == tries.account(account.nonce, account.balance, account.storage_root, account.code_hash)
                if account.exists
                else self.state.get(keccak(address)) == b""
            )
            for address, account in facts.accounts.items()
        )

    def _agrees_on_headers(self, facts: PackedFacts) -> bool:
        last = facts.headers[-1] if facts.headers else self.header
        parent_hash, _, _, state_root, *_ = rlp.decode(last)
        hashes = {digest for account in facts.accounts.values() for digest in account.history.values()}
        chain = [self.vouched, *self.headers] if self.by_child else self.headers
        # A proof may begin at any header whose hash is known.
        start = chain.index(facts.headers[0]) if facts.headers and facts.headers[0] in chain else 0
        return (
            list(facts.headers) == chain[start : start + len(facts.headers)]
            and (facts.block_number, facts.state_root) == (number_of(last), state_root)
            and set(facts.known_hashes) in (hashes, {parent_hash})
        )

    def _agrees_on(self, address: bytes, exists: bool, slots: object) -> bool:  # noqa: FBT001 - a predicate.
        assert isinstance(slots, dict)
        storage = self._storage_tries[address] if exists else tries.build({})
        return all(
            storage.get(slot_key(slot)) == (tries.encode(value) if value else b"") for slot, value in slots.items()
        )

    def encode_again(self, facts: PackedFacts) -> bytes:
        """Return the calldata that proves exactly these facts."""
        if facts.known_hashes and not facts.accounts:
            return encode_parent_hash(facts.headers)
        accounts = [
            self.to_prove(address, account.fields, account.slots, account.history)
            for address, account in facts.accounts.items()
        ]
        return encode(
            facts.headers or facts.block_number,
            facts.state_root,
            accounts,
            header_fields=facts.header_fields,
        )


def number_of(header: bytes) -> int:
    return int.from_bytes(rlp.decode(header)[8])


def random_world(chance: random.Random, number: int, size: int, walked: int = 0, *, by_child: bool = False) -> World:
    """Return a world with the history contract and `size` other accounts."""
    world = World(chance, number, walked, by_child)
    world.accounts[HISTORY_ADDRESS] = (1, 0, chance.randbytes(32))
    world.storages[HISTORY_ADDRESS] = {
        slot: chance.choice([1, chance.randrange(1, 2**240), *(chance.randrange(1, 2**256) for _ in range(4))])
        for slot in [0, *chance.sample(range(1, 8191), chance.choice([0, 1, 3, 20]))]
    }
    for _ in range(size):
        address = chance.randbytes(20)
        nonce = chance.choice([0, 1, 127, 128, chance.randrange(2**64)])
        balance = chance.choice([0, 1, 127, 128, 2**256 - 1, chance.randrange(2**90)])
        code_hash = EMPTY_CODE_HASH if chance.random() < 0.5 else chance.randbytes(32)
        world.accounts[address] = (nonce, balance, code_hash)
        if chance.random() < 0.5:
            slots = chance.sample(range(200), chance.choice([1, 2, 3, 20]))
            if chance.random() < 0.4:
                slots += NEAR_SLOTS
            world.storages[address] = {
                slot: chance.choice([1, 127, 128, 2**256 - 1, chance.randrange(1, 2**160)]) for slot in slots
            }
    return world.close()


def empty_world(number: int) -> World:
    world = World(random.Random(number), number).close()
    assert world.root == EMPTY_TRIE_ROOT
    return world


def mutate(chance: random.Random, proof: bytes, other: bytes) -> bytes:
    """Return the proof with one or two random faults of any kind."""
    spoilt = proof
    for _ in range(1 if chance.random() < 0.8 else 2):
        if not spoilt:
            break
        offset, size = chance.randrange(len(spoilt)), chance.choice([1, 1, 2, 20, 32, 33])
        before, there, after = spoilt[:offset], spoilt[offset : offset + size], spoilt[offset + size :]
        start = chance.randrange(len(other))
        near = [at for at, byte in enumerate(spoilt) if byte in _NEAR_OPERATIONS] or [offset]
        at = chance.choice(near)
        spoilt = chance.choice(
            [
                before + bytes([there[0] ^ 1 << chance.randrange(8)]) + there[1:] + after,
                before + bytes([there[0] ^ 1 << chance.randrange(8)]) + there[1:] + after,
                before + bytes([chance.randrange(256)]) + there[1:] + after,
                before + after,
                before + chance.randbytes(size) + there + after,
                before,
                before + there + there + after,
                before + other[start : start + size] + after,
                before + after[:size] + there + after[size:],
                spoilt[:at] + bytes([chance.choice(_NEAR_OPERATIONS)]) + spoilt[at + 1 :],
            ]
        )
    return spoilt
