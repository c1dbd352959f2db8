"""Recorded beacon blocks of mainnet, what proves their execution blocks, and a state that remembers the later ones."""

from functools import cache
from pathlib import Path

from chains.beacon import blocks, jumps, ssz
from chains.beacon.blocks import BeaconHeader, ExecutionBranch, Layout
from chains.beacon.jumps import HISTORICAL_SUMMARIES, HISTORY_DEPTH, MAINNET, Anchor
from chains.encoding import decode_rlp
from tests.fixtures_folder import FOLDER, unhex

_BEACON = FOLDER / "beacon"
_PERIOD = 1 << MAINNET.period_depth
# Of the recorded state in Electra.
_STATE_SLOT = 11_658_496


def numbers() -> list[int]:
    """Return the execution blocks whose beacon block is recorded, with the roots of its period."""
    found = [int(path.stem.rpartition("_")[2]) for path in _BEACON.glob("beacon_block_*.ssz")]
    return sorted(number for number in found if _roots_path(number).exists())


def numbers_before_merge() -> list[int]:
    """Return the blocks whose header is recorded in the epoch whose records are."""
    return list(range(1_000_001, 1_000_011)) if _BEACON.is_dir() else []


@cache
def block(number: int) -> ExecutionBranch:
    encoded = (_BEACON / f"beacon_block_{number}.ssz").read_bytes()
    slot = int.from_bytes(encoded[:8], "little")
    forks = (MAINNET.capella, MAINNET.deneb, MAINNET.electra)
    return blocks.execution_branch(encoded, Layout(sum(slot >= fork for fork in forks)), signed=False)


def is_before_capella(number: int) -> bool:
    return block(number).header.slot < MAINNET.capella


@cache
def branch(number: int) -> bytes:
    """Return the branch from `anchor()`, or from the constant, to an execution block since the Merge."""
    if is_before_capella(number):
        first, second = roots(number)[:_PERIOD], roots(number)[_PERIOD:]
        state_roots_root = ssz.tree_root(second, MAINNET.period_depth)
        return jumps.before_capella(MAINNET, block(number), first, state_roots_root, historical_roots())
    return jumps.old(MAINNET, block(number), roots(number), anchor())


def roots(number: int) -> list[bytes]:
    """Return the block roots of a block's period; before Capella its state roots follow."""
    return _hashes(_roots_path(number).name)


def historical_roots() -> list[bytes]:
    return _hashes("historical_roots.ssz")


def epochs() -> list[bytes]:
    """Return the roots of all epochs before the Merge."""
    accumulator = (_BEACON / "historical_hashes_accumulator.ssz").read_bytes()
    return _split(accumulator[int.from_bytes(accumulator[:4], "little") :])


def records() -> list[tuple[bytes, int]]:
    """Return the blocks of epoch 122: hash and total difficulty."""
    hashes = _hashes("epoch_record_00122.ssz")
    return [
        (digest, int.from_bytes(difficulty, "little"))
        for digest, difficulty in zip(hashes[::2], hashes[1::2], strict=True)
    ]


@cache
def anchor() -> Anchor:
    """The recorded state of Electra, whose own root and branch are real; the block's other fields are not."""
    framed = (_BEACON / "historical_summaries_with_state_proof_epoch_364328.ssz_snappy").read_bytes()
    # Frames of snappy: the stream's name, then one that isn't compressed; after its checksum a fork's digest.
    assert framed[10] == 1
    encoded = framed[10 + 4 + 4 + 4 :]
    assert int.from_bytes(encoded[:8], "little") == _STATE_SLOT // 32
    start = int.from_bytes(encoded[8:12], "little")
    siblings, hashes = _split(encoded[12:start]), _split(encoded[start:])
    summaries = list(zip(hashes[::2], hashes[1::2], strict=True))
    root = ssz.list_root([ssz.merge(*each) for each in summaries], HISTORY_DEPTH)
    state_root = ssz.climb(root, siblings, HISTORICAL_SUMMARIES)
    header = BeaconHeader(_STATE_SLOT, 1_000_000, b"\x0a" * 32, state_root, b"\x0b" * 32)
    return Anchor(header, summaries, siblings)


@cache
def branch_before_merge(number: int) -> bytes:
    """Return the branch to a block of the recorded epoch."""
    return jumps.before_merge(MAINNET, number, records(), epochs())


@cache
def header(number: int) -> bytes:
    """Return the RLP of an execution block's header."""
    names = [f"header_with_proof_{number}.yaml", "headers_with_proof_1000001-1000010.json"]
    for name in names:
        path = _BEACON / name
        for word in path.read_text().replace('"', " ").split() if path.exists() else ():
            if word.startswith("0x08000000") and (found := _header_in(unhex(word), number)):
                return found
    raise LookupError(f"The header of block {number} is not recorded.")


def _header_in(content: bytes, number: int) -> bytes | None:
    # Two offsets: of the header, which is first, and of its proof.
    encoded = content[8 : int.from_bytes(content[4:8], "little")]
    fields = decode_rlp(encoded)
    return encoded if fields[8] == number.to_bytes((number.bit_length() + 7) // 8) else None


def _roots_path(number: int) -> Path:
    path = _BEACON / f"block_roots_{number}.ssz"
    return path if path.exists() else _BEACON / f"historical_batch_{number}.ssz"


def _hashes(name: str) -> list[bytes]:
    return _split((_BEACON / name).read_bytes())


def _split(data: bytes) -> list[bytes]:
    return [data[at : at + 32] for at in range(0, len(data), 32)]
