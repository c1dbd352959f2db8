"""What the tries of a source chain are like, by the proofs of a few of the accounts that are asked for."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from chains.header import Header
from chains.rpc import AccountProof, ProofRequest
from chains.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT, Account
from proving.facts import AccountFact, Fact, SlotFact
from proving.gas_model import trie_shapes
from proving.gas_model.proof_gas import Storage, Tries
from proving.gas_model.trie_shapes import TriePath, path_of

# Samples of the accounts, of accounts with requested slots, and of each account's slots.
_ACCOUNTS, _CONTRACTS, _SLOTS = 4, 4, 4
_HASH_BYTES = 32

_T = TypeVar("_T")


def wanted(header: Header, here: Iterable[Fact], everywhere: Iterable[Fact]) -> list[ProofRequest]:
    """Choose a few of the accounts that are asked for at a block, and those with the most slots asked for anywhere."""
    slots: dict[str, list[int]] = {}
    for fact in everywhere:
        if isinstance(fact, SlotFact):
            slots.setdefault(fact.address, []).append(int(fact.slot, 16))
    contracts = sorted(slots, key=lambda address: len(slots[address]), reverse=True)[:_CONTRACTS]
    others = sorted({fact.address for fact in here if isinstance(fact, AccountFact)}.difference(contracts))
    chosen = [*_spread(others, _ACCOUNTS), *contracts]
    return [
        ProofRequest(header.number, header.hash, header.state_root, address, _spread(slots.get(address, ()), _SLOTS))
        for address in chosen
    ]


def read(proofs: Sequence[AccountProof]) -> Tries:
    """Return what the proofs tell about the tries."""
    ways: list[TriePath] = []
    leaves: list[int] = []
    storages: dict[str, Storage] = {}
    for proof in proofs:
        ways.append(path_of(bytes.fromhex(proof.address[2:]), proof.nodes))
        if proof.account.exists:
            leaves.append(_leaf_size(proof.account))
        if proof.slots:
            storages[proof.address] = _storage(proof)
    if not leaves:
        return Tries(trie_shapes.of_paths(ways), storages=storages)
    return Tries(trie_shapes.of_paths(ways), sum(leaves) / len(leaves), storages)


def _storage(proof: AccountProof) -> Storage:
    present = [_size(slot.value) for slot in proof.slots if slot.value]
    shape = trie_shapes.of_paths([path_of(slot.slot.to_bytes(32), slot.nodes) for slot in proof.slots])
    return Storage(shape, sum(present) / len(present)) if present else Storage(shape)


def _leaf_size(account: Account) -> int:
    hashes = (account.storage_root != EMPTY_TRIE_ROOT) + (account.code_hash != EMPTY_CODE_HASH)
    return _size(account.nonce) + _size(account.balance) + _HASH_BYTES * hashes


def _size(number: int) -> int:
    """Return the size in bytes."""
    return (number.bit_length() + 7) // 8


def _spread(items: Sequence[_T], most: int) -> list[_T]:
    """Return at most `most` items, from all over the list."""
    return [items[place * len(items) // most] for place in range(most)] if len(items) > most else list(items)
