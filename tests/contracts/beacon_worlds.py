"""Beacon chains of random leaves, with blocks of all layouts in short periods, and states that
summarise the periods.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from chains.beacon import jumps, ssz
from chains.beacon.blocks import BLOCK_HASH, BODY_DEPTH, EXECUTION_PAYLOAD, BeaconHeader, ExecutionBranch
from chains.beacon.jumps import (
    BLOCK_ROOTS,
    HISTORICAL_ROOTS,
    HISTORICAL_SUMMARIES,
    HISTORY_DEPTH,
    Anchor,
    BeaconChain,
)

# Numbers of fields in a body, a payload and a state: before Bellatrix, and since each fork. A body of Gloas has a bid
# instead of a payload. All of its fields are active, and none is reserved (EIP-7688).
_BODY_FIELDS, _PAYLOAD_FIELDS, _STATE_FIELDS = (
    (9, 10, 11, 12, 13, 13),
    (14, 14, 15, 17, 17, 12),
    (24, 24, 28, 28, 37, 46),
)
_SIGNED_BID, PARENT_BLOCK_HASH, PROMISED_HASH = 10, 0, 2

# A period has eight slots. Capella begins at the start of a period, as on mainnet. The later forks begin within one.
SMALL = BeaconChain(
    id=1,
    period_depth=3,
    bellatrix=11,
    capella=32,
    deneb=42,
    electra=58,
    gloas=74,
    end=90,
    historical_roots=bytes(32),
    blocks_before_merge=0,
    accumulator=bytes(32),
)
# A chain that ends before Gloas.
SMALL_BEFORE_GLOAS = replace(SMALL, gloas=SMALL.end)


class Progressive:
    """The tree of a progressive container (EIP-7495, EIP-7916), by generalized index.

    `fields` replaces the leaf of active fields.
    """

    def __init__(self, leaves: Sequence[bytes], fields: bytes | None = None) -> None:
        self.nodes = {3: fields or ((1 << len(leaves)) - 1).to_bytes(32, "little")}
        spine, size, self.leaves = 2, 1, list[int]()
        remaining = list(leaves)
        while remaining:
            depth = size.bit_length() - 1
            part, remaining = remaining[:size], remaining[size:]
            for offset in range(size):
                self.nodes[spine << depth + 1 | offset] = part[offset] if offset < len(part) else bytes(32)
            self.leaves += [spine << depth + 1 | offset for offset in range(len(part))]
            spine, size = 2 * spine + 1, 4 * size
        self.nodes[spine] = bytes(32)
        above = {index >> height for index in self.nodes for height in range(1, index.bit_length())}
        for index in sorted(above, reverse=True):
            self._merge(index)

    @property
    def root(self) -> bytes:
        return self.nodes[1]

    def siblings(self, index: int) -> list[bytes]:
        return [self.nodes[index >> height ^ 1] for height in range(index.bit_length() - 1)]

    def branch(self, field: int) -> list[bytes]:
        return self.siblings(self.leaves[field])

    def set(self, index: int, node: bytes) -> None:
        """Replace a node. What was below it stays as it was."""
        self.nodes[index] = node
        for height in range(1, index.bit_length()):
            self._merge(index >> height)

    def _merge(self, index: int) -> None:
        self.nodes[index] = ssz.merge(self.nodes[2 * index], self.nodes[2 * index + 1])


@dataclass
class BeaconWorld:
    """Blocks at all slots below `slots`, except missed ones. At `empty` slots, the blocks have empty payloads."""

    chance: random.Random
    chain: BeaconChain = SMALL
    slots: int = 100
    missed: frozenset[int] = frozenset()
    empty: frozenset[int] = frozenset()
    fields: Mapping[int, bytes] = field(default_factory=dict)
    """Leaves of active fields by slot, for bodies, bids and states. Others have all fields."""
    hashes: Mapping[int, bytes] = field(default_factory=dict)
    """Hashes of execution blocks by slot. Missing ones are random."""

    def __post_init__(self) -> None:
        self.blocks: dict[int, ExecutionBranch] = {}
        self.states: dict[int, list[bytes]] = {}
        """The leaves of the state after each block."""
        self.block_roots: dict[int, list[bytes]] = {}
        """The block roots in the state after each block: those of the last slots, by their place in a period."""
        self.promises: dict[int, tuple[bytes, list[bytes]]] = {}
        """The hash of a payload that a block of Gloas promises, and its siblings up to the body's root, by slot."""
        self.periods: list[tuple[list[bytes], list[bytes]]] = []
        """The roots of blocks and states of each completed period."""
        recent = [bytes(32)] * (1 << self.chain.period_depth)
        roots: tuple[list[bytes], list[bytes]] = ([], [])
        parent = bytes(32)
        for slot in range(self.slots):
            if slot and not slot % (1 << self.chain.period_depth):
                self.periods.append(roots)
                roots = [], []
            if slot not in self.missed:
                self.block_roots[slot] = list(recent)
                self.states[slot] = self._state(slot)
                self.blocks[slot] = self._block(slot, parent)
                parent = self.blocks[slot].header.root
            roots[0].append(parent)
            recent[self.chain.place(slot)] = parent
            roots[1].append(self.chance.randbytes(32))
        self.chain = replace(self.chain, historical_roots=ssz.list_root(self._historical_roots, HISTORY_DEPTH))

    # --- Proving ------------------------------------------------------------------------------------------------------

    def old(self, slot: int, anchor: int) -> bytes:
        roots, _ = self.periods[self.chain.period(slot)]
        return jumps.old(self.chain, self.blocks[slot], roots, self.anchor(anchor))

    def recent(self, slot: int, anchor: int) -> bytes:
        branch = self.state_branch(anchor, BLOCK_ROOTS)
        header = self.blocks[anchor].header
        return jumps.recent(self.chain, self.blocks[slot], self.block_roots[anchor], header, branch)

    def anchor(self, slot: int) -> Anchor:
        branch = self.state_branch(slot, HISTORICAL_SUMMARIES)
        return Anchor(self.blocks[slot].header, self._summaries(slot), branch)

    def before_capella(self, slot: int) -> bytes:
        first, second = self.periods[self.chain.period(slot)]
        state_roots_root = ssz.tree_root(second, self.chain.period_depth)
        return jumps.before_capella(self.chain, self.blocks[slot], first, state_roots_root, self._historical_roots)

    def historical_roots(self, anchor: int) -> bytes:
        branch = self.state_branch(anchor, HISTORICAL_ROOTS)
        return jumps.historical_roots(self.chain, self.blocks[anchor].header, branch)

    def root(self, slot: int) -> bytes:
        return self.blocks[slot].header.root

    def state_branch(self, slot: int, index: int) -> list[bytes]:
        if slot >= self.chain.gloas:
            return self._progressive(slot, self.states[slot]).branch(index)
        return ssz.siblings(self.states[slot], self._state_depth(slot), index)

    # --- Making -------------------------------------------------------------------------------------------------------

    @cached_property
    def _historical_roots(self) -> list[bytes]:
        return [self._period_root(period) for period in self.periods[: self.chain.periods_before_capella]]

    def _period_root(self, period: tuple[Sequence[bytes], Sequence[bytes]]) -> bytes:
        return ssz.merge(*(ssz.tree_root(each, self.chain.period_depth) for each in period))

    def _summaries(self, slot: int) -> list[tuple[bytes, bytes]]:
        """Return the summaries that the state of a slot contains."""
        depth = self.chain.period_depth
        known = self.periods[self.chain.periods_before_capella : self.chain.period(slot)]
        return [(ssz.tree_root(first, depth), ssz.tree_root(second, depth)) for first, second in known]

    def _state(self, slot: int) -> list[bytes]:
        leaves = [self.chance.randbytes(32) for _ in range(_STATE_FIELDS[self._layout(slot)])]
        if self.chain.gloas < self.chain.end:
            # Recorded histories of earlier versions have random roots, in chains without Gloas.
            leaves[BLOCK_ROOTS] = ssz.tree_root(self.block_roots[slot], self.chain.period_depth)
        if slot >= self.chain.capella:
            summaries = [ssz.merge(*each) for each in self._summaries(slot)]
            leaves[HISTORICAL_SUMMARIES] = ssz.list_root(summaries, HISTORY_DEPTH)
            leaves[HISTORICAL_ROOTS] = ssz.list_root(self._historical_roots, HISTORY_DEPTH)
        return leaves

    def _block(self, slot: int, parent: bytes) -> ExecutionBranch:
        layout = self._layout(slot)
        body = [self.chance.randbytes(32) for _ in range(_BODY_FIELDS[layout])]
        payload = [self.chance.randbytes(32) for _ in range(_PAYLOAD_FIELDS[layout])]
        place = PARENT_BLOCK_HASH if slot >= self.chain.gloas else BLOCK_HASH
        payload[place] = bytes(32) if slot in self.empty else self.hashes.get(slot, payload[place])
        branch = list[bytes]()
        if slot >= self.chain.gloas:
            bid, signature = self._progressive(slot, payload), self.chance.randbytes(32)
            body[_SIGNED_BID] = ssz.merge(bid.root, signature)
            tree = self._progressive(slot, body)
            branch, promise = (
                [*bid.branch(field), signature, *tree.branch(_SIGNED_BID)] for field in (place, PROMISED_HASH)
            )
            self.promises[slot] = payload[PROMISED_HASH], promise
            body_root, state_root = tree.root, self._progressive(slot, self.states[slot]).root
        else:
            depth = self.chain.payload_depth(slot)
            if layout:
                body[EXECUTION_PAYLOAD] = ssz.tree_root(payload, depth)
                branch = ssz.siblings(payload, depth, BLOCK_HASH) + ssz.siblings(body, BODY_DEPTH, EXECUTION_PAYLOAD)
            body_root = ssz.tree_root(body, BODY_DEPTH)
            state_root = ssz.tree_root(self.states[slot], self._state_depth(slot))
        header = BeaconHeader(slot, self.chance.randrange(2**20), parent, state_root, body_root)
        return ExecutionBranch(header, payload[place], branch)

    def _layout(self, slot: int) -> int:
        """Return the number of forks up to a slot."""
        chain = self.chain
        forks = (chain.bellatrix, chain.capella, chain.deneb, chain.electra, chain.gloas)
        return sum(slot >= fork for fork in forks)

    def _state_depth(self, slot: int) -> int:
        return 5 if slot < self.chain.electra else 6

    def _progressive(self, slot: int, leaves: Sequence[bytes]) -> Progressive:
        return Progressive(leaves, self.fields.get(slot))


def before_merge(chance: random.Random, count: int) -> tuple[list[list[tuple[bytes, int]]], list[bytes]]:
    """Return the records of `count` blocks before the Merge by epoch, and the roots of the epochs."""
    records = [(chance.randbytes(32), chance.randrange(2**80)) for _ in range(count)]
    size = 1 << jumps.RECORDS_DEPTH
    epochs = [records[start : start + size] for start in range(0, count, size)]
    return epochs, [ssz.list_root(jumps.record_leaves(epoch), jumps.RECORDS_DEPTH) for epoch in epochs]
