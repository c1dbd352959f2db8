"""Beacon chains of random leaves, with blocks of all layouts in short periods, and states that
summarise the periods.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from chains.beacon import jumps, ssz
from chains.beacon.blocks import BLOCK_HASH, BODY_DEPTH, EXECUTION_PAYLOAD, BeaconHeader, ExecutionBranch
from chains.beacon.jumps import HISTORICAL_ROOTS, HISTORICAL_SUMMARIES, HISTORY_DEPTH, Anchor, BeaconChain

# A period has eight slots. Capella begins at the start of a period, as on mainnet. The later forks begin within one.
SMALL = BeaconChain(
    id=1,
    period_depth=3,
    bellatrix=11,
    capella=32,
    deneb=42,
    electra=58,
    end=90,
    historical_roots=bytes(32),
    blocks_before_merge=0,
    accumulator=bytes(32),
)


@dataclass
class BeaconWorld:
    """Blocks at all slots below `slots`, except missed ones. At `empty` slots, the blocks have empty payloads."""

    chance: random.Random
    chain: BeaconChain = SMALL
    slots: int = 100
    missed: frozenset[int] = frozenset()
    empty: frozenset[int] = frozenset()
    hashes: Mapping[int, bytes] = field(default_factory=dict)
    """Hashes of execution blocks by slot. Missing ones are random."""

    def __post_init__(self) -> None:
        self.blocks: dict[int, ExecutionBranch] = {}
        self.states: dict[int, list[bytes]] = {}
        """The leaves of the state after each block."""
        self.periods: list[tuple[list[bytes], list[bytes]]] = []
        """The roots of blocks and states of each completed period."""
        roots: tuple[list[bytes], list[bytes]] = ([], [])
        parent = bytes(32)
        for slot in range(self.slots):
            if slot and not slot % (1 << self.chain.period_depth):
                self.periods.append(roots)
                roots = [], []
            if slot not in self.missed:
                self.states[slot] = self._state(slot)
                self.blocks[slot] = self._block(slot, parent)
                parent = self.blocks[slot].header.root
            roots[0].append(parent)
            roots[1].append(self.chance.randbytes(32))
        self.chain = replace(self.chain, historical_roots=ssz.list_root(self._historical_roots, HISTORY_DEPTH))

    # --- Proving ------------------------------------------------------------------------------------------------------

    def old(self, slot: int, anchor: int) -> bytes:
        roots, _ = self.periods[self.chain.period(slot)]
        return jumps.old(self.chain, self.blocks[slot], roots, self.anchor(anchor))

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
        return ssz.siblings(self.states[slot], self.chain.state_depth(slot), index)

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
        count = 24 if slot < self.chain.capella else 28 if slot < self.chain.electra else 37
        leaves = [self.chance.randbytes(32) for _ in range(count)]
        if slot >= self.chain.capella:
            summaries = [ssz.merge(*each) for each in self._summaries(slot)]
            leaves[HISTORICAL_SUMMARIES] = ssz.list_root(summaries, HISTORY_DEPTH)
            leaves[HISTORICAL_ROOTS] = ssz.list_root(self._historical_roots, HISTORY_DEPTH)
        return leaves

    def _block(self, slot: int, parent: bytes) -> ExecutionBranch:
        chain = self.chain
        layout = sum(slot >= fork for fork in (chain.bellatrix, chain.capella, chain.deneb, chain.electra))
        body = [self.chance.randbytes(32) for _ in range((9, 10, 11, 12, 13)[layout])]
        payload = [self.chance.randbytes(32) for _ in range((14, 14, 15, 17, 17)[layout])]
        payload[BLOCK_HASH] = bytes(32) if slot in self.empty else self.hashes.get(slot, payload[BLOCK_HASH])
        payload_depth = chain.payload_depth(slot)
        if layout:
            body[EXECUTION_PAYLOAD] = ssz.tree_root(payload, payload_depth)
        depth = chain.state_depth(slot)
        body_root, state_root = ssz.tree_root(body, BODY_DEPTH), ssz.tree_root(self.states[slot], depth)
        header = BeaconHeader(slot, self.chance.randrange(2**20), parent, state_root, body_root)
        return ExecutionBranch(
            header,
            payload[BLOCK_HASH],
            [
                *ssz.siblings(payload, payload_depth, BLOCK_HASH),
                *ssz.siblings(body, BODY_DEPTH, EXECUTION_PAYLOAD),
            ],
        )


def before_merge(chance: random.Random, count: int) -> tuple[list[list[tuple[bytes, int]]], list[bytes]]:
    """Return the records of `count` blocks before the Merge by epoch, and the roots of the epochs."""
    records = [(chance.randbytes(32), chance.randrange(2**80)) for _ in range(count)]
    size = 1 << jumps.RECORDS_DEPTH
    epochs = [records[start : start + size] for start in range(0, count, size)]
    return epochs, [ssz.list_root(jumps.record_leaves(epoch), jumps.RECORDS_DEPTH) for epoch in epochs]
