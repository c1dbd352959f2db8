// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {MemoryZones} from "../src/MemoryZones.sol";
import {NodeWriter} from "../src/NodeWriter.sol";
import {Rlp} from "./Rlp.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Calls on the writer of nodes, each in memory of its own.
/// @dev An image is what memory holds in the zone of the node, a word before it and a word behind it.
contract WriterUser {
    uint256 private constant FROM = MemoryZones.NODE - 0x20;

    function putByte(bytes calldata image, uint256 end, uint256 value) external pure returns (uint256, bytes memory) {
        _load(image);
        end = NodeWriter.putByte(end, value);
        return (end, _image(image.length));
    }

    function putBytes(bytes calldata image, uint256 end, bytes32 word, uint256 size)
        external
        pure
        returns (uint256, bytes memory)
    {
        _load(image);
        end = NodeWriter.putBytes(end, word, size);
        return (end, _image(image.length));
    }

    function putHash(bytes calldata image, uint256 end, bytes32 hash) external pure returns (uint256, bytes memory) {
        _load(image);
        end = NodeWriter.putHash(end, hash);
        return (end, _image(image.length));
    }

    function putReference(bytes calldata image, uint256 end, bytes32 ref, uint256 size)
        external
        pure
        returns (uint256, bytes memory)
    {
        _load(image);
        end = NodeWriter.putReference(end, ref, size);
        return (end, _image(image.length));
    }

    function putInteger(bytes calldata image, uint256 end, uint256 value, uint256 size)
        external
        pure
        returns (uint256, bytes memory)
    {
        _load(image);
        end = NodeWriter.putInteger(end, value, size);
        return (end, _image(image.length));
    }

    function putPath(bytes calldata image, uint256 end, uint256 key, uint256 from, uint256 to, bool isLeaf)
        external
        pure
        returns (uint256, bytes memory)
    {
        _load(image);
        end = NodeWriter.putPath(end, key, from, to, isLeaf);
        return (end, _image(image.length));
    }

    function finish(bytes calldata image, uint256 end) external pure returns (bytes32, uint256, bytes memory) {
        _load(image);
        (bytes32 ref, uint256 size) = NodeWriter.finish(end);
        return (ref, size, _image(image.length));
    }

    function byteLength(uint256 value) external pure returns (uint256) {
        return NodeWriter.byteLength(value);
    }

    function _load(bytes calldata image) private pure {
        uint256 from = FROM;
        assembly {
            calldatacopy(from, image.offset, image.length)
        }
    }

    function _image(uint256 size) private pure returns (bytes memory image) {
        uint256 from = FROM;
        assembly {
            image := sub(from, 0x20)
            mstore(image, size)
        }
    }
}

