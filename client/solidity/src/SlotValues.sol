// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {CalldataRlp} from "./CalldataRlp.sol";
import {InvalidProof} from "./InvalidProof.sol";
import {TrieWalk} from "./TrieWalk.sol";

/// @title Reads several slots under one storage root from one proof, in which each node is once.
/// @notice The values are as true as the root: take that from a fact, never from whoever brings the proof.
library SlotValues {
    /// @dev Nodes that were read: the hash of each, where it begins, and where it ends, in a table by the lowest bits of the
    /// hash.
    struct Nodes {
        uint256 cursor;
        uint256 last;
        uint256 mask;
        uint256[] table;
    }

    uint256 private constant WORDS = 3;

    /// @dev The value of each slot; zero where it is absent.
    /// @param proof The RLP list of the nodes of each slot's proof, slot after slot, each as a byte string, the root first. A
    /// node that is in an earlier slot's proof is left out, and so is a node of less than 32 bytes but the root, because it
    /// is in the node above.
    function slotValues(bytes calldata proof, bytes32 root, bytes32[] memory slots)
        internal
        pure
        returns (uint256[] memory values)
    {
        values = new uint256[](slots.length);
        Nodes memory nodes;
        (nodes.cursor, nodes.last) = TrieWalk.listed(proof);
        if (root == TrieWalk.EMPTY_TRIE_ROOT) {
            // Some nodes show the root of the empty trie, 0x80.
            uint256 size = nodes.last - nodes.cursor;
            if (size != 0 && (size != 2 || CalldataRlp.number(nodes.cursor, 2) != 0x8180)) revert InvalidProof();
            return values;
        }
        // At least half of the places stay empty, so that a search ends.
        uint256 places = 2;
        for (uint256 count = _count(nodes.cursor, nodes.last); places < 2 * count; places *= 2) {}
        nodes.mask = places - 1;
        nodes.table = new uint256[](WORDS * places);
        for (uint256 index = 0; index < slots.length; ++index) {
            values[index] = _value(nodes, root, uint256(keccak256(abi.encode(slots[index]))));
        }
        // Every node lies on the way to a slot.
        if (nodes.cursor != nodes.last) revert InvalidProof();
    }

    /// @dev The value of a key, as `TrieWalk.slotValue` reads it.
    function _value(Nodes memory nodes, bytes32 root, uint256 key) private pure returns (uint256 word) {
        unchecked {
            uint256 depth = 0;
            uint256 kind = TrieWalk.HASH;
            uint256 place;
            uint256 end;
            while (true) {
                if (kind == TrieWalk.HASH) {
                    (place, end) = _node(nodes, root);
                    // A shorter node is embedded in its parent. The root has none.
                    if (end - place < 32 && depth != 0) revert InvalidProof();
                } else {
                    end = place + kind - TrieWalk.EMBEDDED + 1;
                }
                place = CalldataRlp.list(place, end);
                if (end - place == TrieWalk.FULL_BRANCH && TrieWalk.isFullBranch(place)) {
                    if (depth == TrieWalk.NIBBLES) revert InvalidProof();
                    place += 33 * (key << (4 * depth) >> 252);
                    ++depth;
                } else {
                    (place, depth, kind) = TrieWalk.pass(place, end, key, depth, TrieWalk.NIBBLES);
                    if (kind < TrieWalk.HASH) break;
                }
                root = bytes32(CalldataRlp.number(place + 1, 32));
            }
            if (kind == TrieWalk.NONE) return 0;
            (word, place) = CalldataRlp.integer(place, end, 32);
            // No trie stores a zero. The value of another key is read as strictly.
            if (place != end || word == 0) revert InvalidProof();
            if (kind != TrieWalk.OWN_VALUE) word = 0;
        }
    }

    /// @dev The node of a hash: one that an earlier slot has read, else the next one of the proof.
    function _node(Nodes memory nodes, bytes32 hash) private pure returns (uint256 place, uint256 end) {
        unchecked {
            uint256[] memory table = nodes.table;
            uint256 index = WORDS * (uint256(hash) & nodes.mask);
            while (table[index + 2] != 0) {
                if (table[index] == uint256(hash)) return (table[index + 1], table[index + 2]);
                index = (index + WORDS) % table.length;
            }
            (place, end) = TrieWalk.takeNode(nodes.cursor, nodes.last, hash);
            (table[index], table[index + 1], table[index + 2]) = (uint256(hash), place, end);
            nodes.cursor = end;
        }
    }

    /// @dev The number of items of a list.
    function _count(uint256 place, uint256 end) private pure returns (uint256 count) {
        while (place != end) {
            (, place,) = CalldataRlp.item(place, end);
            ++count;
        }
    }
}
