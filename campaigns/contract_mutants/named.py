"""Mutants that auditors made by hand, in addition to those of `generate.py`. Each has a name and changes one source."""

from collections.abc import Iterator, Mapping, Sequence

from campaigns.contract_mutants.generate import NAMED, Mutant
from tests.contracts.weakened import UNCOMPARED, Removal

CHANGES: Mapping[str, Sequence[Removal]] = {
    "an extension reaches a nibble too far": (
        Removal(
            "PackedTrie",
            "stack.push(ref, size, key, depth, reach, last)",
            "stack.push(ref, size, key, depth, reach + 1, last)",
        ),
    ),
    "a full branch reaches a nibble far": (
        Removal(
            "PackedTrie",
            "child.setBranch(hash, 0, depth);",
            'child.setBranch(hash, 0, depth); assembly ("memory-safe") { mstore(add(child, 0x80), add(depth, 1)) }',
        ),
    ),
    "absent keys are compared at even depths only": (
        Removal(
            "PackedTrie",
            "if (prefix(difference, node.depth()) != 0 ||",
            "if (node.depth() & 1 == 0 && prefix(difference, node.depth()) != 0 ||",
        ),
    ),
    **{
        f"a branch's path is compared: {compared}": (Removal("BranchWriter", *edit),)
        for compared, edit in UNCOMPARED.items()
    },
    "a branch's path is folded to 32 bits before it is compared": (
        Removal(
            "BranchWriter",
            "if or(xor(mload(add(child, DEPTH)), depth), xor(shr(4, path), parent)) { refuse() }",
            "{ let x := xor(shr(4, path), parent) x := xor(x, shr(128, x)) x := xor(x, shr(64, x))"
            " x := xor(x, shr(32, x)) if or(xor(mload(add(child, DEPTH)), depth), and(x, 0xffffffff)) { refuse() } }",
        ),
    ),
    "a branch's children may be in any order at depth 41": (
        Removal("BranchWriter", "if iszero(gt(bit, own))", "if mul(xor(depth, 41), iszero(gt(bit, own)))"),
    ),
    "two of a branch's subtrees may have the same place at depth 41": (
        Removal("BranchWriter", "if iszero(gt(bit, own))", "if iszero(gt(shl(eq(depth, 41), bit), own))"),
    ),
    "a branch may have a hash at the place of a subtree at depth 41": (
        Removal("BranchWriter", "if and(own, others)", "if mul(xor(mload(add(lowest, DEPTH)), 41), and(own, others))"),
    ),
    "zero slots are kept by 192 bits of their number": (
        Removal("Facts", "facts.zeroSlots[uint256(slot) >> 8]", "facts.zeroSlots[uint192(uint256(slot) >> 8)]"),
        Removal("Facts", "neighbours = facts.zeroSlots[slot >> 8]", "neighbours = facts.zeroSlots[uint192(slot >> 8)]"),
        Removal("Facts", "facts.zeroSlots[slot >> 8] = neighbours", "facts.zeroSlots[uint192(slot >> 8)] = neighbours"),
    ),
    "a known hash is kept by 16 of its bytes": (
        Removal("Facts", "if (_blockHashes[blockHash]) return;", "if (_blockHashes[bytes16(blockHash)]) return;"),
        Removal("Facts", "_blockHashes[blockHash] = true;", "_blockHashes[bytes16(blockHash)] = true;"),
        Removal("Facts", "return _blockHashes[blockHash];", "return _blockHashes[bytes16(blockHash)];"),
    ),
    "of a header's hash 64 bits are compared": (
        Removal("FactsRegistry", "headerHash == hash ||", "uint64(uint256(headerHash)) == uint64(uint256(hash)) ||"),
    ),
    "a known hash that the source answers makes other headers trusted": (
        Removal(
            "FactsRegistry",
            "|| _isBlockHash(headerHash)) return;",
            "|| _isBlockHash(headerHash) || _isBlockHash(hash)) return;",
        ),
    ),
    "a walk goes on to any header whose hash is known": (
        Removal(
            "FactsRegistry",
            "if (headerHash != expected ||",
            "if ((headerHash != expected && !_isBlockHash(headerHash)) ||",
        ),
    ),
    "a time is taken from any header whose number is accumulated": (
        Removal(
            "FactsRegistry",
            "_checkHash(nextNumber, keccak256(next));",
            "if (stateRoot[nextNumber] == 0) _checkHash(nextNumber, keccak256(next));",
        ),
    ),
    "a time is compared by its lowest 64 bits": (
        Removal("FactsRegistry", "timestamp >= nextTime", "uint64(timestamp) >= nextTime"),
    ),
    "six bits of a mask of header fields don't count for its parity": (
        Removal("FactsRegistry", "_isEven(fields);", "_isEven(fields & 0xc0ffffff);"),
    ),
    "a period's places are shifted": (
        Removal(
            "BeaconHistory", "_climb(input, node, slot, periodDepth)", "_climb(input, node, slot + 1, periodDepth)"
        ),
    ),
    "a period's places are shifted, also since Gloas": (
        Removal(
            "GloasBeaconHistory",
            "bytes32 roots = _climb(input, node, slot, periodDepth)",
            "bytes32 roots = _climb(input, node, slot + 1, periodDepth)",
        ),
    ),
    "since Gloas the promised hash is proven": (
        Removal("GloasBeaconHistory", "PARENT_BLOCK_HASH = 2856;", "PARENT_BLOCK_HASH = 2857;"),
    ),
    "of a confirmed hash 64 bits are compared": (
        Removal("ArbitrumBlocks", "hash != confirmed", "uint64(uint256(hash)) != uint64(uint256(confirmed))"),
    ),
    "of an output root the hash of its block isn't looked at": (
        Removal("OpStackGamesBlockHashSource", "messagePasserStorageRoot, hash)", "messagePasserStorageRoot)"),
    ),
}


def named(sources: Mapping[str, str], changes: Mapping[str, Sequence[Removal]] = CHANGES) -> Iterator[Mutant]:
    """Yield each change as a single replacement, from its first edit to its last.

    Raise ValueError unless each original text occurs exactly once.
    """
    for name, edits in changes.items():
        source = f"src/{edits[0].source}.sol"
        text = changed = sources[source]
        for edit in edits:
            changed = edit.apply(changed)
        start = text.index(edits[0].check)
        behind = len(text) - text.index(edits[-1].check) - len(edits[-1].check)
        original, replacement = text[start : len(text) - behind], changed[start : len(changed) - behind]
        begin = len(text[:start].encode())
        end = begin + len(original.encode())
        line = text.count("\n", 0, start) + 1
        column = start - text.rfind("\n", 0, start)
        yield Mutant(source, name, begin, end, original, replacement, line, column, kind=NAMED)
