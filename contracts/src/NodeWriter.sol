// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {MemoryZones} from "./MemoryZones.sol";

/// @title Writes the RLP of one trie node (Yellow Paper, appendices B and C), and gives the reference to it. Branches are
/// written by `BranchWriter`.
/// @notice A node is a list. What is in it is written first, piece after piece: each function takes where it goes and
/// answers where the next goes. The list's prefix comes last, before it, when its length is known.
/// @dev Every write is checked to lie in the node's zone of memory. Whoever writes too much is refused.
library NodeWriter {
    // The longest prefix of a list has three bytes.
    uint256 private constant PAYLOAD = MemoryZones.NODE + 3;
    // The longest list: sixteen hashes with their prefixes, and no value.
    uint256 private constant MAX_LENGTH = 16 * 33 + 1;

    /// @dev Where the list's first piece goes.
    function begin() internal pure returns (uint256 end) {
        // Behind the longest list there is room for a word. All are constants, so this costs nothing.
        assert(PAYLOAD + MAX_LENGTH + 32 <= MemoryZones.NODE_END);
        return PAYLOAD;
    }

    /// @dev Writes one byte.
    function putByte(uint256 end, uint256 value) internal pure returns (uint256) {
        unchecked {
            _checkRoom(end, 1);
            _setByte(end, value);
            return end + 1;
        }
    }

    /// @dev Writes the first `size` bytes of a word, at most 32.
    function putBytes(uint256 end, bytes32 word, uint256 size) internal pure returns (uint256) {
        unchecked {
            if (size > 32) revert InvalidProof();
            _checkRoom(end, size);
            // All 32 bytes, of which the next piece covers those that don't count. Where the list is as long as any, they
            // lie behind it (see `begin`).
            assembly ("memory-safe") {
                mstore(end, word)
            }
            return end + size;
        }
    }

    /// @dev Writes a hash, as a string of 32 bytes.
    function putHash(uint256 end, bytes32 hash) internal pure returns (uint256) {
        unchecked {
            _checkRoom(end, 33);
            assembly ("memory-safe") {
                mstore8(end, 0xa0)
                mstore(add(end, 1), hash)
            }
            return end + 33;
        }
    }

    /// @dev Writes a reference to another node: its hash, or the node itself where `size` tells its bytes, at most 31.
    function putReference(uint256 end, bytes32 ref, uint256 size) internal pure returns (uint256) {
        if (size == 0) return putHash(end, ref);
        if (size > 31) revert InvalidProof();
        return putBytes(end, ref, size);
    }

    /// @dev Writes an integer of `size` bytes (see `byteLength`), as a string.
    function putInteger(uint256 end, uint256 value, uint256 size) internal pure returns (uint256) {
        unchecked {
            // A byte below 0x80 is its own encoding, but for zero, which has no byte.
            if (value != 0 && value < 0x80) return putByte(end, value);
            end = putByte(end, 0x80 + size);
            return putBytes(end, bytes32(value << (256 - 8 * size)), size);
        }
    }

    /// @dev How many bytes `putInteger` writes.
    function integerSize(uint256 value, uint256 size) internal pure returns (uint256) {
        unchecked {
            return value < 0x80 ? 1 : 1 + size;
        }
    }

    /// @dev How many bytes an integer has, without leading zeros: a binary search.
    function byteLength(uint256 value) internal pure returns (uint256 size) {
        assembly ("memory-safe") {
            let step := shl(4, iszero(iszero(shr(128, value))))
            size := step
            value := shr(shl(3, step), value)
            step := shl(3, iszero(iszero(shr(64, value))))
            size := add(size, step)
            value := shr(shl(3, step), value)
            step := shl(2, iszero(iszero(shr(32, value))))
            size := add(size, step)
            value := shr(shl(3, step), value)
            step := shl(1, iszero(iszero(shr(16, value))))
            size := add(size, step)
            value := shr(shl(3, step), value)
            step := iszero(iszero(shr(8, value)))
            size := add(size, step)
            value := shr(shl(3, step), value)
            size := add(size, iszero(iszero(value)))
        }
    }

    /// @dev Writes the nibbles of a key from `from` to before `to` as the path of a leaf, or of an extension: hex-prefixed,
    /// as a string. At most 64 nibbles, at least one.
    function putPath(uint256 end, uint256 key, uint256 from, uint256 to, bool isLeaf) internal pure returns (uint256) {
        unchecked {
            if (from >= to || to > 64) revert InvalidProof();
            uint256 length = to - from;
            // The first byte has the flags (2: a leaf, 1: an odd number of nibbles) and, if they are odd, a nibble.
            uint256 flags = isLeaf ? 0x20 : 0x00;
            uint256 nibbles = key << (4 * from);
            if (length & 1 != 0) {
                flags |= 0x10 | nibbles >> 252;
                nibbles <<= 4;
            }
            uint256 size = length >> 1;
            // One byte below 0x80 is its own encoding.
            if (size != 0) end = putByte(end, 0x81 + size);
            end = putByte(end, flags);
            return putBytes(end, bytes32(nibbles), size);
        }
    }

    /// @dev Ends the list. A node of less than 32 bytes is its own reference, left-aligned, and `size` tells its bytes. Of
    /// a longer one it is the hash, and `size` is zero.
    function finish(uint256 end) internal pure returns (bytes32 ref, uint256 size) {
        unchecked {
            _checkRoom(end, 0);
            uint256 length = end - PAYLOAD;
            uint256 start = PAYLOAD - 1;
            if (length < 56) {
                _setByte(start, 0xc0 + length);
            } else if (length < 256) {
                start = PAYLOAD - 2;
                _setByte(start, 0xf8);
                _setByte(start + 1, length);
            } else {
                start = PAYLOAD - 3;
                _setByte(start, 0xf9);
                _setByte(start + 1, length >> 8);
                _setByte(start + 2, length);
            }
            size = end - start;
            if (size > 31) {
                assembly ("memory-safe") {
                    ref := keccak256(start, size)
                }
                return (ref, 0);
            }
            assembly ("memory-safe") {
                ref := mload(start)
            }
            // Without what an earlier node has left behind this one.
            uint256 rest = 256 - 8 * size;
            return (ref >> rest << rest, size);
        }
    }

    /// @dev Refuses to write `size` bytes at `end`, unless they lie within the longest list.
    function _checkRoom(uint256 end, uint256 size) private pure {
        unchecked {
            // Below PAYLOAD the difference is huge.
            if (end - PAYLOAD > MAX_LENGTH - size) revert InvalidProof();
        }
    }

    function _setByte(uint256 place, uint256 value) private pure {
        assembly ("memory-safe") {
            mstore8(place, value)
        }
    }
}
