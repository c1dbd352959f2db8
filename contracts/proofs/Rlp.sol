// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title Encodes nodes of tries, as the Yellow Paper says (appendices B and C), for proofs to compare with.
library Rlp {
    function list(bytes memory content) internal pure returns (bytes memory) {
        return _withPrefix(0xc0, content);
    }

    function string_(bytes memory content) internal pure returns (bytes memory) {
        return content.length == 1 && content[0] < 0x80 ? content : _withPrefix(0x80, content);
    }

    /// @dev The path of a leaf or of an extension: the last `length` nibbles of a number, 1 to 64, hex-prefixed.
    function path(uint256 nibbles, uint256 length, bool isLeaf) internal pure returns (bytes memory encoded) {
        encoded = new bytes(length / 2 + 1);
        uint256 flags = isLeaf ? 2 : 0;
        encoded[0] = length % 2 == 0
            ? bytes1(uint8(flags << 4))
            : bytes1(uint8((flags | 1) << 4 | nibbles >> (4 * length - 4) & 0x0f));
        bytes32 rest = bytes32(nibbles << (256 - 4 * (length - length % 2)));
        for (uint256 place = 1; place < encoded.length; ++place) {
            encoded[place] = rest[place - 1];
        }
        // One byte is its own encoding: it is below 0x40.
        return encoded.length == 1 ? encoded : _withPrefix(0x80, encoded);
    }

    function _withPrefix(uint256 kind, bytes memory content) private pure returns (bytes memory) {
        if (content.length < 56) return abi.encodePacked(uint8(kind + content.length), content);
        if (content.length < 256) return abi.encodePacked(uint8(kind + 0x38), uint8(content.length), content);
        return abi.encodePacked(uint8(kind + 0x39), uint16(content.length), content);
    }
}
