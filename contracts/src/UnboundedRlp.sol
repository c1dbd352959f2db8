// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";

/// @title Reads RLP in calldata without an end, and takes only the shortest encodings.
/// @notice The caller must check that all of what is read was sent: behind the end of calldata there are zeros.
library UnboundedRlp {
    /// @dev The prefix of a list, or of a string that isn't its own encoding. Of the list `f8 38 …` it tells 56 bytes.
    /// @param kind LIST or STRING.
    /// @return size Bytes of its content, less than 2^24.
    /// @return content Where it begins.
    function prefix(uint256 place, uint256 kind) internal pure returns (uint256 size, uint256 content) {
        unchecked {
            // Where there is an item of the other kind, this is huge, or at least 64.
            uint256 form = CalldataRlp.number(place, 1) - kind;
            if (form < 56) return (form, place + 1);
            if (form == 56) {
                size = CalldataRlp.number(place + 1, 1);
                if (size < 56) revert InvalidProof();
                return (size, place + 2);
            }
            // The size is in two or three bytes, of which the first isn't zero.
            if (form > 58) revert InvalidProof();
            (size, content) = (CalldataRlp.number(place + 1, form - 55), place + form - 54);
            if (size < (form == 57 ? 1 << 8 : 1 << 16)) revert InvalidProof();
        }
    }

    /// @dev A string, of less than 2^24 bytes: where its content begins, and how long it is.
    function string_(uint256 place) internal pure returns (uint256 content, uint256 size) {
        // A byte below 0x80 is its own encoding.
        if (CalldataRlp.number(place, 1) < CalldataRlp.STRING) return (place, 1);
        (size, content) = prefix(place, CalldataRlp.STRING);
        if (size == 1 && CalldataRlp.number(content, 1) < CalldataRlp.STRING) revert InvalidProof();
    }

    /// @dev An integer of at most 64 bits without leading zero bytes.
    function integer(uint256 place) internal pure returns (uint256 value, uint256 next) {
        unchecked {
            (uint256 content, uint256 size) = string_(place);
            if (size == 0) return (0, content);
            value = CalldataRlp.number(content, size);
            if (size > 8 || value >> (8 * size - 8) == 0) revert InvalidProof();
            next = content + size;
        }
    }
}
