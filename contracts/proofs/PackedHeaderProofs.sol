// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {PackedHeader} from "../src/PackedHeader.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Calls the reader of headers, each time with calldata of its own.
/// @dev Places count from the beginning of the header, which has no influence on how a field is read.
contract HeaderReader {
    function take(bytes calldata header, uint256 end) external pure returns (uint256, uint256, uint256) {
        uint256 start = _start(header);
        (uint256 content, uint256 size, uint256 next) = PackedHeader.take(start, start + end);
        return (content - start, size, next - start);
    }

    function takeInteger(bytes calldata header, uint256 end) external pure returns (uint256, uint256) {
        uint256 start = _start(header);
        (uint256 value, uint256 next) = PackedHeader.takeInteger(start, start + end);
        return (value, next - start);
    }

    function takeFirst(bytes calldata header, uint256 end) external pure returns (bytes32, bytes32, uint256, uint256) {
        uint256 start = _start(header);
        (bytes32 parentHash, bytes32 root, uint256 blockNumber, uint256 next) =
            PackedHeader.takeFirst(start, start + end);
        return (parentHash, root, blockNumber, next - start);
    }

    function _start(bytes calldata header) private pure returns (uint256 start) {
        assembly {
            start := header.offset
        }
    }
}

/// @title Opens the header that all its calldata is.
contract HeaderOpener {
    fallback(bytes calldata) external returns (bytes memory) {
        (uint256 cursor, uint256 end) = PackedHeader.open(0);
        return abi.encode(cursor, end);
    }
}

/// @title Fields of headers are read from their one encoding, and from no other bytes.
contract PackedHeaderProofs is Symbolic {
    HeaderReader private reader;
    HeaderOpener private opener;

    function setUp() external {
        reader = new HeaderReader();
        opener = new HeaderOpener();
    }

    /// @dev The prefix of a string depends on its size and on its first byte. Nothing but `_prefix` is taken for one, and
    /// the string is what follows, up to the header's end at the most.
    function check_a_string_is_taken_from_its_one_encoding_only(bytes32 word, uint32 end) external view {
        try reader.take(abi.encodePacked(word), end) returns (uint256 content, uint256 size, uint256 next) {
            (bytes3 prefix, uint256 prefixSize) = _prefix(size, uint8(bytes1(word << (8 * content))));
            assert(size <= type(uint16).max);
            assert(content == prefixSize);
            assert(next == content + size);
            assert(next <= end);
            assert(next != 0);
            assert(bytes3(word) >> (24 - 8 * content) == prefix >> (24 - 8 * content));
        } catch {}
    }

    function check_every_string_is_taken(uint16 size, bytes32 string_, uint32 end) external view {
        (bytes3 prefix, uint256 prefixSize) = _prefix(size, uint8(string_[0]));
        vm.assume(prefixSize + size <= end);
        bytes32 word = prefix | string_ >> (8 * prefixSize);
        bytes memory answer = _returned(address(reader), abi.encodeCall(reader.take, (abi.encodePacked(word), end)));
        (uint256 content, uint256 taken, uint256 next) = abi.decode(answer, (uint256, uint256, uint256));
        assert(content == prefixSize && taken == size && next == content + size);
    }

    function check_an_integer_is_taken_from_its_one_encoding_only(bytes9 encoded, uint32 end) external view {
        (bool isInteger, uint256 value, uint256 size) = _integer(encoded);
        try reader.takeInteger(abi.encodePacked(encoded), end) returns (uint256 taken, uint256 next) {
            assert(isInteger && next <= end);
            assert(taken == value && next == size);
        } catch {
            assert(!isInteger || size > end);
        }
    }

    /// @param prefixes Prefixes of all fields up to the bloom of logs, whose prefix has three bytes.
    function check_the_first_fields_are_taken_from_their_one_encoding_only(
        bytes9 prefixes,
        bytes32[5] memory hashes,
        bytes20 coinbase,
        uint8 difficultyPrefix,
        bytes9 number,
        uint32 end
    ) external view {
        uint256 difficultySize = 0;
        for (uint8 each = 0; each <= 32; ++each) {
            // halmos reads at places that it knows, so it is told each size.
            if (difficultyPrefix == 0x80 + each) (difficultyPrefix, difficultySize) = (0x80 + each, each);
        }
        bytes memory difficulty = svm.createBytes(difficultySize, "difficulty");
        bytes memory header = abi.encodePacked(
            abi.encodePacked(prefixes[0], hashes[0], prefixes[1], hashes[1], prefixes[2], coinbase),
            abi.encodePacked(prefixes[3], hashes[2], prefixes[4], hashes[3], prefixes[5], hashes[4]),
            abi.encodePacked(bytes3(uint24(uint72(prefixes))), svm.createBytes(256, "bloom")),
            abi.encodePacked(difficultyPrefix, difficulty, number)
        );
        (bool areRight, uint256 value, uint256 size) = _integer(number);
        size += 446 + difficultySize;
        areRight = areRight && prefixes == 0xa0a094a0a0a0b90100 && difficultyPrefix <= 0xa0 && size <= end
            && (difficultySize != 1 || difficulty[0] >= 0x80);
        try reader.takeFirst(header, end) returns (bytes32 parentHash, bytes32 root, uint256 taken, uint256 next) {
            assert(areRight);
            assert(parentHash == hashes[0] && root == hashes[2] && taken == value && next == size);
        } catch {
            assert(!areRight);
        }
    }

    /// @custom:halmos --array-lengths header={0,1,2,3,4,5,600}
    function check_a_header_ends_within_calldata(bytes memory header) external {
        (bool isOpened, bytes memory answer) = address(opener).call(header);
        uint256 size = header.length < 3 ? 0 : uint256(uint8(header[1])) << 8 | uint8(header[2]);
        assert(isOpened == (header.length >= 3 && header[0] == 0xf9 && 3 + size <= header.length));
        if (isOpened) {
            (uint256 cursor, uint256 end) = abi.decode(answer, (uint256, uint256));
            assert(cursor == 3 && end == 3 + size);
        }
    }

    /// @dev What precedes a string in RLP (Yellow Paper, appendix B), and how many bytes of it.
    function _prefix(uint256 size, uint8 first) private pure returns (bytes3, uint256) {
        if (size == 1 && first < 0x80) return (0, 0);
        if (size <= 55) return (bytes3(uint24(0x80 + size) << 16), 1);
        if (size <= 255) return (bytes3(uint24(0xb800 + size) << 8), 2);
        return (bytes3(uint24(0xb90000 + size)), 3);
    }

    /// @dev Returns whether these bytes begin with the RLP of an integer of at most 64 bits, its value, and its size.
    function _integer(bytes9 encoded) private pure returns (bool, uint256 value, uint256 size) {
        uint8 prefix = uint8(encoded[0]);
        if (prefix < 0x80) return (prefix != 0, prefix, 1);
        if (prefix > 0x88) return (false, 0, 0);
        size = prefix - 0x80;
        value = uint64(uint72(encoded)) >> (64 - 8 * size);
        return (size == 0 || (value >= 0x80 && value >> (8 * size - 8) != 0), value, 1 + size);
    }
}
