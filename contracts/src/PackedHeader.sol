// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title Reads the RLP of a block header from calldata (Yellow Paper, 4.4.3), field by field.
/// @notice Only what is read is checked. What comes after is bound by the header's hash, so headers of later forks pass.
/// @dev A malformed field moves the cursor beyond all calldata, where it stays: one look at it, at the end, is enough.
library PackedHeader {
    uint256 internal constant PARENT_HASH = 0;
    uint256 internal constant STATE_ROOT = 3;
    uint256 internal constant LOGS_BLOOM = 6;
    uint256 internal constant NUMBER = 8;
    uint256 internal constant TIMESTAMP = 11;
    uint256 internal constant EXTRA_DATA = 12;

    uint256 private constant NOWHERE = 1 << 128;

    uint256 private constant HASH_PREFIX = 0xa0 << 248;
    uint256 private constant ADDRESS_PREFIX = 0x94 << 248;

    /// @dev Where the first field begins and where the list ends: 0xf9 and two bytes of length. The bloom alone takes more
    /// than one byte can tell.
    function open(uint256 start) internal pure returns (uint256 cursor, uint256 end) {
        assembly ("memory-safe") {
            let prefix := shr(232, calldataload(start))
            cursor := add(start, 3)
            if eq(shr(16, prefix), 0xf9) { end := add(cursor, and(prefix, 0xffff)) }
        }
    }

    /// @dev Reads the fields that all forks begin with, of fixed sizes but for the last two: parent hash, uncles' hash,
    /// coinbase, state root, transactions' root, receipts' root, bloom of logs, difficulty, number.
    /// @param cursor Where the first field begins.
    /// @return parentHash Place 0.
    /// @return root Place 3.
    /// @return blockNumber Place 8, at most 64 bits.
    /// @return next Where the field after the number begins.
    function takeFirst(uint256 cursor)
        internal
        pure
        returns (bytes32 parentHash, bytes32 root, uint256 blockNumber, uint256 next)
    {
        assembly ("memory-safe") {
            parentHash := calldataload(add(cursor, 1))
            root := calldataload(add(cursor, 88))
            // Prefixes: of 32 bytes and of 20, in the first byte of a word each, and of the bloom's 256.
            let wrong := xor(calldataload(cursor), HASH_PREFIX)
            wrong := or(wrong, xor(calldataload(add(cursor, 33)), HASH_PREFIX))
            wrong := or(wrong, xor(calldataload(add(cursor, 66)), ADDRESS_PREFIX))
            wrong := or(wrong, xor(calldataload(add(cursor, 87)), HASH_PREFIX))
            wrong := or(wrong, xor(calldataload(add(cursor, 120)), HASH_PREFIX))
            wrong := or(wrong, xor(calldataload(add(cursor, 153)), HASH_PREFIX))
            wrong := or(byte(0, wrong), xor(shr(232, calldataload(add(cursor, 186))), 0xb90100))

            // The difficulty only has to be passed: a prefix, and up to 32 bytes.
            next := add(cursor, 446)
            let prefix := byte(0, calldataload(add(cursor, 445)))
            wrong := or(wrong, gt(prefix, 0xa0))
            if gt(prefix, 0x80) { next := add(next, sub(prefix, 0x80)) }

            prefix := byte(0, calldataload(next))
            next := add(next, 1)
            blockNumber := prefix
            if gt(prefix, 0x7f) {
                let size := sub(prefix, 0x80)
                blockNumber := shr(sub(256, shl(3, size)), calldataload(next))
                next := add(next, size)
                // In the shortest form, which for one byte is itself below 0x80.
                wrong := or(wrong, gt(size, 8))
                wrong := or(wrong, and(gt(size, 0), or(lt(blockNumber, 0x80), iszero(shr(sub(shl(3, size), 8), blockNumber)))))
            }
            if or(wrong, iszero(prefix)) { next := NOWHERE }
        }
    }

    /// @dev The string at the cursor: where its bytes begin, how many they are, and where the next field begins.
    function take(uint256 cursor) internal pure returns (uint256 content, uint256 size, uint256 next) {
        assembly ("memory-safe") {
            let word := calldataload(cursor)
            let prefix := byte(0, word)
            content := add(cursor, 1)
            size := sub(prefix, 0x80)
            switch lt(prefix, 0xb8)
            case 1 {
                if lt(prefix, 0x80) {
                    content := cursor
                    size := 1
                }
                next := add(content, size)
                // One byte below 0x80 is its own encoding.
                if and(eq(prefix, 0x81), lt(byte(1, word), 0x80)) { next := NOWHERE }
            }
            default {
                next := NOWHERE
                // Strings of up to 65,535 bytes: no field is nearly as long.
                let sizes := sub(prefix, 0xb7)
                if lt(prefix, 0xba) {
                    size := shr(sub(256, shl(3, sizes)), shl(8, word))
                    if and(gt(size, 55), or(eq(sizes, 1), gt(size, 255))) {
                        content := add(content, sizes)
                        next := add(content, size)
                    }
                }
            }
        }
    }

    /// @dev Where the field after the next `count` ones begins.
    function skip(uint256 cursor, uint256 count) internal pure returns (uint256) {
        unchecked {
            for (; count != 0; --count) {
                (,, cursor) = take(cursor);
            }
        }
        return cursor;
    }

    /// @dev An integer of at most 64 bits without leading zero bytes.
    function takeInteger(uint256 cursor) internal pure returns (uint256 value, uint256 next) {
        uint256 content;
        uint256 size;
        (content, size, next) = take(cursor);
        assembly ("memory-safe") {
            let word := calldataload(content)
            if or(gt(size, 8), and(gt(size, 0), iszero(byte(0, word)))) { next := NOWHERE }
            value := shr(sub(256, shl(3, size)), word)
        }
    }

    /// @dev keccak256 of calldata.
    function hash(uint256 start, uint256 end) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let memory_ := mload(0x40)
            calldatacopy(memory_, start, sub(end, start))
            digest := keccak256(memory_, sub(end, start))
        }
    }
}
