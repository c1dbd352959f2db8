// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {RlpReader} from "../test/RlpReader.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Items of RLP in calldata are read from their one encoding, and from no other bytes.
/// @dev Sizes have 64 bits at most, as RLP has them. An item's content needn't be sent: only its prefix and the first byte
/// behind it are read. An `end` may be before or behind that of calldata.
contract CalldataRlpProofs is Symbolic {
    uint256 private constant STRING = 0x80;
    uint256 private constant LIST = 0xc0;

    RlpReader private reader;

    function setUp() external {
        reader = new RlpReader();
    }

    /// @dev The size is less than 2^253: eight times it has no room in a word from there on.
    function check_a_number_is_that_of_its_bytes(bytes32 text, uint256 size) external view {
        vm.assume(size < 1 << 253);
        bytes memory answer = _returned(address(reader), abi.encodeCall(reader.number, (abi.encodePacked(text), size)));
        uint256 value = abi.decode(answer, (uint256));
        if (size == 0 || size > 32) {
            assert(value == 0);
            return;
        }
        size = _each(size, 1, 32);
        uint256 expected = 0;
        for (uint256 place = 0; place < size; ++place) {
            expected = expected * 256 + uint8(text[place]);
        }
        assert(value == expected);
    }

    function check_an_item_is_taken_from_its_one_encoding_only(bytes10 text, uint64 end) external view {
        try reader.item(abi.encodePacked(text), end) returns (uint256 content, uint256 next, bool isList) {
            assert(content <= 9 && content <= next && next != 0 && next <= end);
            _assertPrefix(text, content, isList ? LIST : STRING, next - content);
        } catch {}
    }

    function check_every_item_is_taken_within_its_end_only(bool isList, uint64 size, bytes1 first, uint64 end)
        external
        view
    {
        (bytes10 text, uint256 prefixSize) = _text(isList ? LIST : STRING, size, first);
        try reader.item(abi.encodePacked(text), end) returns (uint256 content, uint256 next, bool isTakenAsList) {
            assert(prefixSize + size <= end);
            assert(content == prefixSize && next == prefixSize + size && isTakenAsList == isList);
        } catch {
            assert(prefixSize + size > end);
        }
    }

    /// @dev So all that is true of items is true of lists.
    function check_a_list_is_the_item_that_takes_all_to_the_end(bytes10 text, uint64 end) external view {
        bool isRight;
        uint256 place;
        try reader.item(abi.encodePacked(text), end) returns (uint256 content, uint256 next, bool isList) {
            (isRight, place) = (_both(isList, next == end), content);
        } catch {}
        try reader.list(abi.encodePacked(text), end) returns (uint256 content) {
            assert(isRight && content == place);
        } catch {
            assert(!isRight);
        }
    }

    /// @param most The most bytes that the integer may have.
    function check_an_integer_is_taken_from_its_one_encoding_only(bytes1 first, bytes32 rest, uint64 end, uint256 most)
        external
        view
    {
        vm.assume(most != 0 && most <= 32);
        (bool isInteger, uint256 value, uint256 size) = _integer(uint8(first), rest, most);
        try reader.integer(abi.encodePacked(first, rest), end, most) returns (uint256 taken, uint256 next) {
            assert(_both(isInteger, next <= end));
            assert(_both(taken == value, next == size));
        } catch {
            assert(_either(!isInteger, size > end));
        }
    }

    function check_a_word_is_taken_from_its_one_encoding_only(bytes1 first, bytes32 rest, uint64 end) external view {
        try reader.word(abi.encodePacked(first, rest), end) returns (bytes32 value, uint256 next) {
            assert(first == 0xa0 && value == rest && next == 33 && next <= end);
        } catch {
            assert(first != 0xa0 || end < 33);
        }
    }

    // --- Items whose end the caller checks --------------------------------------------------------------------------

    function check_a_prefix_is_taken_from_its_one_encoding_only(bytes10 text, bool isList) external view {
        uint256 kind = isList ? LIST : STRING;
        try reader.prefix(abi.encodePacked(text), kind) returns (uint256 size, uint256 content) {
            assert(size < 1 << 24 && content != 0 && content <= 4);
            (bytes9 prefix, uint256 prefixSize) = _prefix(kind, size);
            assert(content == prefixSize && _agree(text, prefix, prefixSize));
        } catch {}
    }

    function check_a_string_is_taken_from_its_one_encoding_only(bytes10 text) external view {
        try reader.string_(abi.encodePacked(text)) returns (uint256 content, uint256 size) {
            assert(size < 1 << 24 && content <= 4);
            _assertPrefix(text, content, STRING, size);
        } catch {}
    }

    function check_every_string_and_prefix_is_taken(bool isList, uint24 size, bytes1 first) external view {
        (bytes10 text, uint256 prefixSize) = _text(isList ? LIST : STRING, size, first);
        bytes memory encoded = abi.encodePacked(text);
        if (!isList) {
            bytes memory string_ = _returned(address(reader), abi.encodeCall(reader.string_, (encoded)));
            (uint256 place, uint256 taken) = abi.decode(string_, (uint256, uint256));
            assert(place == prefixSize && taken == size);
            if (prefixSize == 0) return;
        }
        bytes memory answer =
            _returned(address(reader), abi.encodeCall(reader.prefix, (encoded, isList ? LIST : STRING)));
        (uint256 told, uint256 content) = abi.decode(answer, (uint256, uint256));
        assert(told == size && content == prefixSize);
    }

    function check_an_integer_without_an_end_is_taken_from_its_one_encoding_only(bytes1 first, bytes32 rest)
        external
        view
    {
        // Where the size takes two or three bytes, its own size tells where halmos reads.
        if (first == 0xb9) first = 0xb9;
        if (first == 0xba) first = 0xba;
        (bool isInteger, uint256 value, uint256 size) = _integer(uint8(first), rest, 8);
        try reader.openInteger(abi.encodePacked(first, rest)) returns (uint256 taken, uint256 next) {
            assert(_both(isInteger, _both(taken == value, next == size)));
        } catch {
            assert(!isInteger);
        }
    }

    // --- Encodings --------------------------------------------------------------------------------------------------

    /// @dev Before the content of so many bytes is the prefix of RLP, and nothing else.
    function _assertPrefix(bytes10 text, uint256 content, uint256 kind, uint256 size) private pure {
        bytes1 first = bytes1(text << (8 * content));
        (bytes10 expected, uint256 prefixSize) = _text(kind, size, first);
        assert(content == prefixSize && _agree(text, expected, prefixSize));
    }

    /// @dev The beginning of an item whose content has so many bytes, and this first one.
    function _text(uint256 kind, uint256 size, bytes1 first) private pure returns (bytes10 text, uint256 prefixSize) {
        if (kind == STRING && size == 1 && first < 0x80) return (first, 0);
        bytes9 prefix;
        (prefix, prefixSize) = _prefix(kind, size);
        text = bytes10(prefix) | bytes10(first) >> (8 * prefixSize);
    }

    /// @dev The prefix of so many bytes that aren't their own encoding (Yellow Paper, appendix B), and its size.
    function _prefix(uint256 kind, uint256 size) private pure returns (bytes9, uint256) {
        if (size < 56) return (bytes9(bytes1(uint8(kind + size))), 1);
        uint256 digits = 1;
        while (size >> 8 * digits != 0) ++digits;
        return (bytes9(bytes1(uint8(kind + 55 + digits))) | bytes9(uint72(size << 64 - 8 * digits)), 1 + digits);
    }

    function _agree(bytes10 one, bytes10 other, uint256 size) private pure returns (bool) {
        return (one ^ other) >> (80 - 8 * size) == 0;
    }

    /// @dev Returns whether these bytes begin with the RLP of an integer of at most `most` bytes, its value, and its size.
    function _integer(uint8 prefix, bytes32 rest, uint256 most)
        private
        pure
        returns (bool isInteger, uint256 value, uint256 size)
    {
        if (prefix < 0x80) return (prefix != 0, prefix, 1);
        if (prefix > 0x80 + most) return (false, 0, 0);
        uint256 digits = prefix - 0x80;
        value = digits == 0 ? 0 : uint256(rest) >> (256 - 8 * digits);
        isInteger = _either(digits == 0, _both(rest[0] != 0, _either(digits != 1, value >= 0x80)));
        size = 1 + digits;
    }
}
