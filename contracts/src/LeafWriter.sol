// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Calldata, CalldataReader} from "./Calldata.sol";
import {CalldataRlp} from "./CalldataRlp.sol";
import {InvalidProof} from "./InvalidProof.sol";
import {MemoryZones} from "./MemoryZones.sol";
import {Stack} from "./SubtreeStack.sol";

/// @dev The value of a leaf that is being written: in memory from `begin` to before `end`.
struct Leaf {
    uint256 begin;
    uint256 end;
}

/// @title Writes leaves whose values are long, and come from calldata: receipts and transactions.
/// @notice They are written behind the top of the stack, in its zone of memory, which is cleared after that.
library LeafWriter {
    using CalldataReader for Calldata;

    /// @dev Bytes of a bloom of logs.
    uint256 internal constant BLOOM = 256;
    uint256 private constant BLOOM_PREFIX = 0xb90100;

    // A shorter value could make a node of less than 32 bytes, which would be embedded in the node above.
    uint256 private constant SHORTEST = 32;

    /// @dev Begins an empty value. In the word before it there is room for the node's first bytes.
    function open(Leaf memory leaf, Stack memory stack) internal pure {
        unchecked {
            leaf.begin = stack.top + 32;
            leaf.end = leaf.begin;
        }
    }

    /// @dev Moves the next `size` bytes of calldata to the end of the value.
    /// @return place Where they begin in calldata.
    function move(Leaf memory leaf, Calldata memory input, uint256 size) internal pure returns (uint256 place) {
        place = input.skip(size);
        uint256 end = _grow(leaf, size);
        assembly ("memory-safe") {
            calldatacopy(end, place, size)
        }
    }

    /// @dev Writes a bloom without a bit, as a string.
    /// @return bloom Where its bytes begin in memory.
    function putBloom(Leaf memory leaf) internal pure returns (uint256 bloom) {
        unchecked {
            bloom = _grow(leaf, 3 + BLOOM) + 3;
            assembly ("memory-safe") {
                // The prefix ends where the bloom begins. What is before it in this word is written again.
                let before := shl(24, shr(24, mload(sub(bloom, 32))))
                mstore(sub(bloom, 32), or(before, BLOOM_PREFIX))
                // Behind the end of calldata are zeros.
                calldatacopy(bloom, calldatasize(), BLOOM)
            }
        }
    }

    /// @dev Sets the three bits of a hash in a bloom (Yellow Paper, 4.3.1).
    function setBits(uint256 bloom, bytes32 hash) internal pure {
        assembly ("memory-safe") {
            // Bit 0 is the last one.
            let bit := and(shr(240, hash), 2047)
            let word := add(bloom, shl(5, xor(7, shr(8, bit))))
            mstore(word, or(mload(word), shl(and(bit, 0xff), 1)))
            bit := and(shr(224, hash), 2047)
            word := add(bloom, shl(5, xor(7, shr(8, bit))))
            mstore(word, or(mload(word), shl(and(bit, 0xff), 1)))
            bit := and(shr(208, hash), 2047)
            word := add(bloom, shl(5, xor(7, shr(8, bit))))
            mstore(word, or(mload(word), shl(and(bit, 0xff), 1)))
        }
    }

    /// @dev The hash of the leaf that has the value, and the nibbles of a key from `depth` to before `reach` as its path. At
    /// most 6 nibbles. The value's memory is cleared.
    function finish(Leaf memory leaf, uint256 key, uint256 depth, uint256 reach) internal pure returns (bytes32 hash) {
        unchecked {
            if (depth > reach || reach > 6) revert InvalidProof();
            uint256 first = leaf.begin;
            uint256 length = leaf.end - first;
            if (length < SHORTEST) revert InvalidProof();
            // The path is hex-prefixed: 2 for a leaf, 1 for an odd number of nibbles.
            uint256 nibbles = reach - depth;
            uint256 head = key << (4 * depth) >> (256 - 4 * nibbles);
            uint256 headSize = (nibbles >> 1) + 1;
            head |= uint256(nibbles & 1 != 0 ? 0x03 : 0x20) << (4 * nibbles);
            // One byte below 0x80 is its own encoding.
            if (headSize != 1) {
                head |= (CalldataRlp.STRING + headSize) << (8 * headSize);
                ++headSize;
            }
            (uint256 prefix, uint256 size) = _prefix(CalldataRlp.STRING, length);
            head = head << (8 * size) | prefix;
            headSize += size;
            (prefix, size) = _prefix(CalldataRlp.LIST, headSize + length);
            head |= prefix << (8 * headSize);
            headSize += size;
            assembly ("memory-safe") {
                mstore(sub(first, 32), head)
                hash := keccak256(sub(first, headSize), add(headSize, length))
                // Behind the end of calldata are zeros.
                calldatacopy(sub(first, 32), calldatasize(), add(length, 32))
            }
        }
    }

    /// @dev The prefix of a list or string of so many bytes that aren't their own encoding, as a number, and its bytes.
    function _prefix(uint256 kind, uint256 length) private pure returns (uint256 prefix, uint256 size) {
        unchecked {
            if (length < 56) return (kind + length, 1);
            size = length < 1 << 8 ? 1 : length < 1 << 16 ? 2 : 3;
            // The zone of memory is shorter than four bytes can tell.
            return ((kind + 55 + size) << (8 * size) | length, size + 1);
        }
    }

    /// @dev Makes the value longer. It stays in the zone of the stack.
    /// @return end Where it ended before.
    function _grow(Leaf memory leaf, uint256 size) private pure returns (uint256 end) {
        unchecked {
            end = leaf.end;
            // No calldata has so many bytes that this sum overflows.
            if (end + size > MemoryZones.STACK_END) revert InvalidProof();
            leaf.end = end + size;
        }
    }
}
