"""Branches in the beacon chain: Merkle proofs from a root that the destination knows to an old block's hash.

contracts/src/GloasBeaconHistory.sol verifies them (docs/developing/proof-format.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chains.beacon import ssz
from chains.beacon.blocks import MAINNET_PRESET, BeaconHeader, ExecutionBranch, Layout, Preset

# Depths of the trees of lists: periods in a state, epochs before the Merge, blocks of such an epoch.
HISTORY_DEPTH, EPOCHS_DEPTH, RECORDS_DEPTH = 24, 17, 13
BLOCK_ROOTS, HISTORICAL_ROOTS, HISTORICAL_SUMMARIES = 5, 7, 27
_SLOTS_PER_EPOCH = 32
_UINT64_MOST = 2**64 - 1


class CannotProve(ValueError):
    """The parts don't belong together, or the block can't be proven. The message is one sentence."""


@dataclass(frozen=True)
class BeaconChain:
    """A beacon chain. Its first eleven fields are the arguments of `GloasBeaconHistory`, in its constructor's order.

    Each fork is given as its first slot.
    """

    id: int
    period_depth: int
    bellatrix: int
    capella: int
    deneb: int
    electra: int
    gloas: int
    """`end`, if the fork has no slot yet."""
    end: int
    historical_roots: bytes
    blocks_before_merge: int
    accumulator: bytes
    genesis_time: int = 0
    """The time of slot 0, in seconds since 1970."""
    slot_seconds: int = 12
    preset: Preset = MAINNET_PRESET
    config_name: str = ""
    """The beginning of era files' names. Empty: the chain has no era files."""

    @property
    def arguments(self) -> tuple[int | bytes, ...]:
        return (
            *(self.id, self.period_depth, self.bellatrix, self.capella, self.deneb, self.electra, self.gloas, self.end),
            *(self.historical_roots, self.blocks_before_merge, self.accumulator),
        )

    @property
    def before_gloas(self) -> "BeaconChain":
        """Return the chain as far as the earlier contract, `BeaconHistory`, knows its layouts: up to Gloas."""
        return replace(self, end=self.gloas)

    @property
    def arguments_without_gloas(self) -> tuple[int | bytes, ...]:
        """Return the arguments of a `BeaconHistory`, which are the same except `gloas`."""
        return *self.arguments[:6], *self.arguments[7:]

    @property
    def immutables(self) -> dict[str, int]:
        """Return the values of the immutables that a `GloasBeaconHistory` of this chain has, by name."""
        forks = ("bellatrix", "capella", "deneb", "electra", "gloas", "end")
        names = ("sourceChainId", "periodDepth", *forks, "historicalRoots", "blocksBeforeMerge", "accumulator")
        values = (value if isinstance(value, int) else int.from_bytes(value) for value in self.arguments)
        return dict(zip(names, values, strict=True))

    @property
    def periods_before_capella(self) -> int:
        return self.capella >> self.period_depth

    def period(self, slot: int) -> int:
        return slot >> self.period_depth

    def place(self, slot: int) -> int:
        """Return the index of a slot in its period."""
        return slot & (1 << self.period_depth) - 1

    def slot_at(self, timestamp: int) -> int:
        """Return the slot that begins at this time, in seconds since 1970. Raises `CannotProve` if none begins then."""
        slot, seconds_after = divmod(timestamp - self.genesis_time, self.slot_seconds)
        if slot < 0 or seconds_after:
            raise CannotProve(f"No slot begins at the time {timestamp}.")
        return slot

    def time_of(self, slot: int) -> int:
        """Return the time at which a slot begins, in seconds since 1970."""
        return self.genesis_time + slot * self.slot_seconds

    def layout(self, slot: int) -> Layout:
        """Return the layout of a slot's block.

        Raises `CannotProve` for a slot before Bellatrix or after the known forks.
        """
        if not self.bellatrix <= slot < self.end:
            raise CannotProve(f"A block of slot {slot} has no known layout.")
        return Layout(sum(slot >= fork for fork in (self.capella, self.deneb, self.electra, self.gloas)))

    def payload_depth(self, slot: int) -> int:
        return 4 if slot < self.deneb else 5

    def state_index(self, slot: int, field: int) -> int:
        """Return the generalized index of a field in a slot's state."""
        if slot >= self.gloas:
            return ssz.progressive_index(field)
        return (1 << 5 if slot < self.electra else 1 << 6) | field

    def is_in_state(self, header: BeaconHeader, field: int, root: bytes, branch: Sequence[bytes]) -> bool:
        """Return whether the branch leads from the root of a field to the block's state root."""
        index = self.state_index(header.slot, field)
        return len(branch) == index.bit_length() - 1 and ssz.climb(root, branch, index) == header.state_root


