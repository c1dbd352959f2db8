"""Jump proofs that would make false block hashes known if the registry or the beacon history lacked a check."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from eth_utils.crypto import keccak

from chains.beacon import jumps, ssz
from chains.beacon.blocks import BLOCK_HASH, BODY_DEPTH, EXECUTION_PAYLOAD, BeaconHeader, ExecutionBranch
from chains.beacon.jumps import HISTORICAL_SUMMARIES, HISTORY_DEPTH, Anchor
from chains.tries import packed
from chains.tries.packed import BLOCK_BEFORE_CAPELLA, HASH_ALONE, HEADER_ALONE, OLD_BLOCK
from tests.contracts import tries
from tests.contracts.beacon_worlds import SMALL, BeaconWorld
from tests.contracts.forgeries import FALSE_BLOCK, FALSE_HEADER, FALSE_ROOT, Answers, Forgery
from tests.contracts.weakened import Removal

_MISMATCH = "HeaderMismatch(uint256)"

CHECKS: Mapping[str, Sequence[Removal]] = {
    # A jump starts at a trusted header.
    "start": [
        Removal(
            "FactsRegistry",
            "if (expected == 0) _checkHash(blockNumber, headerHash);",
            "if (expected == 0) { if (input.peek() < 0x3a) _checkHash(blockNumber, headerHash); }",
        )
    ],
    # A jump starts at field 19, which must be a whole word.
    "place": [Removal("PackedHeader", "PARENT_BEACON_BLOCK_ROOT = 19", "PARENT_BEACON_BLOCK_ROOT = 20")],
    "size": [Removal("FactsRegistry", "if (size != 32 || root == 0) revert InvalidHeader();")],
    # The next header has the hash that the jump proves.
    "jump": [
        Removal(
            "FactsRegistry",
            "if (headerHash != expected || (op == PARENT && blockNumber + 1 != child)) {",
            "if (op == PARENT && (headerHash != expected || blockNumber + 1 != child)) {",
        )
    ],
    "constant": [Removal("FactsRegistry", "else if (headerHash != expected) revert HeaderMismatch(blockNumber);")],
    # A block hash is not zero.
    "zero": [
        Removal("FactsRegistry", "if (!answered || blockHash == 0) revert", "if (!answered) revert"),
        Removal(
            "GloasBeaconHistory",
            "// A block before the Merge has an empty payload.\n        if (blockHash == 0) revert InvalidProof();",
        ),
    ],
    # The caller can't choose the payload's index in a body.
    "index": [Removal("GloasBeaconHistory", "body, EXECUTION_PAYLOAD, BODY_DEPTH", "body, input.take(1), BODY_DEPTH")],
    # Unknown forks, and bytes behind a branch, are refused.
    "fork": [Removal("GloasBeaconHistory", "if (slot >= end) revert UnknownFork(slot);")],
    "end": [Removal("GloasBeaconHistory", "input.cursor != place || root != trusted", "root != trusted")],
}

_NUMBER, _SLOT, _ANCHOR = 1000, 50, 89
_ACCUMULATE = packed.encode(FALSE_HEADER, FALSE_ROOT)
# Its generalized index in a body of Gloas.
PARENT_BLOCK_HASH = 2856
_OF_A_HEADER: Answers = {("stateRoot", 999_999): FALSE_ROOT}


@cache
def world() -> BeaconWorld:
    """Return the chain of the registries' beacon history."""
    return BeaconWorld(random.Random(31), empty=frozenset({20}))


def _header(root: bytes, after: bytes | None = None, number: int = _NUMBER) -> bytes:
    """Return a header with `root` in field 19, and `after`, by default also `root`, in field 20."""
    fields = [bytes(32), bytes(32), bytes(20), b"\x44" * 32, bytes(32), bytes(32), bytes(256), 0, number, 0, 0, 1, b""]
    return tries.encode([*fields, bytes(32), bytes(8), 7, bytes(32), 0, 0, root, after or root])


def _jump(branch: bytes, operation: int = OLD_BLOCK) -> bytes:
    return bytes([operation]) + len(branch).to_bytes(2) + branch


def _planted(block: ExecutionBranch, anchor: BeaconHeader) -> tuple[bytes, bytes]:
    """Return the root of an anchor whose state contains the block in its place, and the branch."""
    chain = world().chain
    roots = [bytes(32)] * (1 << chain.period_depth)
    roots[chain.place(block.header.slot)] = block.header.root
    count = chain.period(block.header.slot) - chain.periods_before_capella + 1
    summaries = [(ssz.tree_root(roots, chain.period_depth), bytes(32))] * count
    index = chain.state_index(anchor.slot, HISTORICAL_SUMMARIES)
    state = [bytes(32)] * (index.bit_length() - 1)
    listed = ssz.list_root([ssz.merge(*each) for each in summaries], HISTORY_DEPTH)
    header = replace(anchor, state_root=ssz.climb(listed, state, index))
    return header.root, jumps.old(chain, block, roots, Anchor(header, summaries, state))


