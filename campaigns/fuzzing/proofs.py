"""Transactions that are made of genuine proofs of a random state: as they are, put together otherwise, or spoilt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eth_utils.crypto import keccak

from campaigns.fuzzing import hostile
from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.interpreter import Machine
from campaigns.fuzzing.operations import mutate
from campaigns.fuzzing.scenes import random_scene
from campaigns.fuzzing.transactions import split
from chains.packed.layout import (
    BRANCH,
    END_OF_BRANCHES,
    HASH_ALONE,
    HEADER_ALONE,
    OPEN_STORAGE,
    PARENT,
    shortest,
)
from tests.contracts.worlds import NEAR_SLOTS, Asked, World, random_world, slot_key
from tests.contracts.worlds import mutate as mutate_bytes

_SIZES = (0, 1, 2, 5, 20, 60, 200)
_PROOFS = 6
# Their keys depart from those of NEAR_SLOTS in the extension that leads to these.
_BESIDE_NEAR_SLOTS = [slot for slot in range(200, 1_000) if slot_key(slot)[0] >> 4 == slot_key(NEAR_SLOTS[0])[0] >> 4]
# How many headers come before the block's own.
_WALKS = (0, 0, 0, 1, 2)
# Those, and one that makes the hash of the first known.
_HEADERS = 2 + max(_WALKS)


@dataclass(frozen=True)
class Known:
    """The stored facts of a registry."""

    storage: Mapping[int, int] = field(default_factory=dict)
    state_roots: Mapping[int, bytes] = field(default_factory=dict)
    hashes: frozenset[bytes] = frozenset()


@dataclass(frozen=True)
class Transaction:
    calldata: bytes
    kinds: Sequence[str]
    """The kinds of naming its block, and the first bytes of its operations."""
    answer: bytes | None
    """The answer of the block hash source for any block. None: it reverts."""
    known: Known
    """Before."""


class Setting:
    """A random state with genuine proofs, the headers that lead to it, and registries that know something of them."""

    def __init__(self, chance: Chance, machine: Machine) -> None:
        """`machine` runs the registry's code."""
        self._chance = chance
        self._machine = machine
        # Its children have numbers of 64 bits, too.
        self._number = number = chance.number(8) % (2**64 - _HEADERS)
        world = random_world(chance, number, chance.pick(_SIZES))
        self._proofs = [self._genuine(world) for _ in range(_PROOFS)]
        # From the block's own on, each the child of the one before.
        self._headers = [hostile.header(chance, number, world.root, chance.randbytes(32))]
        while len(self._headers) < _HEADERS:
            child, parent_hash = number + len(self._headers), keccak(self._headers[-1].encoded)
            self._headers.append(hostile.header(chance, child, chance.randbytes(32), parent_hash))
        own = self._headers[0].encoded
        self._accumulated = self._knowing(own + bytes([HEADER_ALONE]), state_roots={number: world.root})
        another_root = chance.randbytes(32)
        other = hostile.header(chance, number, another_root, bytes(32)).encoded
        self._deceived = self._knowing(other + bytes([HEADER_ALONE]), state_roots={number: another_root})

    def _genuine(self, world: World) -> list[bytes]:
        chance = self._chance
        asked = {account.address: account for account in world.ask(chance.pick((1, 1, 2, 6)))}
        near = [address for address, storage in world.storages.items() if NEAR_SLOTS[0] in storage]
        if near and chance.happens(0.5):
            # Nothing is stored of this account but its slots.
            address = chance.pick(near)
            asked[address] = Asked(address, 0, [chance.pick(_BESIDE_NEAR_SLOTS)])
        return split(world.prove(asked.values(), known=True)[len(_named(self._number)) :])

    def transaction(self) -> Transaction:
        chance = self._chance
        operations = self._operations()
        kinds = [f"{operation[0]:02x}" for operation in operations if operation]
        if chance.happens(0.2):
            known = self._accumulated if chance.happens(0.95) else Known()
            return self._spoil(_named(self._number), operations, ["number", *kinds], None, known)
        walked = chance.pick(_WALKS)
        trusted, *others = (header.encoded for header in self._headers[walked::-1])
        headers = bytes([PARENT]).join([trusted, *others])
        answer, known, how = self._trust(walked)
        forms = [how, "walked"] if walked else [how]
        if chance.happens(0.05):
            return self._spoil(headers, [bytes([HASH_ALONE])], [*forms, "parent hash"], answer, known)
        if chance.happens(0.3):
            headers += hostile.fields_to_prove(chance, self._headers[0])
            forms.append("header fields")
        if chance.happens(0.05):
            return self._spoil(headers, [bytes([HEADER_ALONE])], [*forms, "header alone"], answer, known)
        return self._spoil(headers, operations, [*forms, *kinds], answer, known)

    def _trust(self, walked: int) -> tuple[bytes | None, Known, str]:
        """Choose why the first block's header is trusted, if it is: the source's answer, what is known, and a name."""
        chance = self._chance
        digest = keccak(self._headers[walked].encoded)
        if chance.happens(0.75):
            known = self._deceived if chance.happens(0.03) else chance.pick((Known(), Known(), self._accumulated))
            return digest, known, "vouched for"
        unknown = chance.pick((None, b"", bytes(32), digest[:31], digest + b"\0", chance.randbytes(32)))
        if chance.happens(0.2):
            return unknown, Known(), "trusted by nobody"
        child = self._headers[walked + 1].encoded
        return unknown, self._knowing(child + bytes([HASH_ALONE]), hashes=frozenset({digest})), "known"

    def _knowing(
        self, calldata: bytes, state_roots: Mapping[int, bytes] | None = None, hashes: frozenset[bytes] = frozenset()
    ) -> Known:
        """Return what a registry knows that has taken this: a header, and one more byte."""
        execution = self._machine.call(calldata, answer=keccak(calldata[:-1]))
        assert execution.succeeded
        return Known(execution.storage, state_roots or {}, hashes)

    def _operations(self) -> list[bytes]:
        """Return the operations of a proof, mostly with something changed."""
        chance = self._chance
        operations = list(chance.pick(self._proofs))
        for _ in range(chance.pick((0, 0, 1, 1, 2, 3))):
            place, other = chance.below(len(operations) + 1), chance.pick(chance.pick(self._proofs))
            there = operations[place : place + 1]
            operations[place : place + 1] = chance.pick(_CHANGES)(chance, there, other)
        if chance.happens(0.1):
            # So that there is less on the stack than is taken.
            del operations[: chance.below(len(operations) + 1)]
        return operations

    def _spoil(
        self, before: bytes, operations: Sequence[bytes], kinds: Sequence[str], answer: bytes | None, known: Known
    ) -> Transaction:
        chance = self._chance
        after = b"".join(operations)
        if chance.happens(0.05):
            after = mutate_bytes(chance, after, b"".join(chance.pick(self._proofs))) if after else b"\0"
        elif chance.happens(0.03):
            before = mutate_bytes(chance, before, self._headers[1].encoded)
        return Transaction(before + after, kinds, answer, known)


