"""A model of both beacon histories that verifies branches by generalized indices.

For the earlier contract, `BeaconHistory`, the chain ends at Gloas.

The indices are from `sync-protocol.md` of the consensus specifications and from the Portal network.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from chains.beacon.jumps import BeaconChain

# Generalized indices below a beacon block.
_STATE_ROOT = 11
_BLOCK_HASH_UNTIL_CAPELLA, _BLOCK_HASH_SINCE_DENEB, _PARENT_BLOCK_HASH_SINCE_GLOAS = 3228, 6444, 25384
# Generalized indices below a state: until Deneb, of Electra and Fulu, and since Gloas.
_Indices = tuple[int, int, int]
_SUMMARIES: _Indices = (59, 91, 2950)
_HISTORICAL_ROOTS: _Indices = (39, 71, 354)
_BLOCK_ROOTS: _Indices = (37, 69, 352)
# Maximum number of fields in a progressive container.
_FIELDS = 128

_ZEROS = [bytes(32)]
for _ in range(24):
    _ZEROS.append(sha256(_ZEROS[-1] * 2).digest())


class InvalidBranch(ValueError):
    """The branch doesn't prove the hash of a block. The message is one sentence."""


@dataclass(frozen=True)
class Path:
    """The path of a branch from a leaf up to a root."""

    leaf: bytes
    siblings: Sequence[bytes]
    index: int


def own(chain: BeaconChain, root: bytes, branch: bytes) -> bytes:
    """Return the block hash that the branch proves. Raise `InvalidBranch` if there is none, as the
    next functions do.
    """
    return _climb(own_path(chain, branch), root)


def old(chain: BeaconChain, root: bytes, branch: bytes) -> bytes:
    return _climb(old_path(chain, branch), root)


def old_by_summaries(chain: BeaconChain, root: bytes, branch: bytes) -> bytes:
    """Return the block hash as the earlier contract does, which knows no block roots in a state."""
    return _climb(old_path(chain, branch, by_block_roots=False), root)


def before_capella(chain: BeaconChain, branch: bytes) -> bytes:
    return _climb(path_before_capella(chain, branch), chain.historical_roots)


def before_merge(chain: BeaconChain, branch: bytes) -> bytes:
    return _climb(path_before_merge(chain, branch), chain.accumulator)


def proves_historical_roots(chain: BeaconChain, root: bytes, branch: bytes) -> None:
    _climb(path_of_historical_roots(chain, branch), root)


def own_path(chain: BeaconChain, branch: bytes) -> Path:
    """Return the path from a block hash up to the trusted root. Raise `InvalidBranch` if there is none, as the next
    functions do.
    """
    reader = _Reader(branch)
    block_hash, siblings, index, _ = _block(chain, reader)
    return reader.end(Path(block_hash, siblings, index))


def old_path(chain: BeaconChain, branch: bytes, *, by_block_roots: bool = True) -> Path:
    reader = _Reader(branch)
    block_hash, siblings, index, slot = _block(chain, reader)
    siblings += reader.hashes(chain.period_depth)
    roots = 1 << chain.period_depth | slot % (1 << chain.period_depth)
    [state_roots], count = reader.hashes(1), reader.integer(3)
    if by_block_roots and not count:
        _refuse_if(any(state_roots), "A state's block roots have no state roots beside them.")
        anchor, state, field = _anchor(chain, reader, _BLOCK_ROOTS)
        return reader.end(Path(block_hash, siblings + state + anchor, _join(_STATE_ROOT, field, roots, index)))
    period = chain.period(slot) - chain.periods_before_capella
    siblings += [state_roots, *_elements(reader, period, count, 24)]
    anchor, state, field = _anchor(chain, reader, _SUMMARIES)
    # From the top: the list, its elements, the summary's first half, the roots, the block.
    path = _join(_STATE_ROOT, field, 2, 1 << 24 | period, 2, roots, index)
    return reader.end(Path(block_hash, siblings + state + anchor, path))


def path_before_capella(chain: BeaconChain, branch: bytes) -> Path:
    reader = _Reader(branch)
    block_hash, siblings, index, slot = _block(chain, reader)
    siblings += reader.hashes(chain.period_depth + 1)
    period = chain.period(slot)
    siblings += _elements(reader, period, chain.periods_before_capella, 24)
    roots = 1 << chain.period_depth | slot % (1 << chain.period_depth)
    return reader.end(Path(block_hash, siblings, _join(2, 1 << 24 | period, 2, roots, index)))


