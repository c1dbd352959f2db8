// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title Strict decoding of RLP (Yellow Paper, appendix B) from calldata.
/// @dev Only canonical encodings are valid: the shortest length form, a single byte below 0x80 as itself. Nothing here
/// reverts, so that a caller can say in its own error whose data was malformed.
library RLP {
    enum Kind {
        INVALID,
        STRING,
        LIST
    }

    /// @notice Decodes the item at the front of `data`.
    /// @return kind INVALID where no canonical item begins; the other values mean nothing then.
    /// @return content What is inside: the string's bytes, or the list's items in a row.
    /// @return size How many bytes of `data` the whole item takes.
    function decode(bytes calldata data) internal pure returns (Kind kind, bytes calldata content, uint256 size) {
        content = data[:0];
        if (data.length == 0) return (Kind.INVALID, content, 0);

        uint256 prefix = uint8(data[0]);
        if (prefix < 0x80) return (Kind.STRING, data[:1], 1);
        kind = prefix < 0xc0 ? Kind.STRING : Kind.LIST;

        // Strings begin at 0x80, lists at 0xc0: in both the low six bits are the length, or 55 + the length's size.
        uint256 length = prefix & 0x3f;
        uint256 start = 1;
        if (length > 55) {
            start = 1 + length - 55;
            if (data.length < start) return (Kind.INVALID, content, 0);
            length = uint256(bytes32(data[1:start])) >> (256 - 8 * (start - 1));
            if (data[1] == 0 || length < 56) return (Kind.INVALID, content, 0);
        }

        // The length has eight bytes at most: the sum can't overflow.
        size = start + length;
        if (data.length < size) return (Kind.INVALID, content, 0);
        content = data[start:size];
        if (prefix == 0x81 && uint8(content[0]) < 0x80) return (Kind.INVALID, content, 0);
    }

    /// @notice Decodes `data` as one list and nothing after it.
    function decodeList(bytes calldata data) internal pure returns (bool valid, bytes calldata items) {
        Kind kind;
        uint256 size;
        (kind, items, size) = decode(data);
        valid = kind == Kind.LIST && size == data.length;
    }

    /// @notice Takes a non-negative integer of at most 256 bits, without leading zero bytes, off the front of `data`.
    function takeInteger(bytes calldata data)
        internal
        pure
        returns (bool valid, uint256 value, bytes calldata rest)
    {
        (Kind kind, bytes calldata content, uint256 size) = decode(data);
        rest = data[size:];
        valid = kind == Kind.STRING && content.length <= 32 && (content.length == 0 || content[0] != 0);
        if (valid && content.length > 0) value = uint256(bytes32(content)) >> (256 - 8 * content.length);
    }

    /// @notice Takes a string of exactly 32 bytes off the front of `data`.
    function takeWord(bytes calldata data) internal pure returns (bool valid, bytes32 value, bytes calldata rest) {
        (Kind kind, bytes calldata content, uint256 size) = decode(data);
        rest = data[size:];
        valid = kind == Kind.STRING && content.length == 32;
        value = bytes32(content);
    }
}
