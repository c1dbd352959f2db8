// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {CalldataRlp} from "./CalldataRlp.sol";
import {InvalidProof} from "./InvalidProof.sol";

/// @title Reads the RLP of a block header in calldata (Yellow Paper, 4.4.3), field by field.
/// @notice A header is as true as its hash: compare `hash` with one that is known before a field is believed, as
/// `ProvenFacts.requireHeader` does. After its source's window a registry vouches only for hashes that were proven alone. For
/// other blocks, only its `headerField` facts are those of a proven block. Wrong is:
///
///     require(Headers.stateRoot(header) == registry.stateRoot(Headers.number(header)));
///     uint256 time = uint256(Headers.field(header, Headers.TIMESTAMP)); // chosen by the caller
///
/// because anybody can write a header with this state root and number, and any other fields.
///
/// The headers of all chains begin with the same 13 fields. The later ones are read where all have the sizes of Ethereum's,
/// up to Amsterdam's (23 fields): other layouts are refused there. Every function reverts with InvalidProof where it is
/// given anything else than a header.
library Headers {
    // Places of fields, for `field`.
    uint256 internal constant PARENT_HASH = 0;
    uint256 internal constant STATE_ROOT = 3;
    uint256 internal constant TRANSACTIONS_ROOT = 4;
    uint256 internal constant RECEIPTS_ROOT = 5;
    uint256 internal constant LOGS_BLOOM = 6;
    uint256 internal constant NUMBER = 8;
    uint256 internal constant TIMESTAMP = 11;
    uint256 internal constant EXTRA_DATA = 12;
    uint256 internal constant PARENT_BEACON_BLOCK_ROOT = 19;

    uint256 private constant COINBASE = 2;
    uint256 private constant DIFFICULTY = 7;

    /// @dev Fields that the headers of all chains share, and the fewest of Ethereum's.
    uint256 private constant SHARED = 13;
    uint256 private constant FEWEST = 15;

    /// @dev A byte for each field from DIFFICULTY on: its size in bytes. AT_MOST marks a number, which has no leading zeros.
    /// The zeros at the end stand for fields that no fork has.
    uint256 private constant SIZES = 0xa088888888ff20089020888820202088 << 128;
    uint256 private constant AT_MOST = 0x80;
    uint256 private constant ANY = 0xff;

    // The fields before DIFFICULTY have fixed sizes: hashes of 32 bytes, an address, and the bloom of logs of 256 bytes.
    uint256 private constant HASH_PREFIX = 0xa0;
    uint256 private constant ADDRESS_PREFIX = 0x94;
    uint256 private constant BLOOM_PREFIX = 0xb90100;
    // Bytes of a hash and of an address in RLP, and of all these fields.
    uint256 private constant HASH = 33;
    uint256 private constant ADDRESS = 21;
    uint256 private constant FIRST_FIELDS = 5 * HASH + ADDRESS + 259;

    /// @dev The header's hash. Nothing is read.
    function hash(bytes calldata header) internal pure returns (bytes32) {
        return keccak256(header);
    }

    /// @dev The root of the state behind the block. It isn't zero.
    function stateRoot(bytes calldata header) internal pure returns (bytes32 root) {
        root = field(header, STATE_ROOT);
        if (root == 0) revert InvalidProof();
    }

    /// @dev The block's number, of 64 bits.
    function number(bytes calldata header) internal pure returns (uint256) {
        return uint256(field(header, NUMBER));
    }

    /// @dev A field as a word, as registries store it: numbers and addresses left-padded, and the keccak256 of the bloom of
    /// logs (6) and of extra data (12). Field 11 of a header with `84 65 53 f1 00` there is 0x6553f100.
    /// @param place The field's place in the header, from 0 on.
    function field(bytes calldata header, uint256 place) internal pure returns (bytes32 value) {
        unchecked {
            uint256 cursor;
            uint256 end;
            assembly ("memory-safe") {
                cursor := header.offset
                end := add(cursor, header.length)
            }
            cursor = CalldataRlp.list(cursor, end);
            if (place < DIFFICULTY) value = _firstField(cursor, place);
            cursor = _passFirst(cursor, end);
            uint256 count = DIFFICULTY;
            // Fields after the shared ones are read where they must tell which layout this is.
            while (place < SHARED ? count != SHARED : cursor != end) {
                uint256 content;
                bool isList;
                (content, cursor, isList) = CalldataRlp.item(cursor, end);
                uint256 size = cursor - content;
                if (isList || !_fits(count, content, size)) revert InvalidProof();
                if (count == place) {
                    value = place == EXTRA_DATA ? _digest(content, size) : bytes32(CalldataRlp.number(content, size));
                }
                ++count;
            }
            if (place >= count || count < (place < SHARED ? SHARED : FEWEST)) revert InvalidProof();
        }
    }

    /// @dev A field before DIFFICULTY, by its fixed place.
    function _firstField(uint256 cursor, uint256 place) private pure returns (bytes32) {
        unchecked {
            cursor += HASH * place;
            if (place <= COINBASE) return bytes32(CalldataRlp.number(cursor + 1, place == COINBASE ? 20 : 32));
            cursor -= HASH - ADDRESS;
            return place == LOGS_BLOOM ? _digest(cursor + 3, 256) : bytes32(CalldataRlp.number(cursor + 1, 32));
        }
    }

    /// @dev Checks the fields before DIFFICULTY, where it begins.
    function _passFirst(uint256 cursor, uint256 end) private pure returns (uint256) {
        unchecked {
            uint256 root = cursor + 2 * HASH + ADDRESS;
            if (
                end - cursor < FIRST_FIELDS || CalldataRlp.number(cursor, 1) != HASH_PREFIX
                    || CalldataRlp.number(cursor + HASH, 1) != HASH_PREFIX
                    || CalldataRlp.number(cursor + 2 * HASH, 1) != ADDRESS_PREFIX
                    || CalldataRlp.number(root, 1) != HASH_PREFIX
                    || CalldataRlp.number(root + HASH, 1) != HASH_PREFIX
                    || CalldataRlp.number(root + 2 * HASH, 1) != HASH_PREFIX
                    || CalldataRlp.number(root + 3 * HASH, 3) != BLOOM_PREFIX
            ) revert InvalidProof();
            return cursor + FIRST_FIELDS;
        }
    }

    /// @dev Whether a field from DIFFICULTY on can have this content.
    function _fits(uint256 place, uint256 content, uint256 size) private pure returns (bool) {
        unchecked {
            // The highest byte is that of DIFFICULTY. Shifts by more than a word give zero.
            uint256 expected = SIZES << (8 * (place - DIFFICULTY)) >> 248;
            if (expected < AT_MOST) return expected != 0 && size == expected;
            if (expected == ANY) return true;
            return size <= expected - AT_MOST && (size == 0 || CalldataRlp.number(content, 1) != 0);
        }
    }

    /// @dev keccak256 of calldata.
    function _digest(uint256 start, uint256 size) private pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            // Memory that isn't allocated may be used for a moment.
            let free := mload(0x40)
            calldatacopy(free, start, size)
            digest := keccak256(free, size)
        }
    }
}
