// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";

/// @dev What is read of calldata, and what isn't yet.
struct Calldata {
    // The place of the next byte.
    uint256 cursor;
}

/// @title Reads the bytes of a transaction one after the other, and none that weren't sent.
library CalldataReader {
    /// @dev Whether all bytes were read.
    function atEnd(Calldata memory input) internal pure returns (bool) {
        return input.cursor >= msg.data.length;
    }

    /// @dev The big-endian number in the next `size` bytes, at most 32; zero in none.
    function take(Calldata memory input, uint256 size) internal pure returns (uint256 value) {
        unchecked {
            if (size > 32) revert InvalidProof();
            return CalldataRlp.number(skip(input, size), size);
        }
    }

    /// @dev As `take`, of a number without leading zero bytes. Zero takes none.
    function takeShortest(Calldata memory input, uint256 size) internal pure returns (uint256 value) {
        unchecked {
            value = take(input, size);
            if (size != 0 && value >> (8 * size - 8) == 0) revert InvalidProof();
        }
    }

    /// @dev The next 32 bytes.
    function takeHash(Calldata memory input) internal pure returns (bytes32) {
        return bytes32(take(input, 32));
    }

    /// @dev The next 20 bytes.
    function takeAddress(Calldata memory input) internal pure returns (address) {
        return address(uint160(take(input, 20)));
    }

    /// @dev The value of the next byte, which stays the next.
    function peek(Calldata memory input) internal pure returns (uint256 value) {
        uint256 place = input.cursor;
        if (place >= msg.data.length) revert InvalidProof();
        assembly ("memory-safe") {
            value := byte(0, calldataload(place))
        }
    }

    /// @dev Passes `size` bytes, and tells where they begin.
    function skip(Calldata memory input, uint256 size) internal pure returns (uint256 place) {
        place = input.cursor;
        input.cursor = behind(place, size);
    }

    /// @dev Where what follows `size` bytes begins, all of which were sent.
    function behind(uint256 place, uint256 size) internal pure returns (uint256 next) {
        unchecked {
            next = place + size;
            // Neither beyond the end, nor, by a sum that overflows, before where it was.
            bool outside;
            assembly ("memory-safe") {
                outside := or(gt(next, calldatasize()), lt(next, place))
            }
            if (outside) revert InvalidProof();
        }
    }
}
