// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {InvalidProof} from "./InvalidProof.sol";

/// @title Reads RLP in calldata (Yellow Paper, appendix B), and takes only the shortest encodings.
/// @notice Places are offsets in calldata. What is read ends within the `end` that the caller gives. `number` alone takes no
/// end: behind the end of calldata there are zeros.
library CalldataRlp {
    // The first byte of an empty string, and of an empty list.
    uint256 internal constant STRING = 0x80;
    uint256 internal constant LIST = 0xc0;

    // Bytes of the longest content whose size the first byte has, and of a word.
    uint256 private constant MAX_SHORT = 55;
    uint256 private constant WORD = 32;

    /// @dev The big-endian number in `size` bytes of calldata, at most 32; zero for none, and for more. Where `01 02 03`
    /// are, `number(place, 2)` is 0x0102.
    function number(uint256 place, uint256 size) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := shr(sub(256, shl(3, size)), calldataload(place))
        }
    }

    // --- Items that end within what is given ------------------------------------------------------------------------

    /// @dev The item at a place: where its content begins, where the next item does, not behind `end`, and whether it is
    /// a list. A byte below 0x80 is its own content. Of `82 aa bb` the content begins at the second byte; of `05` at the
    /// first; of `c0` at the second, where the next item begins, too.
    function item(uint256 place, uint256 end) internal pure returns (uint256 content, uint256 next, bool isList) {
        unchecked {
            if (place >= end) revert InvalidProof();
            uint256 first = number(place, 1);
            if (first < STRING) return (place, place + 1, false);
            isList = first >= LIST;
            uint256 size = first - (isList ? LIST : STRING);
            content = place + 1;
            if (size > MAX_SHORT) {
                // The size of the size, 1 to 8. Both have one form only.
                uint256 length = size - MAX_SHORT;
                size = number(content, length);
                if (size < 56 || number(content, 1) == 0) revert InvalidProof();
                content += length;
            } else if (first == STRING + 1 && number(content, 1) < STRING) {
                revert InvalidProof();
            }
            // No sum overflows: a size takes 64 bits. A size that was read behind the end fails, too.
            next = content + size;
            if (next > end) revert InvalidProof();
        }
    }

    /// @dev The list that takes all bytes from a place to the end: where its first item begins. Of `c2 01 02` that is the
    /// second byte.
    function list(uint256 place, uint256 end) internal pure returns (uint256 content) {
        uint256 next;
        bool isList;
        (content, next, isList) = item(place, end);
        if (!isList || next != end) revert InvalidProof();
    }

    /// @dev A string of `size` bytes at most that is a number without leading zeros, and where the next item begins. Zero
    /// is the empty string, `80`, and 1,000 is `82 03 e8`.
    function integer(uint256 place, uint256 end, uint256 size) internal pure returns (uint256 value, uint256 next) {
        unchecked {
            bool isList;
            (place, next, isList) = item(place, end);
            if (isList || next - place > size) revert InvalidProof();
            value = number(place, next - place);
            if (next != place && value >> (8 * (next - place) - 8) == 0) revert InvalidProof();
        }
    }

    /// @dev A string of 32 bytes, and where the next item begins.
    function word(uint256 place, uint256 end) internal pure returns (bytes32 value, uint256 next) {
        unchecked {
            bool isList;
            (place, next, isList) = item(place, end);
            if (isList || next - place != WORD) revert InvalidProof();
            value = bytes32(number(place, WORD));
        }
    }
}
