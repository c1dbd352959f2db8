// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {RLP} from "./RLP.sol";

/// @title Verifies inclusion and exclusion in a Merkle Patricia trie whose keys are 32 bytes (Yellow Paper, appendix D):
/// the tries of accounts and of storage slots, whose keys are hashes.
library MerklePatriciaProof {
    /// @notice Root of the trie without keys: keccak256(0x80).
    bytes32 internal constant EMPTY_TRIE_ROOT = 0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421;

    /// @dev A key of 32 bytes, in nibbles. All keys are equally long, so no branch holds a value of its own.
    uint256 private constant KEY_NIBBLES = 64;

    /// @notice Follows `key` from `root` through `nodes`.
    /// @dev The proof of a key that isn't there ends where its path does: at an empty place of a branch, or at a leaf or
    /// an extension that another path leads to.
    /// @param nodes RLP of the nodes on the path, from the root down, as `eth_getProof` answers. A node of less than 32
    /// bytes is inside its parent and has no entry. A trie without keys has no node, or the empty one (servers differ).
    /// @return valid Whether `nodes` prove what the trie holds at `key`: none missing, none left over.
    /// @return value What it holds, never empty; empty when the key is proven not to be there.
    function verify(bytes32 root, bytes32 key, bytes[] calldata nodes)
        internal
        pure
        returns (bool valid, bytes calldata value)
    {
        bytes calldata none = msg.data[:0];
        value = none;
        if (nodes.length == 0) return (root == EMPTY_TRIE_ROOT, none);
        if (keccak256(nodes[0]) != root) return (false, none);
        if (root == EMPTY_TRIE_ROOT) return (nodes.length == 1, none);

        bytes calldata node = nodes[0];
        uint256 used = 1;
        uint256 depth = 0; // nibbles of the key behind us
        while (true) {
            (bool isList, bytes calldata items) = RLP.decodeList(node);
            if (!isList) return (false, none);
            (RLP.Kind firstKind, bytes calldata first, uint256 size) = RLP.decode(items);
            bytes calldata rest = items[size:];
            (RLP.Kind secondKind, bytes calldata second, uint256 secondSize) = RLP.decode(rest);
            if (firstKind == RLP.Kind.INVALID || secondKind == RLP.Kind.INVALID) return (false, none);

            bytes calldata child;
            if (secondSize == rest.length) {
                if (firstKind != RLP.Kind.STRING) return (false, none);
                (Path path, uint256 length, bool followed) = _comparePath(first, key, depth);
                depth += length;
                if (path == Path.LEAF) {
                    valid = depth == KEY_NIBBLES && secondKind == RLP.Kind.STRING && second.length > 0
                        && used == nodes.length;
                    return (valid, valid && followed ? second : none);
                }
                if (path == Path.INVALID || length == 0 || depth >= KEY_NIBBLES) return (false, none);
                if (rest.length == 1 || rest.length != _referenceSize(_byteAt(rest, 0))) return (false, none);
                if (!followed) return (used == nodes.length, none);
                child = rest;
            } else {
                if (depth == KEY_NIBBLES) return (false, none);
                bool isBranch;
                (isBranch, child) = _child(items, _nibble(key, depth));
                if (!isBranch) return (false, none);
                if (child.length == 1) return (used == nodes.length, none);
                depth += 1;
            }

            if (child.length == 33) {
                if (used == nodes.length) return (false, none);
                node = nodes[used++];
                if (node.length < 32 || keccak256(node) != bytes32(child[1:])) return (false, none);
            } else {
                node = child;
            }
        }
    }

    enum Path {
        INVALID,
        EXTENSION,
        LEAF
    }

    /// @dev Decodes a hex-prefix path (Yellow Paper, appendix C) and compares it with the key from nibble `depth` on.
    /// @return path INVALID also where the path is longer than what is left of the key.
    /// @return length In nibbles.
    /// @return followed Whether the key goes along the whole path.
    function _comparePath(bytes calldata encoded, bytes32 key, uint256 depth)
        private
        pure
        returns (Path path, uint256 length, bool followed)
    {
        if (encoded.length == 0) return (Path.INVALID, 0, false);
        uint256 flags = uint8(encoded[0]) >> 4;
        uint256 firstNibble = uint8(encoded[0]) & 0x0f;
        bool odd = flags & 1 == 1;
        if (flags > 3 || (!odd && firstNibble != 0)) return (Path.INVALID, 0, false);

        length = 2 * (encoded.length - 1) + (odd ? 1 : 0);
        if (depth + length > KEY_NIBBLES) return (Path.INVALID, 0, false);

        uint256 nibbles = uint256(bytes32(encoded[1:]));
        if (odd) nibbles = (firstNibble << 252) | (nibbles >> 4);
        // A shift by 256, of a path without nibbles, leaves zero: every key goes along.
        followed = (nibbles ^ (uint256(key) << (4 * depth))) >> (256 - 4 * length) == 0;
        path = flags < 2 ? Path.EXTENSION : Path.LEAF;
    }

    /// @dev Takes one child out of a branch: sixteen references and an empty value, and nothing after them.
    function _child(bytes calldata items, uint256 place) private pure returns (bool isBranch, bytes calldata child) {
        uint256 end = 0;
        uint256 childStart = 0;
        uint256 childEnd = 0;
        // Sixteen times 33 at most: nothing can overflow, and the loop is most of a proof's work.
        unchecked {
            for (uint256 i = 0; i < 16; ++i) {
                uint256 size = _referenceSize(_byteAt(items, end));
                if (size == 0) return (false, items);
                if (i == place) (childStart, childEnd) = (end, end + size);
                end += size;
            }
        }
        // Only here is it known that no reference reached beyond the items.
        isBranch = end + 1 == items.length && _byteAt(items, end) == 0x80;
        child = isBranch ? items[childStart:childEnd] : items;
    }

    /// @dev One byte, without a check of bounds: what lies behind `data` in the calldata, or zero behind its end.
    function _byteAt(bytes calldata data, uint256 index) private pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := byte(0, calldataload(add(data.offset, index)))
        }
    }

    /// @dev How long a reference to a node is, by its first byte: nothing (the empty string), a hash (a string of 32
    /// bytes), or the node itself where that takes less than 32 bytes (a list). Zero: not a reference.
    function _referenceSize(uint256 prefix) private pure returns (uint256) {
        if (prefix == 0xa0) return 33;
        if (prefix == 0x80) return 1;
        return prefix > 0xc0 && prefix < 0xdf ? prefix - 0xbf : 0;
    }

    function _nibble(bytes32 key, uint256 index) private pure returns (uint256) {
        return (uint256(key) >> (252 - 4 * index)) & 0x0f;
    }
}
