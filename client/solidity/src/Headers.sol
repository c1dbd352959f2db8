// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {CalldataRlp} from "./CalldataRlp.sol";
import {InvalidProof} from "./InvalidProof.sol";

/// @title Reads the RLP of a block header in calldata (Yellow Paper, 4.4.3), field by field.
/// @notice A header is as true as its hash: compare `hash` with one that is known before a field is believed.
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

    /// @dev Fields that the headers of all chains share, and the fewest of Ethereum's.
    uint256 private constant SHARED = 13;
    uint256 private constant FEWEST = 15;

    /// @dev A byte for each field, from the first on: its size in bytes. AT_MOST marks a number, which has no leading zeros.
    /// The zeros at the end stand for fields that no fork has.
    bytes32 private constant SIZES = 0x2020142020207fa088888888ff20089020888820202088000000000000000000;
    uint256 private constant AT_MOST = 0x80;
    uint256 private constant BLOOM = 0x7f;
    uint256 private constant ANY = 0xff;

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
            uint256 count = 0;
            // Fields after the shared ones are read where they must tell which layout this is.
            while (place < SHARED ? count != SHARED : cursor != end) {
                uint256 content;
                bool isList;
                (content, cursor, isList) = CalldataRlp.item(cursor, end);
                if (isList || !_fits(count, content, cursor - content)) revert InvalidProof();
                if (count == place) {
                    bool isHashed = place == LOGS_BLOOM || place == EXTRA_DATA;
                    uint256 size = cursor - content;
                    value = isHashed ? _digest(content, size) : bytes32(CalldataRlp.number(content, size));
                }
                ++count;
            }
            if (place >= count || (place >= SHARED && count < FEWEST)) revert InvalidProof();
        }
    }

    /// @dev Whether a field can have this content.
    function _fits(uint256 place, uint256 content, uint256 size) private pure returns (bool) {
        uint256 expected = place < 32 ? uint8(SIZES[place]) : 0;
        if (expected == ANY) return true;
        if (expected == BLOOM) return size == 256;
        if (expected < AT_MOST) return expected != 0 && size == expected;
        return size <= expected - AT_MOST && (size == 0 || CalldataRlp.number(content, 1) != 0);
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