def _named(number: int) -> bytes:
    """A block that is accumulated."""
    digits = shortest(number) or b"\0"
    return bytes([len(digits)]) + digits


# What becomes of one operation, or at the end of none; `other` is one of any of the proofs.
_Change = Callable[[Chance, list[bytes], bytes], list[bytes]]


def _leave_out(_chance: Chance, _there: list[bytes], _other: bytes) -> list[bytes]:
    return []


def _repeat(_chance: Chance, there: list[bytes], _other: bytes) -> list[bytes]:
    return there + there


def _replace(_chance: Chance, _there: list[bytes], other: bytes) -> list[bytes]:
    return [other]


def _add_other(_chance: Chance, there: list[bytes], other: bytes) -> list[bytes]:
    return [other, *there]


def _add_any(chance: Chance, there: list[bytes], _other: bytes) -> list[bytes]:
    """One that suits some stack, if not this one."""
    begun = random_scene(chance)
    below = begun.scene.state if begun.scene.storage else None
    return [begun.writer.suiting(begun.seeming, below, is_history=chance.happens(0.5)), *there]


def _open_storage(chance: Chance, there: list[bytes], _other: bytes) -> list[bytes]:
    return [bytes([OPEN_STORAGE]) + chance.randbytes(20), *there]


def _count_otherwise(chance: Chance, there: list[bytes], _other: bytes) -> list[bytes]:
    """Take more or fewer subtrees into a branch than there are for it."""
    # An operation that was mutated may have nothing left.
    is_branch = any(each and BRANCH <= each[0] < END_OF_BRANCHES for each in there)
    return [bytes([BRANCH + chance.below(16)]) + there[0][1:]] if is_branch else there


def _mutate(chance: Chance, there: list[bytes], _other: bytes) -> list[bytes]:
    return [mutate(chance, each) for each in there]


_CHANGES: Sequence[_Change] = (
    _leave_out,
    _repeat,
    _replace,
    _add_other,
    _add_any,
    _open_storage,
    _count_otherwise,
    _mutate,
)
