// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {MemoryZones} from "./MemoryZones.sol";

/// @notice What was sent as a header isn't one, or has no such field.
error InvalidHeader();

/// @title Reads the RLP of a block header from calldata (Yellow Paper, 4.4.3), field by field.
/// @notice Only what is read is checked. What comes after is bound by the header's hash, so headers of later forks pass.
/// @dev Every function takes where to read and where the header ends, reads nothing beyond, and answers where the next
/// field begins.
library PackedHeader {
    uint256 internal constant STATE_ROOT = 3;
    uint256 internal constant TRANSACTIONS_ROOT = 4;
    uint256 internal constant RECEIPTS_ROOT = 5;
    uint256 internal constant LOGS_BLOOM = 6;
    uint256 private constant DIFFICULTY = 7;
    uint256 internal constant NUMBER = 8;
    uint256 internal constant EXTRA_DATA = 12;
    uint256 internal constant PARENT_BEACON_BLOCK_ROOT = 19;

    // Offsets of fields from the first one. Sizes are fixed up to the bloom of logs, which has 256 bytes.
    uint256 private constant UNCLES_HASH_PLACE = 33;
    uint256 private constant COINBASE_PLACE = 66;
    uint256 private constant STATE_ROOT_PLACE = 87;
    uint256 private constant TRANSACTIONS_ROOT_PLACE = 120;
    uint256 private constant RECEIPTS_ROOT_PLACE = 153;
    uint256 private constant LOGS_BLOOM_PLACE = 186;
    uint256 private constant DIFFICULTY_PLACE = 445;

    uint256 private constant HASH_PREFIX = 0xa0;
    uint256 private constant ADDRESS_PREFIX = 0x94;
    uint256 private constant BLOOM_PREFIX = 0xb90100;

    /// @dev Where the first field begins and where the header ends, in calldata. Its prefix is 0xf9 and two bytes of
    /// length: the bloom alone takes more than one byte can tell.
    function open(uint256 start) internal pure returns (uint256 cursor, uint256 end) {
        unchecked {
            if (start > msg.data.length || msg.data.length - start < 3) revert InvalidHeader();
            cursor = start + 3;
            end = cursor + CalldataRlp.number(start + 1, 2);
            if (CalldataRlp.number(start, 1) != 0xf9 || end > msg.data.length) revert InvalidHeader();
        }
    }

    /// @dev Reads the fields that all forks begin with: parent hash, uncles' hash, coinbase, state root, transactions'
    /// root, receipts' root, bloom of logs, difficulty, number.
    /// @param cursor Offset of the first field.
    /// @return parentHash Place 0.
    /// @return root Place 3.
    /// @return blockNumber Place 8, at most 64 bits.
    /// @return next Offset of the field after the number.
    function takeFirst(uint256 cursor, uint256 end)
        internal
        pure
        returns (bytes32 parentHash, bytes32 root, uint256 blockNumber, uint256 next)
    {
        unchecked {
            if (cursor > end || end - cursor < DIFFICULTY_PLACE) revert InvalidHeader();
            if (
                CalldataRlp.number(cursor, 1) != HASH_PREFIX || CalldataRlp.number(cursor + UNCLES_HASH_PLACE, 1) != HASH_PREFIX
                    || CalldataRlp.number(cursor + COINBASE_PLACE, 1) != ADDRESS_PREFIX
                    || CalldataRlp.number(cursor + STATE_ROOT_PLACE, 1) != HASH_PREFIX
                    || CalldataRlp.number(cursor + TRANSACTIONS_ROOT_PLACE, 1) != HASH_PREFIX
                    || CalldataRlp.number(cursor + RECEIPTS_ROOT_PLACE, 1) != HASH_PREFIX
                    || CalldataRlp.number(cursor + LOGS_BLOOM_PLACE, 3) != BLOOM_PREFIX
            ) revert InvalidHeader();
            parentHash = bytes32(CalldataRlp.number(cursor + 1, 32));
            root = bytes32(CalldataRlp.number(cursor + STATE_ROOT_PLACE + 1, 32));
            // The difficulty only has to be passed.
            uint256 size;
            (, size, next) = take(cursor + DIFFICULTY_PLACE, end);
            if (size > 32) revert InvalidHeader();
            (blockNumber, next) = takeInteger(next, end);
        }
    }

    /// @dev The root of transactions or of receipts, of a header whose first fields `takeFirst` has read.
    function rootAt(uint256 start, uint256 place) internal pure returns (bytes32) {
        unchecked {
            // Behind the header's prefix and the field's own.
            return bytes32(
                CalldataRlp.number(start + 4 + (place == RECEIPTS_ROOT ? RECEIPTS_ROOT_PLACE : TRANSACTIONS_ROOT_PLACE), 32)
            );
        }
    }

    /// @dev Where field 19 begins, of a header whose first fields `takeFirst` has read.
    function parentBeaconBlockRoot(uint256 start, uint256 end) internal pure returns (uint256) {
        unchecked {
            return skip(start + 3 + DIFFICULTY_PLACE, end, PARENT_BEACON_BLOCK_ROOT - DIFFICULTY);
        }
    }

    /// @dev The string at the cursor: where its bytes begin, how many they are, and where the next field begins.
    function take(uint256 cursor, uint256 end) internal pure returns (uint256 content, uint256 size, uint256 next) {
        unchecked {
            if (cursor >= end) revert InvalidHeader();
            uint256 prefix = CalldataRlp.number(cursor, 1);
            if (prefix < 0x80) {
                // A byte below 0x80 is its own encoding.
                (content, size) = (cursor, 1);
            } else if (prefix < 0xb8) {
                (content, size) = (cursor + 1, prefix - 0x80);
                if (size == 1 && CalldataRlp.number(content, 1) < 0x80) revert InvalidHeader();
            } else if (prefix == 0xb8) {
                (content, size) = (cursor + 2, CalldataRlp.number(cursor + 1, 1));
                if (size < 56) revert InvalidHeader();
            } else if (prefix == 0xb9) {
                (content, size) = (cursor + 3, CalldataRlp.number(cursor + 1, 2));
                if (size < 256) revert InvalidHeader();
            } else {
                // A list, or a string of more than 65,535 bytes: no field is either.
                revert InvalidHeader();
            }
            next = content + size;
            if (next > end) revert InvalidHeader();
        }
    }

    /// @dev Where the field after the next `count` ones begins.
    function skip(uint256 cursor, uint256 end, uint256 count) internal pure returns (uint256) {
        unchecked {
            for (; count != 0; --count) {
                (,, cursor) = take(cursor, end);
            }
        }
        return cursor;
    }

    /// @dev An integer of at most 64 bits without leading zero bytes.
    function takeInteger(uint256 cursor, uint256 end) internal pure returns (uint256 value, uint256 next) {
        uint256 size;
        (cursor, size, next) = take(cursor, end);
        if (size > 8) revert InvalidHeader();
        value = CalldataRlp.number(cursor, size);
        if (size != 0 && value >> (8 * size - 8) == 0) revert InvalidHeader();
    }

    /// @dev The big-endian number in the `size` bytes of a field, at most 32; zero in none.
    function word(uint256 content, uint256 size) internal pure returns (bytes32) {
        if (size > 32) revert InvalidHeader();
        return bytes32(CalldataRlp.number(content, size));
    }

    /// @dev keccak256 of `size` bytes of calldata. Memory beyond the compiler's is as it was before: clear.
    function hash(uint256 start, uint256 size) internal pure returns (bytes32 digest) {
        uint256 zone = MemoryZones.NODE;
        assembly ("memory-safe") {
            calldatacopy(zone, start, size)
            digest := keccak256(zone, size)
            // Behind the end of calldata are zeros.
            calldatacopy(zone, calldatasize(), size)
        }
    }
}
