// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {MemoryZones} from "./MemoryZones.sol";
import {NodeWriter} from "./NodeWriter.sol";
import {Subtree} from "./SubtreeStack.sol";

/// @title Writes branches of a trie, in the node's zone of memory. They are most of the work, and so in assembly.
/// @notice A branch is a list of sixteen children and a value, which here is always empty: no key ends in a branch, as all
/// are equally long.
library BranchWriter {
    // The same as in `MemoryZones`, whose constants assembly can't name.
    uint256 private constant NODE = 0x400;

    // The same as in `SubtreeStack`.
    uint256 private constant SIZE = 0x20;
    uint256 private constant KEY = 0x40;
    uint256 private constant DEPTH = 0x60;
    uint256 private constant SUBTREE = 0xc0;

    // The reference to no node, more often than there are places.
    bytes32 private constant EMPTY_STRINGS = 0x8080808080808080808080808080808080808080808080808080808080808080;

    /// @dev Bytes of a branch of sixteen hashes, without the list's prefix.
    uint256 internal constant FULL_LENGTH = 16 * 33 + 1;

    /// @dev The hash of a branch of sixteen hashes: one at `place`, the others from calldata, from `others` on.
    function hashFullBranch(bytes32 hash, uint256 place, uint256 others) internal pure returns (bytes32 branch) {
        if (place > 15) revert InvalidProof();
        _checkZone();
        assembly ("memory-safe") {
            // The prefixes of the list and of its first hash. Behind each of the others is the prefix of the next. A loop
            // would take half as much gas again.
            mstore(NODE, shl(224, 0xf90211a0))
            mstore(add(NODE, 4), calldataload(others))
            mstore8(add(NODE, 36), 0xa0)
            mstore(add(NODE, 37), calldataload(add(others, 32)))
            mstore8(add(NODE, 69), 0xa0)
            mstore(add(NODE, 70), calldataload(add(others, 64)))
            mstore8(add(NODE, 102), 0xa0)
            mstore(add(NODE, 103), calldataload(add(others, 96)))
            mstore8(add(NODE, 135), 0xa0)
            mstore(add(NODE, 136), calldataload(add(others, 128)))
            mstore8(add(NODE, 168), 0xa0)
            mstore(add(NODE, 169), calldataload(add(others, 160)))
            mstore8(add(NODE, 201), 0xa0)
            mstore(add(NODE, 202), calldataload(add(others, 192)))
            mstore8(add(NODE, 234), 0xa0)
            mstore(add(NODE, 235), calldataload(add(others, 224)))
            mstore8(add(NODE, 267), 0xa0)
            mstore(add(NODE, 268), calldataload(add(others, 256)))
            mstore8(add(NODE, 300), 0xa0)
            mstore(add(NODE, 301), calldataload(add(others, 288)))
            mstore8(add(NODE, 333), 0xa0)
            mstore(add(NODE, 334), calldataload(add(others, 320)))
            mstore8(add(NODE, 366), 0xa0)
            mstore(add(NODE, 367), calldataload(add(others, 352)))
            mstore8(add(NODE, 399), 0xa0)
            mstore(add(NODE, 400), calldataload(add(others, 384)))
            mstore8(add(NODE, 432), 0xa0)
            mstore(add(NODE, 433), calldataload(add(others, 416)))
            mstore8(add(NODE, 465), 0xa0)
            mstore(add(NODE, 466), calldataload(add(others, 448)))
            mstore8(add(NODE, 498), 0xa0)
            // Children from the place on move up by one, prefixes included, to make room for ours.
            let ours := add(add(NODE, 3), mul(33, place))
            mcopy(add(ours, 33), ours, sub(add(NODE, 498), ours))
            mstore(add(ours, 1), hash)
            mstore8(add(NODE, 531), 0x80)
            branch := keccak256(NODE, 532)
        }
    }

    /// @dev Writes the branch whose children are `count` subtrees, from `lowest` on, and others. Two children at least must
    /// be real: a subtree can also be an empty place. Calldata holds a mask of the places of hashes; where `hasNodes` is
    /// set a mask of those of nodes of less than 32 bytes; then these hashes and nodes in order of place. A mask has two
    /// bytes, and bit n of it is place n. The subtrees' own keys tell their places.
    /// @param cursor Offset of the masks in calldata.
    /// @return end End of the list, for `NodeWriter.finish`.
    /// @return Offset in calldata after the children.
    function put(Subtree lowest, uint256 count, bool hasNodes, uint256 cursor)
        internal
        pure
        returns (uint256 end, uint256)
    {
        _checkZone();
        end = NodeWriter.begin();
        assembly ("memory-safe") {
            function refuse() {
                mstore(0, 0x09bde339) // InvalidProof()
                revert(0x1c, 4)
            }

            let hashes := shr(240, calldataload(cursor))
            cursor := add(cursor, 2)
            // Places of children that are there.
            let real := hashes
            if hasNodes {
                let nodes := shr(240, calldataload(cursor))
                cursor := add(cursor, 2)
                // Without nodes a branch has the other form. No place has two children.
                if or(iszero(nodes), and(nodes, hashes)) { refuse() }
                real := or(real, nodes)
            }

            // Places of subtrees. All are at the depth of the lowest, and their keys begin with the branch's path.
            let own := 0
            let others := real
            let child := lowest
            {
                let depth := mload(add(lowest, DEPTH))
                let bits := sub(256, shl(2, depth))
                let parent := shr(add(bits, 4), mload(add(lowest, KEY)))
                for { let left := count } left { left := sub(left, 1) } {
                    let path := shr(bits, mload(add(child, KEY)))
                    if or(xor(mload(add(child, DEPTH)), depth), xor(shr(4, path), parent)) { refuse() }
                    let bit := shl(and(path, 0x0f), 1)
                    // Places rise, so this one is above all before it.
                    if iszero(gt(bit, own)) { refuse() }
                    own := or(own, bit)
                    // An empty place has one byte, which no other reference has.
                    if xor(mload(add(child, SIZE)), 1) { real := or(real, bit) }
                    child := add(child, SUBTREE)
                }
            }
            if and(own, others) { refuse() }
            // With fewer than two children it would be no branch.
            if iszero(and(real, sub(real, 1))) { refuse() }
            others := or(own, others)

            // Each place takes one byte, and a child the others: of a hash, as many as it has in calldata.
            let at := end
            end := sub(add(end, 17), cursor)
            child := lowest
            // The bits rise to at most 15, so there are at most sixteen rounds. Each writes at most 33 bytes, and all are in
            // the zone: see `_checkZone`.
            for { let bit := 1 } 1 { bit := shl(1, bit) } {
                // Hashes are most of the children: two at once, and then one that is left.
                for {} iszero(and(not(hashes), mul(3, bit))) { bit := shl(2, bit) } {
                    mstore8(at, 0xa0)
                    mstore(add(at, 1), calldataload(cursor))
                    mstore8(add(at, 33), 0xa0)
                    mstore(add(at, 34), calldataload(add(cursor, 32)))
                    at := add(at, 66)
                    cursor := add(cursor, 64)
                }
                if and(hashes, bit) {
                    mstore8(at, 0xa0)
                    mstore(add(at, 1), calldataload(cursor))
                    at := add(at, 33)
                    cursor := add(cursor, 32)
                    continue
                }
                if gt(bit, others) { break }
                if and(own, bit) {
                    let length := mload(add(child, SIZE))
                    switch length
                    case 0 {
                        mstore8(at, 0xa0)
                        mstore(add(at, 1), mload(child))
                        length := 33
                    }
                    default {
                        if gt(length, 31) { refuse() }
                        mstore(at, mload(child))
                    }
                    child := add(child, SUBTREE)
                    at := add(at, length)
                    end := sub(add(end, length), 1)
                    continue
                }
                if and(others, bit) {
                    // A list of 2 to 31 bytes, prefix included, tells its own length: whatever is in it, the children after
                    // it stay in their places.
                    let node := calldataload(cursor)
                    let length := sub(byte(0, node), 0xbf)
                    if gt(sub(length, 2), 29) { refuse() }
                    mstore(at, node)
                    at := add(at, length)
                    cursor := add(cursor, length)
                    end := sub(end, 1)
                    continue
                }
                mstore8(at, 0x80)
                at := add(at, 1)
            }
            // The places after the last child are empty, and so is the value.
            mstore(at, EMPTY_STRINGS)
            end := add(end, cursor)
        }
        return (end, cursor);
    }

    /// @dev All constants, so this costs nothing. The last child of a full branch begins 33 * 15 bytes after the first.
    function _checkZone() private pure {
        if (
            NODE != MemoryZones.NODE || NodeWriter.begin() != NODE + 3
                || NodeWriter.begin() + 33 * 15 + 33 + 32 > MemoryZones.NODE_END
        ) revert InvalidProof();
    }
}
