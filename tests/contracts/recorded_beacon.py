"""Recorded beacon blocks of mainnet, proofs of their execution blocks, and a state with summaries of later blocks."""

from functools import cache
from pathlib import Path

from eth_utils.crypto import keccak

from chains.beacon import blocks, jumps, ssz
from chains.beacon.blocks import BeaconHeader, ExecutionBranch, Layout
from chains.beacon.jumps import EPOCHS_DEPTH, HISTORICAL_SUMMARIES, HISTORY_DEPTH, MAINNET, RECORDS_DEPTH, Anchor
from chains.encoding import decode_rlp

# The folder is beside the project. The demo also imports this module, and has no pytest.
_BEACON = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "beacon"
_PERIOD = 1 << MAINNET.period_depth
# Slot of the recorded state, in Electra.
_STATE_SLOT = 11_658_496
# Recorded epoch before the Merge.
_EPOCH = 122


def numbers() -> list[int]:
    """Return the execution blocks whose beacon block and period's roots are recorded."""
    recorded = [int(path.stem.rpartition("_")[2]) for path in _BEACON.glob("beacon_block_*.ssz")]
    return sorted(number for number in recorded if _roots_path(number).exists())


def numbers_before_merge() -> list[int]:
    """Return the blocks of the recorded epoch, and blocks with a recorded proof of their own."""
    alone = [int(path.stem.rpartition("_")[2]) for path in _BEACON.glob("header_with_proof_*.yaml")]
    before = sorted(number for number in alone if number < MAINNET.blocks_before_merge and not is_in_the_epoch(number))
    return [*range(1_000_001, 1_000_011), *before] if _BEACON.is_dir() else []


def is_in_the_epoch(number: int) -> bool:
    """Return whether a block is in the recorded epoch."""
    return number >> RECORDS_DEPTH == _EPOCH


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
    """Return the block roots of a block's period, followed by the state roots if the period is before Capella."""
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
    """Return the recorded Electra state as an anchor. Root and branch are real, and the block's other fields are made
    up.
    """
    framed = (_BEACON / "historical_summaries_with_state_proof_epoch_364328.ssz_snappy").read_bytes()
    # Snappy frames: the stream's name, then an uncompressed frame with a checksum, which begins with the fork's digest.
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
    """Return the branch to a block of the recorded epoch, or to a block with a recorded branch to its epoch."""
    if is_in_the_epoch(number):
        return jumps.before_merge(MAINNET, number, records(), epochs())
    encoded, proof = _recorded(number)
    # The proof has the difficulty, the record's siblings in its epoch, and the number of records.
    difficulty, *beside, _ = _split(proof)
    epoch, index = divmod(number, 1 << RECORDS_DEPTH)
    count = min(1 << RECORDS_DEPTH, MAINNET.blocks_before_merge - (epoch << RECORDS_DEPTH))
    above = ssz.siblings(epochs(), EPOCHS_DEPTH, epoch)
    nodes = [*_sent(beside, index, count), *_sent(above, epoch, len(epochs()))]
    return b"".join([number.to_bytes(4), keccak(encoded), difficulty, *nodes])


def _sent(siblings: list[bytes], index: int, count: int) -> list[bytes]:
    """Return the siblings without those beyond the last element, which are implied."""
    return [sibling for height, sibling in enumerate(siblings) if (index >> height ^ 1) << height < count]


def header(number: int) -> bytes:
    """Return the RLP of an execution block's header. Raise `LookupError` if it isn't recorded."""
    return _recorded(number)[0]


@cache
def _recorded(number: int) -> tuple[bytes, bytes]:
    """Return a header and its proof."""
    for name in (f"header_with_proof_{number}.yaml", "headers_with_proof_1000001-1000010.json"):
        path = _BEACON / name
        for word in path.read_text().replace('"', " ").split() if path.exists() else ():
            if not word.startswith("0x08000000"):
                continue
            content = bytes.fromhex(word[2:])
            # The content begins with two offsets: of the header and of its proof.
            middle = int.from_bytes(content[4:8], "little")
            if decode_rlp(content[8:middle])[8] == number.to_bytes((number.bit_length() + 7) // 8):
                return content[8:middle], content[middle:]
    raise LookupError(f"The header of block {number} is not recorded.")


def _roots_path(number: int) -> Path:
    path = _BEACON / f"block_roots_{number}.ssz"
    return path if path.exists() else _BEACON / f"historical_batch_{number}.ssz"


def _hashes(name: str) -> list[bytes]:
    return _split((_BEACON / name).read_bytes())


def _split(data: bytes) -> list[bytes]:
    return [data[at : at + 32] for at in range(0, len(data), 32)]