# Ethereum consensus specifications, `configs/mainnet.yaml`. The slot of Gloas is not set.
MAINNET = BeaconChain(
    id=1,
    period_depth=13,
    bellatrix=144_896 * _SLOTS_PER_EPOCH,
    capella=194_048 * _SLOTS_PER_EPOCH,
    deneb=269_568 * _SLOTS_PER_EPOCH,
    electra=364_032 * _SLOTS_PER_EPOCH,
    gloas=_UINT64_MOST,
    end=_UINT64_MOST,
    historical_roots=bytes.fromhex("4df6b89755125d4f6c5575039a04e22301a5a49ee893c1d27e559e3eeab73da7"),
    blocks_before_merge=15_537_394,
    accumulator=bytes.fromhex("8eac399e24480dce3cfe06f4bdecba51c6e5d0c46200e3e8611a0b44a3a69ff9"),
    genesis_time=1_606_824_023,
    config_name="mainnet",
)
# The network's own configuration, github.com/eth-clients/sepolia (`metadata/config.yaml`, README.md). Lodestar 1.48 and
# Prysm have the same genesis and forks up to Fulu. Capella's to Gloas's slots begin at the times of geth 1.17.10's
# forks. Nobody has verified a root of periods before Capella, so blocks of these periods aren't proven.
SEPOLIA = BeaconChain(
    id=11_155_111,
    period_depth=13,
    bellatrix=100 * _SLOTS_PER_EPOCH,
    capella=56_832 * _SLOTS_PER_EPOCH,
    deneb=132_608 * _SLOTS_PER_EPOCH,
    electra=222_464 * _SLOTS_PER_EPOCH,
    gloas=353_024 * _SLOTS_PER_EPOCH,
    end=_UINT64_MOST,
    historical_roots=bytes(32),
    blocks_before_merge=0,
    accumulator=bytes(32),
    genesis_time=1_655_733_600,
    config_name="sepolia",
)
KNOWN = {chain.id: chain for chain in (MAINNET, SEPOLIA)}


@dataclass(frozen=True)
class Anchor:
    """A beacon block and the historical summaries in its state.

    A summary has the root of a period's block roots, and the root of its state roots. `branch` leads from the root of
    the list of summaries to the state root.
    """

    header: BeaconHeader
    summaries: Sequence[tuple[bytes, bytes]]
    branch: Sequence[bytes]

    @property
    def leaves(self) -> list[bytes]:
        return [ssz.merge(*summary) for summary in self.summaries]

    def is_true(self, chain: BeaconChain) -> bool:
        """Return whether the summaries verify against the block's state root."""
        root = ssz.list_root(self.leaves, HISTORY_DEPTH)
        return chain.is_in_state(self.header, HISTORICAL_SUMMARIES, root, self.branch)


def own(block: ExecutionBranch) -> bytes:
    """Return the branch from a beacon block to the execution block that it proves."""
    header = block.header
    return b"".join(
        [
            header.slot.to_bytes(8),
            header.proposer.to_bytes(8),
            ssz.merge(header.parent_root, header.state_root),
            block.block_hash,
            *block.branch,
        ]
    )


def old(chain: BeaconChain, block: ExecutionBranch, block_roots: Sequence[bytes], anchor: Anchor) -> bytes:
    """Return the branch to a block of a period since Capella that the state of `anchor` summarises.

    `block_roots` are all block roots of the block's period. Raises `CannotProve`.
    """
    summaries = anchor.summaries
    index = chain.period(block.header.slot) - chain.periods_before_capella
    if not 0 <= index < len(summaries):
        raise CannotProve(f"The period of slot {block.header.slot} is none of the {len(summaries)} summaries.")
    if not anchor.is_true(chain):
        raise CannotProve("The summaries don't match the state.")
    return b"".join(
        [
            own(block),
            _period(chain, block, block_roots, *summaries[index]),
            len(summaries).to_bytes(3),
            *_list(anchor.leaves, HISTORY_DEPTH, index),
            _anchor(chain, anchor.header, anchor.branch),
        ]
    )


def recent(
    chain: BeaconChain,
    block: ExecutionBranch,
    block_roots: Sequence[bytes],
    anchor: BeaconHeader,
    state_branch: Sequence[bytes],
) -> bytes:
    """Return the branch to a block whose root the state of `anchor` itself contains, among those of its last slots.

    `block_roots` is that field of the state. A list of no summaries distinguishes the branch from one of `old`. Raises
    `CannotProve`.
    """
    root = ssz.tree_root(block_roots, chain.period_depth)
    if not chain.is_in_state(anchor, BLOCK_ROOTS, root, state_branch):
        raise CannotProve("The block roots don't match the state.")
    return b"".join(
        [
            own(block),
            _period(chain, block, block_roots, root, bytes(32)),
            (0).to_bytes(3),
            _anchor(chain, anchor, state_branch),
        ]
    )


