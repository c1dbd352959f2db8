// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {PackedHeader} from "../src/PackedHeader.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Fields of headers are read from their one encoding, and from no other bytes.
/// @dev Where in calldata a field begins makes no difference to how it is read: here that is always the same place.
contract PackedHeaderProofs is Symbolic {
    uint256 private constant NOWHERE = 1 << 128;

    // --- What is called with calldata of its own --------------------------------------------------------------------

    function take(bytes calldata field) external pure returns (uint256 content, uint256 size, uint256 next) {
        uint256 start = _start(field);
        (content, size, next) = PackedHeader.take(start);
        (content, next) = (content - start, next == NOWHERE ? NOWHERE : next - start);
    }

    function takeInteger(bytes calldata field) external pure returns (uint256 value, uint256 next) {
        uint256 start = _start(field);
        (value, next) = PackedHeader.takeInteger(start);
        if (next != NOWHERE) next -= start;
    }

    function takeFirst(bytes calldata fields)
        external
        pure
        returns (bytes32 parentHash, bytes32 root, uint256 blockNumber, uint256 next)
    {
        uint256 start = _start(fields);
        (parentHash, root, blockNumber, next) = PackedHeader.takeFirst(start);
        if (next != NOWHERE) next -= start;
    }

    // --- Proofs -----------------------------------------------------------------------------------------------------

    /// @dev The prefix of a string depends on its size, and on its first byte. No other bytes than `_prefix` are taken for
    /// one, and nothing but what follows is the string.
    function check_a_string_is_taken_from_its_one_encoding_only(bytes32 word) external view {
        (uint256 content, uint256 size, uint256 next) = this.take(abi.encodePacked(word));
        if (next == NOWHERE) return;

        assert(content <= 3 && next == content + size && next != 0);
        (bytes3 prefix, uint256 prefixSize) = _prefix(size, uint8(bytes1(word << (8 * content))));
        assert(size <= type(uint16).max && content == prefixSize);
        assert(bytes3(word) >> (24 - 8 * content) == prefix >> (24 - 8 * content));
    }

    /// @dev Strings of all sizes that fields have.
    function check_every_string_is_taken(uint16 size, bytes32 string_) external view {
        (bytes3 prefix, uint256 prefixSize) = _prefix(size, uint8(string_[0]));
        bytes32 word = prefix | string_ >> (8 * prefixSize);
        (uint256 content, uint256 taken, uint256 next) = this.take(abi.encodePacked(word));
        assert(content == prefixSize && taken == size && next == content + size);
    }

    function check_an_integer_is_taken_from_its_one_encoding_only(uint8 prefix, uint64 digits, uint256 rest)
        external
        view
    {
        // halmos doesn't read at places that aren't numbers: where it stands for several, it must be told which.
        if (prefix == 0xb8) prefix = 0xb8;
        else if (prefix == 0xb9) prefix = 0xb9;
        (uint256 value, uint256 next) = this.takeInteger(abi.encodePacked(prefix, digits, rest));
        (bool isInteger, uint256 expected) = _integer(prefix, digits);
        assert((next != NOWHERE) == isInteger);
        if (isInteger) {
            assert(value == expected);
            assert(next == (prefix < 0x80 ? 1 : prefix - 0x7f));
        }
    }

    /// @param prefixes Of all fields up to the bloom of logs, whose prefix has three bytes.
    function check_the_first_fields_are_taken_from_their_one_encoding_only(
        bytes9 prefixes,
        bytes32[5] memory hashes,
        bytes20 coinbase,
        uint8 difficultyPrefix,
        uint8 numberPrefix,
        uint64 digits
    ) external view {
        uint256 difficultySize = 0;
        for (uint8 size = 1; size < 0x80; ++size) {
            // As above: it must be told each of them.
            if (difficultyPrefix == 0x80 + size) (difficultyPrefix, difficultySize) = (0x80 + size, size);
        }
        bytes memory fields = abi.encodePacked(
            abi.encodePacked(prefixes[0], hashes[0], prefixes[1], hashes[1], prefixes[2], coinbase),
            abi.encodePacked(prefixes[3], hashes[2], prefixes[4], hashes[3], prefixes[5], hashes[4]),
            abi.encodePacked(bytes3(uint24(uint72(prefixes))), svm.createBytes(256, "bloom")),
            abi.encodePacked(difficultyPrefix, svm.createBytes(difficultySize, "difficulty"))
        );
        uint256 end = fields.length;
        fields = abi.encodePacked(fields, numberPrefix, digits, svm.createBytes(32, "what follows"));
        (bytes32 parentHash, bytes32 root, uint256 number, uint256 next) = this.takeFirst(fields);

        (bool areRight, uint256 expected) = _integer(numberPrefix, digits);
        areRight = areRight && prefixes == 0xa0a094a0a0a0b90100 && difficultyPrefix <= 0xa0;
        assert((next != NOWHERE) == areRight);
        if (areRight) {
            assert(parentHash == hashes[0]);
            assert(root == hashes[2]);
            assert(number == expected);
            assert(next == end + (numberPrefix < 0x80 ? 1 : numberPrefix - 0x7f));
        }
    }

    /// @dev Whether these bytes begin with the RLP of an integer of at most 64 bits, and which.
    function _integer(uint8 prefix, uint64 digits) private pure returns (bool, uint256) {
        if (prefix < 0x80) return (prefix != 0, prefix);
        if (prefix > 0x88) return (false, 0);
        uint256 size = prefix - 0x80;
        uint256 value = uint256(digits) >> (64 - 8 * size);
        return (size == 0 || (value >= 0x80 && value >> (8 * size - 8) != 0), value);
    }

    function _start(bytes calldata field) private pure returns (uint256 start) {
        assembly {
            start := field.offset
        }
    }

    /// @dev What precedes a string in RLP (Yellow Paper, appendix B), and how many bytes of it.
    function _prefix(uint256 size, uint8 first) private pure returns (bytes3, uint256) {
        if (size == 1 && first < 0x80) return (0, 0);
        if (size <= 55) return (bytes3(uint24(0x80 + size) << 16), 1);
        if (size <= 255) return (bytes3(uint24(0xb800 + size) << 8), 2);
        return (bytes3(uint24(0xb90000 + size)), 3);
    }
}