def _false_block(slot: int = _SLOT) -> ExecutionBranch:
    """Return a beacon block that nobody proposed."""
    block = world().blocks[slot]
    is_gloas = slot >= world().chain.gloas
    place = PARENT_BLOCK_HASH if is_gloas else EXECUTION_PAYLOAD << len(block.branch) - BODY_DEPTH | BLOCK_HASH
    body = ssz.climb(keccak(FALSE_HEADER), block.branch, place)
    return replace(block, header=replace(block.header, body_root=body), block_hash=keccak(FALSE_HEADER))


def _false(missing: str, header: bytes, branch: bytes, start: bytes = b"", refusal: str = "InvalidProof()") -> Forgery:
    """Return a forgery that makes the hash of a false block known. The block can then be accumulated."""
    proof = (start or header) + _jump(branch) + bytes([HASH_ALONE])
    return Forgery(frozenset({missing}), header, proof, FALSE_BLOCK, after=[_ACCUMULATE], refusal=refusal)


def _trusted() -> bytes:
    return _header(world().root(_ANCHOR))


# --- At the registry --------------------------------------------------------------------------------------------------


def a_jump_below_a_header_that_nobody_mined() -> Forgery:
    root, branch = _planted(_false_block(), world().blocks[_ANCHOR].header)
    start = _header(root, number=_NUMBER + 1)
    return _false("start", _trusted(), branch, start, "UnknownBlock(uint256)")


def a_jump_below_the_field_after() -> Forgery:
    """Start at field 20. Since Prague it is a hash of requests, which callers of certain contracts influence."""
    root, branch = _planted(_false_block(), world().blocks[_ANCHOR].header)
    return _false("place", _header(world().root(_ANCHOR), root), branch)


def a_root_without_its_first_byte() -> Forgery:
    """Leave out a root's first byte, which is zero. The result is only another form of a genuine proof."""
    block, anchor = world().blocks[_SLOT], world().blocks[_ANCHOR].header
    planted = (_planted(block, replace(anchor, proposer=proposer)) for proposer in itertools.count())
    root, branch = next(each for each in planted if each[0][0] == 0)
    header = _header(root[1:])
    proof = header + _jump(branch) + bytes([HASH_ALONE])
    return Forgery(frozenset({"size"}), header, proof, {}, refusal="InvalidHeader()")


def another_header_after_a_jump() -> Forgery:
    header = _trusted()
    proof = header + _jump(world().old(_SLOT, _ANCHOR)) + FALSE_HEADER + bytes([HEADER_ALONE])
    return Forgery(frozenset({"jump"}), header, proof, _OF_A_HEADER, refusal=_MISMATCH)


def another_header_after_a_constant() -> Forgery:
    proof = _jump(world().before_capella(30), BLOCK_BEFORE_CAPELLA) + FALSE_HEADER + bytes([HEADER_ALONE])
    return Forgery(frozenset({"constant"}), _trusted(), proof, _OF_A_HEADER, refusal=_MISMATCH)


def the_hash_of_an_empty_payload() -> Forgery:
    """Prove a hash of zero. No header has it, so no fact follows."""
    proof = _jump(world().before_capella(20), BLOCK_BEFORE_CAPELLA) + bytes([HASH_ALONE])
    return Forgery(frozenset({"zero"}), _trusted(), proof, {})


# --- At the beacon history --------------------------------------------------------------------------------------------


def a_payload_below_graffiti() -> Forgery:
    """Use a real block whose proposer wrote the root of a false payload into the graffiti."""
    chance = random.Random(32)
    payload = [chance.randbytes(32) for _ in range(world().chain.payload_depth(_SLOT))]
    leaves = [chance.randbytes(32) for _ in range(12)]
    leaves[2] = ssz.climb(keccak(FALSE_HEADER), payload, BLOCK_HASH)
    header = replace(world().blocks[_SLOT].header, body_root=ssz.tree_root(leaves, 4))
    forged = ExecutionBranch(header, keccak(FALSE_HEADER), [*payload, *ssz.siblings(leaves, 4, 2)])
    root, branch = _planted(forged, world().blocks[_ANCHOR].header)
    # The index byte comes before the payload's four siblings.
    at = 80 + 32 * len(payload)
    return _false("index", _header(root), branch[:at] + bytes([2]) + branch[at:])


def a_block_of_the_fork_after() -> Forgery:
    """Use a block of an unknown fork, where anyone may choose the node at the payload's former index."""
    root, branch = _planted(_false_block(SMALL.end + 1), world().blocks[SMALL.end + 9].header)
    return _false("fork", _header(root), branch)


def a_branch_that_goes_on() -> Forgery:
    """Append bytes to a branch. The result is only another form of a genuine proof."""
    header = _trusted()
    proof = header + _jump(world().old(_SLOT, _ANCHOR) + bytes(32)) + bytes([HASH_ALONE])
    return Forgery(frozenset({"end"}), header, proof, {})


FORGERIES = [
    a_jump_below_a_header_that_nobody_mined,
    a_jump_below_the_field_after,
    a_root_without_its_first_byte,
    another_header_after_a_jump,
    another_header_after_a_constant,
    the_hash_of_an_empty_payload,
    a_payload_below_graffiti,
    a_block_of_the_fork_after,
    a_branch_that_goes_on,
]
