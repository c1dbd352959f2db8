// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {BranchWriter} from "./BranchWriter.sol";
import {Calldata, CalldataReader} from "./Calldata.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {NodeWriter} from "./NodeWriter.sol";
import {Stack, Subtree, SubtreeStack} from "./SubtreeStack.sol";

/// @title Rebuilds the nodes of a Merkle Patricia trie bottom-up, from leaves and sibling hashes (docs/developing/proof-format.md).
/// @notice Every function either pushes a subtree, or replaces those on top by the node above them.
/// @dev What is hashed here is the RLP of a node, built around the keys that are proven. Whoever finds a sequence of calls
/// that ends in a trusted root has therefore shown nodes of the very trie of that root.
library PackedTrie {
    using CalldataReader for Calldata;
    using SubtreeStack for Stack;

    /// @dev Root of the trie without keys: keccak256(0x80).
    bytes32 internal constant EMPTY_TRIE_ROOT = 0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421;

    /// @dev Nibbles of a key.
    uint256 internal constant NIBBLES = 64;

    // The reference to no node: an empty string.
    bytes32 private constant EMPTY = bytes32(uint256(0x80) << 248);

    // The operation that `fullBranches` runs.
    uint256 private constant FULL_BRANCH = 0x00;

    /// @dev Replaces the subtree on top by the branch of sixteen hashes that holds it. The other fifteen are in
    /// calldata. Repeats this while the next operation is the same. Such branches are the upper levels of every large
    /// trie, and most of the work.
    /// @param cursor Where the other hashes begin.
    /// @return Where the operation that follows begins.
    function fullBranches(Stack memory stack, uint256 cursor) internal pure returns (uint256) {
        unchecked {
            Subtree child = stack.peek();
            if (child.size() != 0) revert InvalidProof();
            bytes32 hash = child.ref();
            uint256 key = child.key();
            uint256 depth = child.depth();
            while (true) {
                if (depth == 0) revert InvalidProof();
                // No subtree is as deep as a word has nibbles.
                hash = BranchWriter.hashFullBranch(hash, key >> (256 - 4 * depth) & 0x0f, cursor);
                --depth;
                cursor = CalldataReader.behind(cursor, 15 * 32);
                // Behind the end of calldata are zeros.
                if (cursor == msg.data.length || CalldataRlp.number(cursor, 1) != FULL_BRANCH) break;
                ++cursor;
            }
            child.setBranch(hash, 0, depth);
            return cursor;
        }
    }

    /// @dev Replaces the topmost `count` subtrees, 1 to 16, by the branch that holds them. Its other children are in
    /// calldata, as `BranchWriter` reads them.
    /// @param cursor Where the other children begin.
    /// @return Where the operation that follows begins.
    function branch(Stack memory stack, uint256 cursor, uint256 count, bool hasNodes) internal pure returns (uint256) {
        unchecked {
            Subtree lowest = stack.fold(count);
            uint256 depth = lowest.depth();
            if (depth == 0) revert InvalidProof();
            (uint256 end, uint256 next) = BranchWriter.put(lowest, count, hasNodes, cursor);
            // A full branch belongs to `fullBranches`, so that a proof has one form only.
            if (count == 1 && end == NodeWriter.begin() + BranchWriter.FULL_LENGTH) revert InvalidProof();
            (bytes32 ref, uint256 size) = NodeWriter.finish(end);
            lowest.setBranch(ref, size, depth - 1);
            return CalldataReader.behind(cursor, next - cursor);
        }
    }

    /// @dev Replaces the branch on top by an extension of `length` nibbles that leads to it.
    function extend(Stack memory stack, uint256 length) internal pure {
        unchecked {
            Subtree child = stack.pop();
            uint256 depth = child.depth();
            if (length == 0 || length > depth) revert InvalidProof();
            // Extensions lead to branches, and to nothing else: not to a leaf, an empty place or another extension.
            if (child.reach() != 0) revert InvalidProof();
            _pushExtension(stack, child.key(), depth - length, depth, child.ref(), child.size(), 0);
        }
    }

    /// @dev Pushes the leaf of an account: the RLP list of nonce, balance, storage root and code hash, as a string.
    function pushAccount(
        Stack memory stack,
        uint256 key,
        uint256 depth,
        uint256 nonce,
        uint256 balance,
        bytes32 storageRoot,
        bytes32 codeHash
    ) internal pure {
        unchecked {
            // 68 to 132 bytes: the string and the list in it both have a prefix of two.
            uint256 nonceSize = NodeWriter.byteLength(nonce);
            uint256 balanceSize = NodeWriter.byteLength(balance);
            uint256 length =
                NodeWriter.integerSize(nonce, nonceSize) + NodeWriter.integerSize(balance, balanceSize) + 66;
            uint256 end = NodeWriter.putPath(NodeWriter.begin(), key, depth, NIBBLES, true);
            end = NodeWriter.putByte(end, 0xb8);
            end = NodeWriter.putByte(end, length + 2);
            end = NodeWriter.putByte(end, 0xf8);
            end = NodeWriter.putByte(end, length);
            end = NodeWriter.putInteger(end, nonce, nonceSize);
            end = NodeWriter.putInteger(end, balance, balanceSize);
            end = NodeWriter.putHash(end, storageRoot);
            end = NodeWriter.putHash(end, codeHash);
            (bytes32 ref, uint256 size) = NodeWriter.finish(end);
            stack.push(ref, size, key, depth, NIBBLES, 0);
        }
    }

    /// @dev Pushes the leaf of a storage slot: the RLP of its value, which isn't zero, as a string.
    function pushSlot(Stack memory stack, uint256 key, uint256 depth, uint256 value) internal pure {
        unchecked {
            if (value == 0) revert InvalidProof();
            uint256 end = NodeWriter.putPath(NodeWriter.begin(), key, depth, NIBBLES, true);
            uint256 valueSize = NodeWriter.byteLength(value);
            // A byte below 0x80 is its own encoding, also as a string in a string.
            if (value >= 0x80) end = NodeWriter.putByte(end, 0x81 + valueSize);
            end = NodeWriter.putInteger(end, value, valueSize);
            (bytes32 ref, uint256 size) = NodeWriter.finish(end);
            stack.push(ref, size, key, depth, NIBBLES, 0);
        }
    }

    /// @dev Pushes an empty place, in which `key` is absent. At depth 0 it is the empty trie.
    function pushEmpty(Stack memory stack, uint256 key, uint256 depth) internal pure {
        stack.push(EMPTY, 1, key, depth, NIBBLES, key);
    }

    /// @dev Pushes an extension that `key` doesn't follow. From calldata: its depth, how many nibbles it has, these, and
    /// the hash of the branch that it leads to.
    function pushOtherExtension(Stack memory stack, Calldata memory input, uint256 key) internal pure {
        unchecked {
            uint256 depth = input.take(1);
            uint256 reach = depth + input.take(1);
            if (reach > SubtreeStack.MAX_DEPTH) revert InvalidProof();
            uint256 other = takeOtherKey(input, key, depth, reach);
            _pushExtension(stack, other, depth, reach, input.takeHash(), 0, 0);
            attach(stack, key);
        }
    }

    /// @dev A key that is `key` down to `depth`, and goes on with nibbles from calldata, in whole bytes, down to `reach`.
    function takeOtherKey(Calldata memory input, uint256 key, uint256 depth, uint256 reach)
        internal
        pure
        returns (uint256 other)
    {
        unchecked {
            if (depth > reach || reach > NIBBLES) revert InvalidProof();
            uint256 length = reach - depth;
            uint256 path = input.take((length + 1) >> 1);
            if (length & 1 != 0 && path >> (4 * length) != 0) revert InvalidProof();
            uint256 above = 256 - 4 * depth;
            return key >> above << above | path << (256 - 4 * reach);
        }
    }

    /// @dev Proves `key` absent at the node on top: its path leads to that node, and no further. It agrees with the
    /// node's key in `depth` nibbles at least and in less than `reach`, which is where the node's own path ends: for a
    /// leaf all 64, for an extension where it leads to. For an empty place every other key will do, thus 64. At a branch
    /// nothing is absent, thus 0. Several keys come in rising order.
    function attach(Stack memory stack, uint256 key) internal pure {
        Subtree node = stack.peek();
        uint256 difference = key ^ node.key();
        if (prefix(difference, node.depth()) != 0 || prefix(difference, node.reach()) == 0) revert InvalidProof();
        if (key <= node.last()) revert InvalidProof();
        node.setLast(key);
    }

    /// @dev The root of the trie that the only subtree of the open stack is.
    function root(Stack memory stack) internal pure returns (bytes32 hash) {
        Subtree node = stack.only();
        if (node.depth() != 0) revert InvalidProof();
        uint256 size = node.size();
        hash = node.ref();
        if (size != 0) {
            if (size > 31) revert InvalidProof();
            assembly ("memory-safe") {
                mstore(0, hash)
                hash := keccak256(0, size)
            }
        }
    }

    /// @dev The first `depth` nibbles of a key, at most 64, as a number.
    function prefix(uint256 key, uint256 depth) internal pure returns (uint256) {
        unchecked {
            if (depth > NIBBLES) revert InvalidProof();
            return key >> (256 - 4 * depth);
        }
    }

    /// @dev Pushes an extension that has a key's nibbles from `depth` to `reach`, and leads to a branch.
    function _pushExtension(
        Stack memory stack,
        uint256 key,
        uint256 depth,
        uint256 reach,
        bytes32 ref,
        uint256 size,
        uint256 last
    ) private pure {
        uint256 end = NodeWriter.putPath(NodeWriter.begin(), key, depth, reach, false);
        end = NodeWriter.putReference(end, ref, size);
        (ref, size) = NodeWriter.finish(end);
        stack.push(ref, size, key, depth, reach, last);
    }
}
