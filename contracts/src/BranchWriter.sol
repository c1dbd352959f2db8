// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {InvalidProof} from "batch-query-client/InvalidProof.sol";
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
            // The prefixes of the list and of its first hash. Each of the other hashes is written with the next prefix.
            mstore(NODE, shl(224, 0xf90211a0))
            for { let at := add(NODE, 4) } lt(at, add(NODE, 499)) { at := add(at, 99) } {
                mstore(at, calldataload(others))
                mstore8(add(at, 32), 0xa0)
                mstore(add(at, 33), calldataload(add(others, 32)))
                mstore8(add(at, 65), 0xa0)
                mstore(add(at, 66), calldataload(add(others, 64)))
                mstore8(add(at, 98), 0xa0)
                others := add(others, 96)
            }
            // Children from the place on move up by one, prefixes included, to make room for ours.
            let ours := add(add(NODE, 3), mul(33, place))
            mcopy(add(ours, 33), ours, sub(add(NODE, 498), ours))
            mstore(add(ours, 1), hash)
            mstore8(add(NODE, 531), 0x80)
            branch := keccak256(NODE, 532)
        }
    }

    /// @dev Writes the branch whose children are `count` subtrees, from `lowest` on, and others. Two of them must be real:
    /// a subtree can also be an empty place. Of all `size` children, in order of place, calldata holds a byte whose low half
    /// is the place. Its high half is 0 before a hash, 1 before a node of less than 32 bytes, and 2 for the next subtree.
    /// @param cursor Offset of the first child's byte in calldata.
    /// @return end End of the list, for `NodeWriter.finish`.
    /// @return Offset in calldata after the children.
    function put(Subtree lowest, uint256 count, uint256 size, uint256 cursor)
        internal
        pure
        returns (uint256 end, uint256)
    {
        _checkZone();
        Subtree child = lowest;
        Subtree behind = lowest.above(count);
        end = NodeWriter.begin();
        assembly ("memory-safe") {
            function refuse() {
                mstore(0, 0x09bde339) // InvalidProof()
                revert(0x1c, 4)
            }

            // All children are at the depth of the lowest, and their keys begin with the branch's path and their place.
            let depth := mload(add(lowest, DEPTH))
            let bits := sub(256, shl(2, depth))
            let parent := shl(4, shr(add(bits, 4), mload(add(lowest, KEY))))
            // Children that are none: empty places.
            let none := 0
            // Address of a place's child, less the place: every place takes one byte, and a child the others.
            let base := end
            // Where the next child begins, at the lowest.
            let next := base
            mstore(base, EMPTY_STRINGS)
            let left := size
            // Places rise, so there are at most sixteen rounds. Each adds at most 32 to the base, and writes at most 33 bytes
            // from there and its place on, and a word behind them. All of it is in the zone: see `_checkZone`.
            for {} left { left := sub(left, 1) } {
                let form := byte(0, calldataload(cursor))
                cursor := add(cursor, 1)
                let place := and(form, 0x0f)
                let at := add(base, place)
                if lt(at, next) { refuse() }
                if lt(form, 0x10) {
                    mstore8(at, 0xa0)
                    mstore(add(at, 1), calldataload(cursor))
                    next := add(at, 33)
                    mstore(next, EMPTY_STRINGS)
                    base := add(base, 32)
                    cursor := add(cursor, 32)
                    continue
                }

                let length
                switch shr(4, form)
                case 1 {
                    // A list of 2 to 31 bytes, prefix included, tells its own length: whatever is in it, the children after
                    // it stay in their places.
                    let node := calldataload(cursor)
                    length := sub(byte(0, node), 0xbf)
                    if gt(sub(length, 2), 29) { refuse() }
                    mstore(at, node)
                    cursor := add(cursor, length)
                }
                case 2 {
                    // The next subtree, if one is left. It must be a child of this very branch, at this place.
                    if iszero(lt(child, behind)) { refuse() }
                    if xor(mload(add(child, DEPTH)), depth) { refuse() }
                    if xor(shr(bits, mload(add(child, KEY))), or(parent, place)) { refuse() }
                    length := mload(add(child, SIZE))
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
                }
                default { refuse() }
                // An empty place has one byte, which no other reference has.
                none := add(none, lt(length, 2))
                next := add(at, length)
                mstore(next, EMPTY_STRINGS)
                base := sub(add(base, length), 1)
            }
            // All subtrees are in it.
            if lt(child, behind) { refuse() }
            // With fewer than two children it would be no branch.
            if lt(size, add(none, 2)) { refuse() }
            // The places after the last child are empty, and so is the value.
            end := add(base, 17)
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