/// @title Nodes are written where the list ends, in their zone of memory and nowhere else.
contract NodeWriterProofs is Symbolic {
    uint256 private constant PAYLOAD = MemoryZones.NODE + 3;
    uint256 private constant LONGEST = 16 * 33 + 1;

    uint256 private constant FROM = MemoryZones.NODE - 0x20;
    uint256 private constant SIZE = MemoryZones.NODE_END + 0x20 - FROM;

    WriterUser private user;

    function setUp() external {
        user = new WriterUser();
    }

    function check_an_integer_has_as_many_bytes_as_it_needs(uint256 value) external view {
        uint256 size = _byteLength(value);
        assert(size <= 32);
        assert(size == 32 || value >> (8 * size) == 0);
        assert(size == 0 || value >> (8 * size - 8) != 0);
    }

    /// @dev Before the longest list or behind it, and sizes that no piece has.
    function check_pieces_outside_of_the_longest_list_are_refused(
        uint256 end,
        bytes32 word,
        uint256 size,
        uint256 from,
        uint256 to,
        bool isLeaf
    ) external view {
        bytes memory image = new bytes(SIZE);
        // At these places halmos could go on if something were written, and would find that it shouldn't have been.
        if (end == PAYLOAD - 1) end = PAYLOAD - 1;
        if (end == PAYLOAD + LONGEST - 32) end = PAYLOAD + LONGEST - 32;
        // Below the list the difference is huge.
        uint256 length;
        unchecked {
            length = end - PAYLOAD;
        }
        if (length >= LONGEST) {
            try user.putByte(image, end, uint256(word)) {
                assert(false);
            } catch {}
            try user.putInteger(image, end, uint256(word), size) {
                assert(false);
            } catch {}
            try user.putPath(image, end, uint256(word), from, to, isLeaf) {
                assert(false);
            } catch {}
        }
        if (length > LONGEST - 33) {
            try user.putHash(image, end, word) {
                assert(false);
            } catch {}
        }
        if (size > 32 || length > LONGEST - size) {
            try user.putBytes(image, end, word, size) {
                assert(false);
            } catch {}
        }
        if (size > 31 || length > LONGEST - (size == 0 ? 33 : size)) {
            try user.putReference(image, end, word, size) {
                assert(false);
            } catch {}
        }
        if (length > LONGEST) {
            try user.finish(image, end) {
                assert(false);
            } catch {}
        }
    }

    function check_a_byte_is_written_and_nothing_else(bytes32 value) external view {
        bytes memory image = svm.createBytes(SIZE, "image");
        for (uint256 i = 0; i < 3; ++i) {
            uint256 end = _place(i, 1);
            (uint256 next, bytes memory left) = _written(abi.encodeCall(user.putByte, (image, end, uint256(value))));
            assert(next == end + 1);
            _assertWritten(left, image, end, abi.encodePacked(value[31]));
        }
    }

    function check_bytes_are_written_and_nothing_else(bytes32 word, uint256 size) external view {
        vm.assume(size <= 32);
        bytes memory image = svm.createBytes(SIZE, "image");
        for (uint256 i = 0; i < 3; ++i) {
            uint256 end = _place(i, 32);
            (uint256 next, bytes memory left) = _written(abi.encodeCall(user.putBytes, (image, end, word, size)));
            assert(next == end + size);
            _assertSame(left, image, 0, end - FROM);
            _assertSame(left, image, end + 32 - FROM, SIZE);
            uint256 place = end - FROM;
            bytes32 written;
            assembly {
                written := mload(add(add(left, 0x20), place))
            }
            assert((written ^ word) >> (256 - 8 * size) == 0);
        }
    }

    function check_a_hash_is_written_and_nothing_else(bytes32 hash) external view {
        bytes memory image = svm.createBytes(SIZE, "image");
        for (uint256 i = 0; i < 3; ++i) {
            uint256 end = _place(i, 33);
            (uint256 next, bytes memory left) = _written(abi.encodeCall(user.putHash, (image, end, hash)));
            assert(next == end + 33);
            _assertWritten(left, image, end, abi.encodePacked(hex"a0", hash));
        }
    }

    /// @dev An extension or a leaf of each length, from any nibble of the key on.
    function check_a_path_is_written_and_nothing_else(uint256 key, uint256 from, bool isLeaf) external view {
        bytes memory image = svm.createBytes(SIZE, "image");
        for (uint256 length = 1; length <= 64; ++length) {
            if (from > 64 - length) break;
            uint256 nibbles = key << (4 * from) >> (256 - 4 * length);
            bytes memory path = Rlp.path(nibbles, length, isLeaf);
            (uint256 next, bytes memory left) =
                _written(abi.encodeCall(user.putPath, (image, PAYLOAD, key, from, from + length, isLeaf)));
            assert(next == PAYLOAD + path.length);
            _assertStart(left, image, path);
        }
    }

    function check_an_integer_is_written_and_nothing_else(uint256 value) external view {
        bytes memory image = svm.createBytes(SIZE, "image");
        for (uint256 size = 0; size <= 32; ++size) {
            if (_byteLength(value) != size) continue;

            bytes memory piece = new bytes(size);
            for (uint256 place = 0; place < size; ++place) {
                piece[place] = bytes1(uint8(value >> (8 * (size - 1 - place))));
            }
            if (size != 1 || value >= 0x80) piece = abi.encodePacked(uint8(0x80 + size), piece);
            (uint256 next, bytes memory left) = _written(abi.encodeCall(user.putInteger, (image, PAYLOAD, value, size)));
            assert(next == PAYLOAD + piece.length);
            _assertStart(left, image, piece);
            return;
        }
        assert(false);
    }

    function check_a_reference_is_written_and_nothing_else(bytes32 ref) external view {
        bytes memory image = svm.createBytes(SIZE, "image");
        for (uint256 size = 0; size <= 31; ++size) {
            bytes memory piece = size == 0 ? abi.encodePacked(hex"a0", ref) : new bytes(size);
            for (uint256 place = 0; place < size; ++place) {
                piece[place] = ref[place];
            }
            (uint256 next, bytes memory left) = _written(abi.encodeCall(user.putReference, (image, PAYLOAD, ref, size)));
            assert(next == PAYLOAD + piece.length);
            _assertStart(left, image, piece);
        }
    }

    /// @dev Lists of up to 63 bytes, of about 256 and of about the most.
    function check_a_list_gets_its_prefix_and_nothing_else() external view {
        bytes memory image = svm.createBytes(SIZE, "image");
        for (uint256 i = 0; i < 69; ++i) {
            uint256 length = i < 64 ? i : i < 67 ? 254 + i - 63 : LONGEST - 68 + i;
            bytes memory prefix = length < 56
                ? abi.encodePacked(uint8(0xc0 + length))
                : length < 256
                ? abi.encodePacked(hex"f8", uint8(length))
                : abi.encodePacked(hex"f9", uint16(length));
            uint256 start = PAYLOAD - prefix.length;
            bytes memory answer = _returned(address(user), abi.encodeCall(user.finish, (image, PAYLOAD + length)));
            (bytes32 ref, uint256 size, bytes memory left) = abi.decode(answer, (bytes32, uint256, bytes));
            _assertWritten(left, image, start, prefix);

            uint256 offset = start - FROM;
            bytes32 expected;
            if (prefix.length + length < 32) {
                assert(size == prefix.length + length);
                assembly {
                    expected := mload(add(add(left, 0x20), offset))
                }
                assert(ref == expected >> (256 - 8 * size) << (256 - 8 * size));
            } else {
                assert(size == 0);
                assembly {
                    expected := keccak256(add(add(left, 0x20), offset), add(mload(prefix), length))
                }
                assert(ref == expected);
            }
        }
    }

    /// @dev Where the next piece goes, and the image, after a piece that must be written.
    function _written(bytes memory call) private view returns (uint256 next, bytes memory left) {
        return abi.decode(_returned(address(user), call), (uint256, bytes));
    }

    function _byteLength(uint256 value) private view returns (uint256) {
        return abi.decode(_returned(address(user), abi.encodeCall(user.byteLength, (value))), (uint256));
    }

    /// @dev Of three places in the list, in which a piece has room: the first, one between, and the last.
    function _place(uint256 i, uint256 size) private pure returns (uint256) {
        return PAYLOAD + (i == 0 ? 0 : i == 1 ? 100 : LONGEST - size);
    }

    /// @dev Memory is the image still, but for these bytes at the start of the list, and a word behind them.
    function _assertStart(bytes memory left, bytes memory image, bytes memory piece) private pure {
        _assertWritten(left, image, PAYLOAD, piece, 32);
    }

    /// @dev Memory is the image still, but for these bytes in one place.
    function _assertWritten(bytes memory left, bytes memory image, uint256 place, bytes memory piece) private pure {
        _assertWritten(left, image, place, piece, 0);
    }

    function _assertWritten(bytes memory left, bytes memory image, uint256 place, bytes memory piece, uint256 behind)
        private
        pure
    {
        _assertSame(left, image, 0, place - FROM);
        for (uint256 i = 0; i < piece.length; ++i) {
            assert(left[place - FROM + i] == piece[i]);
        }
        _assertSame(left, image, place - FROM + piece.length + behind, SIZE);
    }

    function _assertSame(bytes memory left, bytes memory image, uint256 from, uint256 to) private pure {
        bytes32 one;
        bytes32 other;
        assembly {
            one := keccak256(add(add(left, 0x20), from), sub(to, from))
            other := keccak256(add(add(image, 0x20), from), sub(to, from))
        }
        assert(one == other);
    }
}
