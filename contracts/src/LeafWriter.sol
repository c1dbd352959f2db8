// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {MemoryZones} from "./MemoryZones.sol";
import {Stack} from "./SubtreeStack.sol";

/// @title Writes leaves whose values are long, and come from calldata: receipts and transactions.
/// @notice They are written behind the top of the stack, in its zone of memory. Whoever pushes a subtree there writes over it.
library LeafWriter {
    /// @dev Bytes of a bloom of logs; and with its prefix as a string.
    uint256 internal constant BLOOM_BYTES = 256;
    uint256 internal constant BLOOM = 3 + BLOOM_BYTES;
    uint256 private constant BLOOM_PREFIX = 0xb90100;

    // A shorter value could make a node of less than 32 bytes, which would be embedded in the node above.
    uint256 private constant SHORTEST = 32;

    /// @dev Where a value of `size` bytes, less than 2^24, goes. In the word before it there is room for the node's first
    /// bytes.
    function begin(Stack memory stack, uint256 size) internal pure returns (uint256 value) {
        unchecked {
            value = stack.top + 32;
            if (value + size > MemoryZones.STACK_END) revert InvalidProof();
        }
    }

    /// @dev Writes a receipt, with a bloom that has no bit yet.
    /// @param place Where it begins in calldata; `behind` is where what follows the bloom does, and `end` where it ends.
    /// @return bloom Where the bloom's bytes begin in memory.
    function putReceipt(uint256 value, uint256 place, uint256 behind, uint256 end) internal pure returns (uint256 bloom) {
        unchecked {
            bloom = value + (behind - place) + 3;
            assembly ("memory-safe") {
                // The prefix ends where the bloom begins. What is before it in this word is written after it.
                mstore(sub(bloom, 32), BLOOM_PREFIX)
                calldatacopy(value, place, sub(behind, place))
                // Behind the end of calldata are zeros.
                calldatacopy(bloom, calldatasize(), BLOOM_BYTES)
                calldatacopy(add(bloom, BLOOM_BYTES), behind, sub(end, behind))
            }
        }
    }

    /// @dev Sets the three bits of a name in a bloom (Yellow Paper, 4.3.1). Bit 0 is the last one.
    function setBits(uint256 bloom, bytes32 name) internal pure {
        assembly ("memory-safe") {
            let last := add(bloom, 224)
            let word := sub(last, and(shr(243, name), 0xe0))
            mstore(word, or(mload(word), shl(byte(1, name), 1)))
            word := sub(last, and(shr(227, name), 0xe0))
            mstore(word, or(mload(word), shl(byte(3, name), 1)))
            word := sub(last, and(shr(211, name), 0xe0))
            mstore(word, or(mload(word), shl(byte(5, name), 1)))
        }
    }

    /// @dev The hash of the leaf that has the value, and the nibbles of a key from `depth` to before `reach` as its path. At
    /// most 6 nibbles.
    function hash(uint256 value, uint256 length, uint256 key, uint256 depth, uint256 reach)
        internal
        pure
        returns (bytes32 leaf)
    {
        unchecked {
            if (depth > reach || reach > 6) revert InvalidProof();
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
                mstore(sub(value, 32), head)
                leaf := keccak256(sub(value, headSize), add(headSize, length))
            }
        }
    }

    /// @dev The prefix of a list or string of so many bytes that aren't their own encoding, as a number, and its bytes.
    function _prefix(uint256 kind, uint256 length) private pure returns (uint256 prefix, uint256 size) {
        unchecked {
            if (length < 1 << 8) return length < 56 ? (kind + length, 1) : ((kind + 56) << 8 | length, 2);
            // The zone of memory is shorter than four bytes can tell.
            return length < 1 << 16 ? ((kind + 57) << 16 | length, 3) : ((kind + 58) << 24 | length, 4);
        }
    }
}
