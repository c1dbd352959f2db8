// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataReader} from "./Calldata.sol";
import {InvalidProof} from "./InvalidProof.sol";

/// @title Reads RLP in calldata (Yellow Paper, appendix B), and takes only the shortest encodings.
/// @notice Every function takes where to read, and answers where what follows begins. The caller checks that all of it
/// was sent. Behind the end of calldata there are zeros.
library CalldataRlp {
    // The first byte of an empty string, and of an empty list.
    uint256 internal constant STRING = 0x80;
    uint256 internal constant LIST = 0xc0;

    /// @dev The prefix of a list, or of a string that isn't its own encoding.
    /// @param kind LIST or STRING.
    /// @return size Bytes of its content, less than 2^24.
    /// @return content Where it begins.
    function prefix(uint256 place, uint256 kind) internal pure returns (uint256 size, uint256 content) {
        unchecked {
            // Where there is an item of the other kind, this is huge, or at least 64.
            uint256 form = CalldataReader.read(place, 1) - kind;
            if (form < 56) return (form, place + 1);
            if (form == 56) {
                size = CalldataReader.read(place + 1, 1);
                if (size < 56) revert InvalidProof();
                return (size, place + 2);
            }
            // The size is in two or three bytes, of which the first isn't zero.
            if (form > 58) revert InvalidProof();
            (size, content) = (CalldataReader.read(place + 1, form - 55), place + form - 54);
            if (size >> (8 * (form - 56)) == 0) revert InvalidProof();
        }
    }

    /// @dev A string.
    function string_(uint256 place) internal pure returns (uint256 content, uint256 size) {
        // A byte below 0x80 is its own encoding.
        if (CalldataReader.read(place, 1) < STRING) return (place, 1);
        (size, content) = prefix(place, STRING);
        if (size == 1 && CalldataReader.read(content, 1) < STRING) revert InvalidProof();
    }

    /// @dev An integer of at most 64 bits without leading zero bytes.
    function integer(uint256 place) internal pure returns (uint256 value, uint256 next) {
        unchecked {
            (uint256 content, uint256 size) = string_(place);
            if (size > 8) revert InvalidProof();
            value = CalldataReader.read(content, size);
            if (size != 0 && value >> (8 * size - 8) == 0) revert InvalidProof();
            next = content + size;
        }
    }
}