def before_capella(
    chain: BeaconChain,
    block: ExecutionBranch,
    block_roots: Sequence[bytes],
    state_roots_root: bytes,
    historical_roots: Sequence[bytes],
) -> bytes:
    """Return the branch to a block of a period before Capella. `block_roots` are the period's. Raises `CannotProve`."""
    index = chain.period(block.header.slot)
    if index >= chain.periods_before_capella:
        raise CannotProve(f"The period of slot {block.header.slot} is not before Capella.")
    if ssz.list_root(historical_roots, HISTORY_DEPTH) != chain.historical_roots:
        raise CannotProve("These are not the chain's historical roots.")
    first = ssz.tree_root(block_roots, chain.period_depth)
    if ssz.merge(first, state_roots_root) != historical_roots[index]:
        raise CannotProve(f"These are not the roots of period {index}.")
    return b"".join(
        [
            own(block),
            _period(chain, block, block_roots, first, state_roots_root),
            *_list(historical_roots, HISTORY_DEPTH, index),
        ]
    )


def before_merge(
    chain: BeaconChain, number: int, records: Sequence[tuple[bytes, int]], epochs: Sequence[bytes]
) -> bytes:
    """Return the branch to a block before the Merge.

    `records` has the hash and total difficulty of the 8,192 blocks of its epoch. `epochs` has the roots of all epochs.
    Raises `CannotProve`.
    """
    if not 0 <= number < chain.blocks_before_merge:
        raise CannotProve(f"Block {number} is not before the Merge.")
    epoch, place = divmod(number, 1 << RECORDS_DEPTH)
    leaves = record_leaves(records)
    if ssz.list_root(epochs, EPOCHS_DEPTH) != chain.accumulator:
        raise CannotProve("These are not the epochs of the chain's accumulator.")
    if ssz.list_root(leaves, RECORDS_DEPTH) != epochs[epoch]:
        raise CannotProve(f"These are not the records of epoch {epoch}.")
    block_hash, difficulty = records[place]
    return b"".join(
        [
            number.to_bytes(4),
            block_hash,
            ssz.integer_leaf(difficulty),
            *_list(leaves, RECORDS_DEPTH, place),
            *_list(epochs, EPOCHS_DEPTH, epoch),
        ]
    )


def historical_roots(chain: BeaconChain, anchor: BeaconHeader, state_branch: Sequence[bytes]) -> bytes:
    """Return the branch that proves the chain's historical roots in the state of `anchor`. Raises `CannotProve`."""
    if not chain.is_in_state(anchor, HISTORICAL_ROOTS, chain.historical_roots, state_branch):
        raise CannotProve("The historical roots don't match the state.")
    return _anchor(chain, anchor, state_branch)


def record_leaves(records: Sequence[tuple[bytes, int]]) -> list[bytes]:
    """Return the Merkle leaves of the blocks of an epoch before the Merge."""
    return [ssz.merge(block_hash, ssz.integer_leaf(difficulty)) for block_hash, difficulty in records]


def _period(
    chain: BeaconChain, block: ExecutionBranch, block_roots: Sequence[bytes], first: bytes, second: bytes
) -> bytes:
    place = chain.place(block.header.slot)
    if len(block_roots) != 1 << chain.period_depth or block_roots[place] != block.header.root:
        raise CannotProve("The block is not among the roots of its period.")
    if ssz.tree_root(block_roots, chain.period_depth) != first:
        raise CannotProve("The block roots don't match the period.")
    return b"".join([*ssz.siblings(block_roots, chain.period_depth, place), second])


def _list(leaves: Sequence[bytes], depth: int, index: int) -> list[bytes]:
    """Return the siblings of a leaf without those beyond the list's last element, which are trees of zeros."""
    siblings = enumerate(ssz.siblings(leaves, depth, index))
    return [sibling for height, sibling in siblings if (index >> height ^ 1) << height < len(leaves)]


def _anchor(chain: BeaconChain, anchor: BeaconHeader, state_branch: Sequence[bytes]) -> bytes:
    if anchor.slot < chain.capella:
        raise CannotProve(f"A state of slot {anchor.slot} has no such branch.")
    other_leaves = ssz.merge(ssz.merge(anchor.body_root, ssz.zeros(0)), ssz.zeros(1))
    return b"".join(
        [anchor.slot.to_bytes(8), anchor.proposer.to_bytes(8), anchor.parent_root, *state_branch, other_leaves]
    )
