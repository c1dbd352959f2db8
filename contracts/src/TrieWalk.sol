// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {InvalidProof} from "./InvalidProof.sol";

/// @title Walks down a Merkle Patricia trie along plain nodes, as `eth_getProof` gives them (Yellow Paper, appendix D):
/// one of slots or accounts, whose keys are hashes, or one of receipts, whose keys are the RLP of their indexes.
/// @notice A key is absent only by an empty place of a branch, by a leaf or an extension that parts from it, or by the
/// empty trie. Every node must lie on the key's path, and what is read must be the only encoding there is.
/// @dev Places are offsets in calldata. A function that is given where its bytes end answers by no byte behind it.
library TrieWalk {
    /// @dev Root of the trie without keys: keccak256(0x80).
    bytes32 internal constant EMPTY_TRIE_ROOT = 0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421;

    /// @dev Code hash of accounts without code: keccak256 of nothing.
    bytes32 internal constant EMPTY_CODE_HASH = 0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470;

    /// @dev Nibbles of a key that is a hash.
    uint256 private constant NIBBLES = 64;

    // The first byte of a reference: to no node, by a hash, or by an embedded list of 0 to 30 bytes, whose whole is
    // shorter than a hash.
    uint256 private constant NONE = 0x80;
    uint256 private constant HASH = 0xa0;
    uint256 private constant EMBEDDED = 0xc0;
    uint256 private constant LONGEST_EMBEDDED = 0xde;

    /// @dev Bytes in a branch of sixteen hashes. The leaf of a receipt may have as many.
    uint256 private constant FULL_BRANCH = 16 * 33 + 1;

    /// @dev The value of a storage slot; zero where it is absent.
    /// @param proof The RLP list of the nodes, each as a byte string, the root first.
    function slotValue(bytes calldata proof, bytes32 root, bytes32 slot) internal pure returns (uint256 value) {
        (uint256 place, uint256 end, bool isOwn) = _find(proof, root, uint256(keccak256(abi.encode(slot))), 0);
        if (end == 0) return 0;
        (value, place) = integer(place, end, 32);
        // No trie stores a zero. The value of another key is read as strictly.
        if (place != end || value == 0) revert InvalidProof();
        if (!isOwn) value = 0;
    }

    /// @dev The four items of an account. Of an absent one: zeros, and the hashes of the empty trie and of no code.
    /// @param proof As for `slotValue`.
    function accountItems(bytes calldata proof, bytes32 root, address account)
        internal
        pure
        returns (uint256 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash)
    {
        uint256 key = uint256(keccak256(abi.encodePacked(account)));
        (uint256 place, uint256 end, bool isOwn) = _find(proof, root, key, 0);
        if (end != 0) {
            place = list(place, end);
            (nonce, place) = integer(place, end, 8);
            (balance, place) = integer(place, end, 32);
            (storageRoot, place) = _hash(place, end);
            (codeHash, place) = _hash(place, end);
            if (place != end) revert InvalidProof();
        }
        if (!isOwn) (nonce, balance, storageRoot, codeHash) = (0, 0, EMPTY_TRIE_ROOT, EMPTY_CODE_HASH);
    }

    /// @dev Where the value at an index is in a trie of receipts, as `_find` tells it. Indexes have 16 bits.
    /// @param proof As for `slotValue`. No node below the root is embedded, because a receipt has more than 32 bytes.
    function findReceipt(bytes calldata proof, bytes32 root, uint256 index)
        internal
        pure
        returns (uint256 value, uint256 end, bool isOwn)
    {
        unchecked {
            if (index > 0xffff) revert InvalidProof();
            uint256 key = index == 0 ? 0x80 : index;
            uint256 nibbles = 2;
            if (index > 0xff) (key, nibbles) = (0x820000 | index, 6);
            else if (index > 0x7f) (key, nibbles) = (0x8100 | index, 4);
            return _find(proof, root, key, NIBBLES - nibbles);
        }
    }

    /// @dev Follows a key to a leaf: where the leaf's value begins and ends, and whether it is the key's own. If not,
    /// it shows the key absent. So does a walk that comes to no leaf: then `end` is zero.
    /// @param start The number of zeros before the nibbles of the key of a receipt, which take the word's end; zero for a
    /// key that is a hash.
    function _find(bytes calldata proof, bytes32 expected, uint256 key, uint256 start)
        private
        pure
        returns (uint256 value, uint256 end, bool isOwn)
    {
        unchecked {
            uint256 cursor;
            uint256 last;
            assembly ("memory-safe") {
                cursor := proof.offset
                last := add(cursor, proof.length)
            }
            cursor = list(cursor, last);
            if (expected == EMPTY_TRIE_ROOT) {
                // Geth, Besu and Erigon give no node of an empty trie; alloy (anvil, older reth) gives its root: 0x80.
                if (cursor != last && (last - cursor != 2 || number(cursor, 2) != 0x8180)) revert InvalidProof();
                return (0, 0, false);
            }
            uint256 depth = start;
            uint256 node;
            uint256 kind = HASH;
            while (true) {
                if (kind == HASH) {
                    bool isList;
                    (node, cursor, isList) = item(cursor, last);
                    if (isList || _digest(node, cursor) != expected) revert InvalidProof();
                    // A shorter node is embedded in its parent. The root has none.
                    if (cursor - node < 32 && depth != 0) revert InvalidProof();
                    end = cursor;
                } else {
                    end = node + kind - EMBEDDED + 1;
                }
                uint256 first = list(node, end);
                if (end - first == FULL_BRANCH) {
                    if (_isFullBranch(first)) {
                        if (depth == NIBBLES) revert InvalidProof();
                        node = first + 33 * (key << (4 * depth) >> 252);
                        expected = bytes32(number(node + 1, 32));
                        ++depth;
                        continue;
                    }
                }
                (uint256 path, uint256 second, bool pathIsList) = item(first, end);
                (uint256 content, uint256 next, bool contentIsList) = item(second, end);
                if (next != end) {
                    if (depth == NIBBLES) revert InvalidProof();
                    (node, kind) = _child(first, end, key << (4 * depth) >> 252, start);
                    ++depth;
                    isOwn = kind != NONE;
                } else {
                    (uint256 nibbles, uint256 length, bool isLeaf) = _path(path, second, pathIsList);
                    isOwn = nibbles == key << (4 * depth) >> (256 - 4 * length);
                    depth += length;
                    if (isLeaf) {
                        if (start != 0) {
                            nibbles |= key >> (256 - 4 * (depth - length)) << (4 * length);
                            _checkKey(nibbles, depth - start);
                        } else if (depth != NIBBLES) {
                            revert InvalidProof();
                        }
                        // The value is a string, not empty. Nothing comes after it, neither here nor in the proof.
                        if (contentIsList || content == end) revert InvalidProof();
                        if (cursor != last) revert InvalidProof();
                        return (content, end, isOwn);
                    }
                    // An extension leads on, to a node that follows a nibble at least.
                    if (length == 0 || depth >= NIBBLES) revert InvalidProof();
                    node = second;
                    kind = number(node, 1);
                    if (kind != HASH) {
                        if (start != 0) revert InvalidProof();
                        _passEmbedded(node, kind);
                    }
                }
                if (!isOwn) {
                    if (cursor != last) revert InvalidProof();
                    return (0, 0, false);
                }
                expected = bytes32(number(node + 1, 32));
            }
        }
    }

    /// @dev Checks that a key is that of a receipt. None of these begins with another, so that two that agree as far as
    /// both reach are the same.
    function _checkKey(uint256 key, uint256 nibbles) private pure {
        unchecked {
            bool isKey = nibbles == 2
                ? key - 1 < 0x80
                : nibbles == 4 ? key - 0x8180 < 0x80 : nibbles == 6 && key - 0x820100 < 0xff00;
            if (!isKey) revert InvalidProof();
        }
    }

    /// @dev Where a child's reference is in a branch, and the reference's first byte. Reads all of the branch: sixteen
    /// references, and no value, because no key begins with another.
    function _child(uint256 place, uint256 end, uint256 index, uint256 start)
        private
        pure
        returns (uint256 child, uint256 kind)
    {
        unchecked {
            for (uint256 nibble = 0; nibble < 16; ++nibble) {
                uint256 first = number(place, 1);
                if (nibble == index) (child, kind) = (place, first);
                if (first == HASH) place += 33;
                else if (first == NONE) ++place;
                else {
                    if (start != 0) revert InvalidProof();
                    place = _passEmbedded(place, first);
                }
            }
            // Places only rise, so none of those that were read lies behind the end.
            if (place + 1 != end || number(place, 1) != NONE) revert InvalidProof();
        }
    }

    /// @dev Whether a node of FULL_BRANCH bytes is a branch of sixteen hashes and no value. The upper levels of large
    /// tries are such branches. Any other node is read as those of other sizes are.
    function _isFullBranch(uint256 place) private pure returns (bool isFull) {
        assembly ("memory-safe") {
            // No memory is touched. Only the first bytes of the words are looked at, at last.
            let hash := shl(248, HASH)
            let difference := 0
            for { let end := add(place, sub(FULL_BRANCH, 1)) } lt(place, end) { place := add(place, 132) } {
                let one := or(xor(hash, calldataload(place)), xor(hash, calldataload(add(place, 33))))
                let other := or(xor(hash, calldataload(add(place, 66))), xor(hash, calldataload(add(place, 99))))
                difference := or(difference, or(one, other))
            }
            isFull := iszero(or(byte(0, difference), xor(byte(0, calldataload(place)), NONE)))
        }
    }

    /// @dev Where a node ends that is embedded in its parent, and begins with the byte `first`. It is RLP all through.
    function _passEmbedded(uint256 place, uint256 first) private pure returns (uint256 end) {
        unchecked {
            if (first < EMBEDDED || first > LONGEST_EMBEDDED) revert InvalidProof();
            end = place + first - EMBEDDED + 1;
            _checkItems(place + 1, end);
        }
    }

    /// @dev Checks that all bytes of a list, and of lists in it, are items of RLP.
    function _checkItems(uint256 place, uint256 end) private pure {
        while (place != end) {
            (uint256 content, uint256 next, bool isList) = item(place, end);
            if (isList) _checkItems(content, next);
            place = next;
        }
    }

    /// @dev The nibbles of a hex-prefixed path (Yellow Paper, appendix C), their number, and whether it is a leaf's.
    /// More than 64 don't fit into a word: the caller refuses them by their number.
    function _path(uint256 place, uint256 end, bool isList)
        private
        pure
        returns (uint256 nibbles, uint256 length, bool isLeaf)
    {
        unchecked {
            uint256 flags = number(place, 1);
            isLeaf = flags & 0x20 != 0;
            bool isOdd = flags & 0x10 != 0;
            if (isList || place == end || flags > 0x3f || (!isOdd && flags & 0x0f != 0)) revert InvalidProof();
            length = 2 * (end - place - 1);
            nibbles = number(place + 1, end - place - 1);
            if (isOdd) {
                nibbles |= (flags & 0x0f) << (4 * length);
                ++length;
            }
        }
    }

    /// @dev The list that takes all bytes from a place to the end: where its first item begins.
    function list(uint256 place, uint256 end) internal pure returns (uint256 content) {
        uint256 next;
        bool isList;
        (content, next, isList) = item(place, end);
        if (!isList || next != end) revert InvalidProof();
    }

    /// @dev A string of `size` bytes at most that is a number without leading zeros, and where the next item begins.
    function integer(uint256 place, uint256 end, uint256 size) internal pure returns (uint256 value, uint256 next) {
        unchecked {
            bool isList;
            (place, next, isList) = item(place, end);
            if (isList || next - place > size) revert InvalidProof();
            value = number(place, next - place);
            if (next != place && value >> (8 * (next - place) - 8) == 0) revert InvalidProof();
        }
    }

    /// @dev A string of 32 bytes, and where the next item begins.
    function _hash(uint256 place, uint256 end) private pure returns (bytes32 value, uint256 next) {
        unchecked {
            bool isList;
            (place, next, isList) = item(place, end);
            if (isList || next - place != 32) revert InvalidProof();
            value = bytes32(number(place, 32));
        }
    }

    /// @dev The item of RLP at a place (Yellow Paper, appendix B): where its content begins, where the next item does,
    /// not behind `end`, and whether it is a list. A byte below 0x80 is its own content.
    function item(uint256 place, uint256 end) internal pure returns (uint256 content, uint256 next, bool isList) {
        unchecked {
            if (place >= end) revert InvalidProof();
            uint256 prefix = number(place, 1);
            if (prefix < 0x80) return (place, place + 1, false);
            isList = prefix >= 0xc0;
            uint256 size = prefix - (isList ? 0xc0 : 0x80);
            content = place + 1;
            if (size > 55) {
                // The size of the size, 1 to 8. Both have one form only.
                uint256 length = size - 55;
                size = number(content, length);
                if (size < 56 || number(content, 1) == 0) revert InvalidProof();
                content += length;
            } else if (prefix == 0x81 && number(content, 1) < 0x80) {
                revert InvalidProof();
            }
            // No sum overflows: a size takes 64 bits. A size that was read behind the end fails, too.
            next = content + size;
            if (next > end) revert InvalidProof();
        }
    }

    /// @dev keccak256 of calldata.
    function _digest(uint256 start, uint256 end) private pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            // Memory that isn't allocated may be used for a moment.
            let free := mload(0x40)
            calldatacopy(free, start, sub(end, start))
            digest := keccak256(free, sub(end, start))
        }
    }

    /// @dev The big-endian number in `size` bytes of calldata, at most 32; zero for none, and for more.
    function number(uint256 place, uint256 size) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := shr(sub(256, shl(3, size)), calldataload(place))
        }
    }
}