def path_before_merge(chain: BeaconChain, branch: bytes) -> Path:
    reader = _Reader(branch)
    epoch, offset = divmod(reader.integer(4), 8192)
    full, remainder = divmod(chain.blocks_before_merge, 8192)
    _refuse_if(epoch > full, "There is no such epoch.")
    [block_hash] = reader.hashes(1)
    _refuse_if(not any(block_hash), "The hash is zero.")
    siblings = reader.hashes(1)
    siblings += _elements(reader, offset, remainder if epoch == full else 8192, 13)
    siblings += _elements(reader, epoch, full + bool(remainder), 17)
    path = _join(2, 1 << 17 | epoch, 2, 1 << 13 | offset, 2)
    return reader.end(Path(block_hash, siblings, path))


def path_of_historical_roots(chain: BeaconChain, branch: bytes) -> Path:
    reader = _Reader(branch)
    anchor, state, field = _anchor(chain, reader, _HISTORICAL_ROOTS)
    return reader.end(Path(chain.historical_roots, state + anchor, _join(_STATE_ROOT, field)))


def _refuse_if(fault: object, message: str) -> None:
    if fault:
        raise InvalidBranch(message)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.left = data

    def integer(self, size: int) -> int:
        return int.from_bytes(self._take(size))

    def hashes(self, count: int) -> list[bytes]:
        return [self._take(32) for _ in range(count)]

    def end(self, path: Path) -> Path:
        _refuse_if(self.left, "Something is left of the branch.")
        return path

    def _take(self, size: int) -> bytes:
        taken, self.left = self.left[:size], self.left[size:]
        _refuse_if(len(taken) != size, "The branch ends too early.")
        return taken


def _slot(chain: BeaconChain, reader: _Reader) -> tuple[int, bytes]:
    """Read a slot and a proposer. Return the slot and the parent node of both."""
    slot = reader.integer(8)
    _refuse_if(slot >= chain.end, f"The fork of slot {slot} is not known.")
    return slot, sha256(_little(slot) + _little(reader.integer(8))).digest()


def _block(chain: BeaconChain, reader: _Reader) -> tuple[bytes, list[bytes], int, int]:
    """Return a block hash, its siblings up to the beacon block's root, its index, and the slot."""
    slot, first = _slot(chain, reader)
    _refuse_if(slot < chain.bellatrix, f"Slot {slot} is before Bellatrix.")
    second, block_hash = reader.hashes(2)
    _refuse_if(not any(block_hash), "The payload is empty.")
    index = _BLOCK_HASH_UNTIL_CAPELLA if slot < chain.deneb else _BLOCK_HASH_SINCE_DENEB
    if slot >= chain.gloas:
        index = _PARENT_BLOCK_HASH_SINCE_GLOAS
    siblings = reader.hashes(index.bit_length() - 1 - 3)
    _refuse_if(slot >= chain.gloas and _fields(siblings) > _FIELDS, "The body is none of Gloas.")
    return block_hash, [*siblings, _ZEROS[0], _ZEROS[1], sha256(first + second).digest()], index, slot


def _fields(siblings: Sequence[bytes]) -> int:
    """Return for how many fields the leaf of active fields, the last sibling, has bits."""
    return int.from_bytes(siblings[-1], "little").bit_length()


def _anchor(chain: BeaconChain, reader: _Reader, indices: _Indices) -> tuple[list[bytes], list[bytes], int]:
    """Return the siblings of the state root, the siblings within the state, and the index within the state."""
    slot, first = _slot(chain, reader)
    _refuse_if(slot < chain.capella, f"The state of slot {slot} is from before Capella.")
    index = indices[(slot >= chain.electra) + (slot >= chain.gloas)]
    [parent] = reader.hashes(1)
    state = reader.hashes(index.bit_length() - 1)
    _refuse_if(slot >= chain.gloas and _fields(state) > _FIELDS, "The state is none of Gloas.")
    [siblings_of_state] = reader.hashes(1)
    return [parent, first, siblings_of_state], state, index


def _elements(reader: _Reader, index: int, count: int, depth: int) -> list[bytes]:
    """Return all siblings of a list's element, including implied ones and the list's length."""
    _refuse_if(not 0 <= index < count <= 1 << depth, "The list has no such element.")
    siblings = []
    for height in range(depth):
        first = (index >> height ^ 1) << height
        siblings += reader.hashes(1) if first < count else [_ZEROS[height]]
    return [*siblings, _little(count)]


def _climb(path: Path, root: bytes) -> bytes:
    """Return the leaf if the path leads from it to the root. Raise `InvalidBranch` otherwise."""
    assert path.index.bit_length() == len(path.siblings) + 1
    node, index = path.leaf, path.index
    for sibling in path.siblings:
        node = sha256(sibling + node if index % 2 else node + sibling).digest()
        index //= 2
    _refuse_if(node != root, "The branch leads to another root.")
    return path.leaf


def _join(*indices: int) -> int:
    """Return the generalized index of joined paths, given from the top down."""
    joined = 1
    for index in indices:
        depth = index.bit_length() - 1
        joined = joined << depth | index ^ 1 << depth
    return joined


def _little(value: int) -> bytes:
    return value.to_bytes(32, "little")
