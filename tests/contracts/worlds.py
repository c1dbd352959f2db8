"""Random states with accounts and storage, what py-trie says of them, their packed proofs, and mutations of those."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from eth_utils.crypto import keccak
from trie import HexaryTrie

from chains.packed import AccountToProve, PackedFacts, encode
from chains.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT
from tests.contracts import tries

# Two slots whose hashes share their first 32 bits: leaves of small values there are embedded in their branch.
NEAR_SLOTS = (40364, 105566)
FIELDS = (0b0011, 0b0100, 0b1000, 0b0111, 0b1011, 0b1100, 0b1111)


def slot_key(slot: int) -> bytes:
    return keccak(slot.to_bytes(32))


@dataclass
class World:
    """A state: accounts by address, each with its leaf's parts and its storage."""

    chance: random.Random
    number: int
    accounts: dict[bytes, tuple[int, int, bytes]] = field(default_factory=dict)  # nonce, balance, code hash
    storages: dict[bytes, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._storage_tries: dict[bytes, HexaryTrie] = {}
        self.state: HexaryTrie = tries.build({})
        self.header = b""

    def close(self) -> "World":
        """Build the tries, after which nothing changes any more."""
        leaves = {}
        for address, (nonce, balance, code_hash) in self.accounts.items():
            slots = self.storages.get(address, {})
            storage = tries.build({slot_key(slot): tries.encode(value) for slot, value in slots.items()})
            self._storage_tries[address] = storage
            leaves[keccak(address)] = tries.account(nonce, balance, storage.root_hash, code_hash)
        self.state = tries.build(leaves)
        self.header = tries.header(self.number, self.root)
        return self

    @property
    def root(self) -> bytes:
        return bytes(self.state.root_hash)

    @property
    def block_hash(self) -> bytes:
        return keccak(self.header)

    def to_prove(self, address: bytes, fields: int, slots: Iterator[int] | list[int]) -> AccountToProve:
        storage = self._storage_tries.get(address, tries.build({}))
        proofs = {slot: tries.proof(storage, slot_key(slot)) for slot in slots}
        return AccountToProve(address, fields, tries.proof(self.state, keccak(address)), proofs)

    def prove(self, asked: list[tuple[bytes, int, list[int]]], *, known: bool = False) -> bytes:
        """Packed calldata for accounts by address, fields and slots."""
        accounts = [self.to_prove(*each) for each in asked]
        return encode(self.number if known else self.header, self.root, accounts)

    def ask(self, most: int = 6) -> list[tuple[bytes, int, list[int]]]:
        """Some of what there is, and some of what there isn't."""
        chance = self.chance
        addresses = chance.sample(sorted(self.accounts), min(len(self.accounts), chance.randint(0, most)))
        addresses += [chance.randbytes(20) for _ in range(chance.randint(0 if addresses else 1, most))]
        return [(address, chance.choice(FIELDS), self._ask_slots(address)) for address in addresses]

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
        """Whether these are facts of this state, as py-trie tells them."""
        return facts.state_root == self.root and all(
            self._agrees_on(address, account.exists, account.slots)
            and (
                self.state.get(keccak(address))
                == tries.account(account.nonce, account.balance, account.storage_root, account.code_hash)
                if account.exists
                else self.state.get(keccak(address)) == b""
            )
            for address, account in facts.accounts.items()
        )

    def _agrees_on(self, address: bytes, exists: bool, slots: object) -> bool:  # noqa: FBT001 - a predicate.
        assert isinstance(slots, dict)
        storage = self._storage_tries[address] if exists else tries.build({})
        return all(
            storage.get(slot_key(slot)) == (tries.encode(value) if value else b"") for slot, value in slots.items()
        )

    def encode_again(self, facts: PackedFacts) -> bytes:
        """The calldata that proves just these facts."""
        accounts = [
            self.to_prove(address, account.fields, list(account.slots)) for address, account in facts.accounts.items()
        ]
        return encode(
            facts.headers or facts.block_number,
            facts.state_root,
            accounts,
            header_fields=facts.header_fields,
        )


def random_world(chance: random.Random, number: int, size: int) -> World:
    world = World(chance, number)
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
    """The proof with one or two things wrong, of the kinds that bytes can be wrong."""
    spoilt = proof
    for _ in range(1 if chance.random() < 0.8 else 2):
        if not spoilt:
            break
        place, size = chance.randrange(len(spoilt)), chance.choice([1, 1, 2, 20, 32, 33])
        before, there, after = spoilt[:place], spoilt[place : place + size], spoilt[place + size :]
        start = chance.randrange(len(other))
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
            ]
        )
    return spoilt
