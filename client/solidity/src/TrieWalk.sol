// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {CalldataRlp} from "./CalldataRlp.sol";
import {InvalidProof} from "./InvalidProof.sol";

/// @title Walks down a Merkle Patricia trie along plain nodes, as `eth_getProof` gives them (Yellow Paper, appendix D):
/// one of slots or accounts, whose keys are hashes, or one of receipts, whose keys are the RLP of their indexes.
/// @notice A key is absent only by an empty place of a branch, by a leaf or an extension that parts from it, or by the
/// empty trie. Every node must lie on the key's path, and what is read must be the only encoding there is.
/// A value is as true as the root: take that from a fact, never from whoever brings the proof.
/// @dev Places are offsets in calldata. Keys begin with the highest nibble of a word, as in `PackedTrie`.
library TrieWalk {
    /// @dev Root of the trie without keys: keccak256(0x80).
    bytes32 internal constant EMPTY_TRIE_ROOT = 0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421;

    /// @dev Code hash of accounts without code: keccak256 of nothing.
    bytes32 internal constant EMPTY_CODE_HASH = 0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470;

    /// @dev Nibbles of a key that is a hash.
    uint256 internal constant NIBBLES = 64;

    // The first byte of a reference: to no node, by a hash, or by an embedded list of 0 to 30 bytes, whose whole is
    // shorter than a hash.
    uint256 internal constant NONE = 0x80;
    uint256 internal constant HASH = 0xa0;
    uint256 internal constant EMBEDDED = 0xc0;
    uint256 private constant LONGEST_EMBEDDED = 0xde;

    // Where a leaf's value is, there is no reference: it is the key's own value, or another key's.
    uint256 internal constant OWN_VALUE = 1;
    uint256 private constant OTHER_VALUE = 0;

    /// @dev Bytes in a branch of sixteen hashes. The leaf of a receipt may have as many.
    uint256 internal constant FULL_BRANCH = 16 * 33 + 1;

    /// @dev The value of a storage slot; zero where it is absent. For `mapping(address => uint256)` in slot 0 the slot of
    /// an account is `keccak256(abi.encode(account, 0))`.
    /// @param proof The RLP list of the nodes, each as a byte string, the root first. Of a trie of one leaf, `e3…`, that is
    /// one string in a list: `e5 a4 e3…`.
    function slotValue(bytes calldata proof, bytes32 root, bytes32 slot) internal pure returns (uint256 word) {
        (uint256 place, uint256 end, bool isOwn) = _find(proof, root, uint256(keccak256(abi.encode(slot))), NIBBLES);
        if (end == 0) return 0;
        (word, place) = CalldataRlp.integer(place, end, 32);
        // No trie stores a zero. The value of another key is read as strictly.
        if (place != end || word == 0) revert InvalidProof();
        if (!isOwn) word = 0;
    }

    /// @dev The four items of an account. Of an absent one: zeros, and the hashes of the empty trie and of no code.
    /// @param proof As for `slotValue`: the `accountProof` of `eth_getProof` in a list.
    function accountItems(bytes calldata proof, bytes32 root, address owner)
        internal
        pure
        returns (uint256 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash)
    {
        uint256 key = uint256(keccak256(abi.encodePacked(owner)));
        (uint256 place, uint256 end, bool isOwn) = _find(proof, root, key, NIBBLES);
        if (end != 0) {
            place = CalldataRlp.list(place, end);
            (nonce, place) = CalldataRlp.integer(place, end, 8);
            (balance, place) = CalldataRlp.integer(place, end, 32);
            (storageRoot, place) = CalldataRlp.word(place, end);
            (codeHash, place) = CalldataRlp.word(place, end);
            if (place != end) revert InvalidProof();
        }
        if (!isOwn) (nonce, balance, storageRoot, codeHash) = (0, 0, EMPTY_TRIE_ROOT, EMPTY_CODE_HASH);
    }

    /// @dev As `accountItems`, and whether the account exists.
    function account(bytes calldata proof, bytes32 root, address owner)
        internal
        pure
        returns (bool exists, uint256 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash)
    {
        uint256 place;
        uint256 end;
        (place, end, exists) = _find(proof, root, uint256(keccak256(abi.encodePacked(owner))), NIBBLES);
        (nonce, balance, storageRoot, codeHash) = _account(place, end, exists);
    }

    /// @dev Where the value of any key that is a hash begins and ends, and whether there is one. If not, all is zero. The
    /// value isn't read: it is a string of one byte at least.
    function value(bytes calldata proof, bytes32 root, bytes32 hashedKey)
        internal
        pure
        returns (bool exists, uint256 place, uint256 end)
    {
        (place, end, exists) = _find(proof, root, uint256(hashedKey), NIBBLES);
        if (!exists) (place, end) = (0, 0);
    }

    // --- The same, where a node's answer is given as it is: an array of nodes, the root first ---------------------------
    //
    // Anvil and reth list the nodes again that are embedded in the one above, which other nodes leave out. So nodes of less
    // than 32 bytes are skipped, except the root.

    function slotValue(bytes[] calldata nodes, bytes32 root, bytes32 slot) internal pure returns (uint256 word) {
        (uint256 place, uint256 end, bool isOwn) = _find(nodes, root, uint256(keccak256(abi.encode(slot))));
        if (end == 0) return 0;
        (word, place) = CalldataRlp.integer(place, end, 32);
        if (place != end || word == 0) revert InvalidProof();
        if (!isOwn) word = 0;
    }

    function accountItems(bytes[] calldata nodes, bytes32 root, address owner)
        internal
        pure
        returns (uint256 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash)
    {
        (, nonce, balance, storageRoot, codeHash) = account(nodes, root, owner);
    }

    function account(bytes[] calldata nodes, bytes32 root, address owner)
        internal
        pure
        returns (bool exists, uint256 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash)
    {
        uint256 place;
        uint256 end;
        (place, end, exists) = _find(nodes, root, uint256(keccak256(abi.encodePacked(owner))));
        (nonce, balance, storageRoot, codeHash) = _account(place, end, exists);
    }

    function value(bytes[] calldata nodes, bytes32 root, bytes32 hashedKey)
        internal
        pure
        returns (bool exists, uint256 place, uint256 end)
    {
        (place, end, exists) = _find(nodes, root, uint256(hashedKey));
        if (!exists) (place, end) = (0, 0);
    }

    // --- Keys of receipts ---------------------------------------------------------------------------------------------

    /// @dev Where the value at an index begins and ends in a trie of receipts, or one with such keys, as that of withdrawals
    /// is; and whether it is the index's own. If not, it shows the index absent. So does a walk that comes to no leaf: then
    /// `end` is zero. Indexes have 16 bits.
    /// @param proof As for `slotValue`. No node below the root is embedded, because a receipt has more than 32 bytes.
    function findPlace(bytes calldata proof, bytes32 root, uint256 index)
        internal
        pure
        returns (uint256 place, uint256 end, bool isOwn)
    {
        if (index > 0xffff) revert InvalidProof();
        (uint256 key, uint256 reach) = indexKey(index);
        return _find(proof, root, key, reach);
    }

    /// @dev The key of an index of 16 bits: its RLP, as the highest nibbles of a word, and how many these are. No such key
    /// begins with another. Index 0 has the key 80, 5 has 05, 200 has 81c8, and 300 has 82012c.
    function indexKey(uint256 index) internal pure returns (uint256 key, uint256 reach) {
        if (index == 0) return (0x80 << 248, 2);
        if (index < 0x80) return (index << 248, 2);
        if (index < 0x100) return (0x81 << 248 | index << 240, 4);
        return (0x82 << 248 | index << 232, 6);
    }

    // --- The walk -----------------------------------------------------------------------------------------------------

    /// @dev Follows a key to a leaf, as `findPlace` tells it.
    /// @param reach The nibbles of the key: NIBBLES of one that is a hash, and fewer of a receipt's.
    function _find(bytes calldata proof, bytes32 root, uint256 key, uint256 reach)
        private
        pure
        returns (uint256 place, uint256 end, bool isOwn)
    {
        unchecked {
            (uint256 cursor, uint256 last) = listed(proof);
            if (root == EMPTY_TRIE_ROOT) {
                // Geth, Besu and Erigon give no node of an empty trie; alloy (anvil, older reth) gives its root: 0x80.
                if (cursor != last && (last - cursor != 2 || CalldataRlp.number(cursor, 2) != 0x8180)) {
                    revert InvalidProof();
                }
                return (0, 0, false);
            }
            uint256 depth = 0;
            uint256 kind = HASH;
            while (true) {
                if (kind == HASH) {
                    (place, cursor) = takeNode(cursor, last, root);
                    end = cursor;
                    // A shorter node is embedded in its parent. The root has none, and in a trie of receipts no node is short.
                    if (end - place < 32 && (depth != 0 || reach != NIBBLES)) revert InvalidProof();
                } else {
                    end = place + kind - EMBEDDED + 1;
                }
                place = CalldataRlp.list(place, end);
                if (end - place == FULL_BRANCH && isFullBranch(place)) {
                    if (depth == reach) revert InvalidProof();
                    place += 33 * (key << (4 * depth) >> 252);
                    ++depth;
                } else {
                    (place, depth, kind) = pass(place, end, key, depth, reach);
                    if (kind < HASH) break;
                }
                root = bytes32(CalldataRlp.number(place + 1, 32));
            }
            // No node comes after the last one.
            if (cursor != last) revert InvalidProof();
            if (kind == NONE) return (0, 0, false);
            isOwn = kind == OWN_VALUE;
        }
    }

    /// @dev As the other form, of a key that is a hash. Only where the next node comes from differs. (One loop for both would
    /// change the compiled code of `FactsReader`, at whose address facts are read.)
    function _find(bytes[] calldata nodes, bytes32 root, uint256 key)
        private
        pure
        returns (uint256 place, uint256 end, bool isOwn)
    {
        unchecked {
            uint256 next = 0;
            if (root == EMPTY_TRIE_ROOT) {
                if (nodes.length != 0) {
                    (place, end) = _node(nodes, 0);
                    bool isEmptyRoot = end - place == 1 && CalldataRlp.number(place, 1) == 0x80;
                    if (!isEmptyRoot || nodes.length != 1) revert InvalidProof();
                }
                return (0, 0, false);
            }
            uint256 depth = 0;
            uint256 kind = HASH;
            while (true) {
                if (kind == HASH) {
                    (place, end) = _node(nodes, next);
                    if (_digest(place, end) != root) revert InvalidProof();
                    next = _skipEmbedded(nodes, next + 1);
                } else {
                    end = place + kind - EMBEDDED + 1;
                }
                place = CalldataRlp.list(place, end);
                if (end - place == FULL_BRANCH && isFullBranch(place)) {
                    if (depth == NIBBLES) revert InvalidProof();
                    place += 33 * (key << (4 * depth) >> 252);
                    ++depth;
                } else {
                    (place, depth, kind) = pass(place, end, key, depth, NIBBLES);
                    if (kind < HASH) break;
                }
                root = bytes32(CalldataRlp.number(place + 1, 32));
            }
            if (next != nodes.length) revert InvalidProof();
            if (kind == NONE) return (0, 0, false);
            isOwn = kind == OWN_VALUE;
        }
    }

    /// @dev The first place, from one on, of a node that isn't embedded in another one.
    function _skipEmbedded(bytes[] calldata nodes, uint256 next) private pure returns (uint256) {
        unchecked {
            for (; next < nodes.length; ++next) {
                (uint256 place, uint256 end) = _node(nodes, next);
                if (end - place >= 32) break;
            }
            return next;
        }
    }

    /// @dev Where a node of an array begins and ends. What Solidity's own access refuses reverts with InvalidProof, too.
    function _node(bytes[] calldata nodes, uint256 index) private pure returns (uint256 place, uint256 end) {
        unchecked {
            if (index >= nodes.length) revert InvalidProof();
            assembly ("memory-safe") {
                place := nodes.offset
            }
            // Offsets count from the first one. None of the sums overflows.
            uint256 offset = CalldataRlp.number(place + 32 * index, 32);
            if (offset > msg.data.length) revert InvalidProof();
            place += offset + 32;
            uint256 size = CalldataRlp.number(place - 32, 32);
            end = place + size;
            if (size > msg.data.length || end > msg.data.length) revert InvalidProof();
        }
    }

    /// @dev Reads what the walk has found of an account. `accountItems` of one list has the same lines, for the same reason
    /// as the loop.
    function _account(uint256 place, uint256 end, bool exists)
        private
        pure
        returns (uint256 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash)
    {
        if (end != 0) {
            place = CalldataRlp.list(place, end);
            (nonce, place) = CalldataRlp.integer(place, end, 8);
            (balance, place) = CalldataRlp.integer(place, end, 32);
            (storageRoot, place) = CalldataRlp.word(place, end);
            (codeHash, place) = CalldataRlp.word(place, end);
            if (place != end) revert InvalidProof();
        }
        if (!exists) (nonce, balance, storageRoot, codeHash) = (0, 0, EMPTY_TRIE_ROOT, EMPTY_CODE_HASH);
    }

    /// @dev Where the first node of a proof is, and where the proof ends.
    function listed(bytes calldata proof) internal pure returns (uint256 cursor, uint256 last) {
        assembly ("memory-safe") {
            cursor := proof.offset
            last := add(cursor, proof.length)
        }
        cursor = CalldataRlp.list(cursor, last);
    }

    /// @dev The next node of a proof, whose hash must be the expected one: where it begins, and where it ends.
    function takeNode(uint256 cursor, uint256 last, bytes32 expected)
        internal
        pure
        returns (uint256 node, uint256 end)
    {
        bool isList;
        (node, end, isList) = CalldataRlp.item(cursor, last);
        if (isList || _digest(node, end) != expected) revert InvalidProof();
    }

    /// @dev Passes a node on the way of a key, from its first item on.
    /// @return place Where the reference to the next node is, or a leaf's value, which goes to the end of the leaf.
    /// @return reached The depth of that.
    /// @return kind What is there: the first byte of a reference, NONE where the way ends, OWN_VALUE or OTHER_VALUE.
    function pass(uint256 first, uint256 end, uint256 key, uint256 depth, uint256 reach)
        internal
        pure
        returns (uint256 place, uint256 reached, uint256 kind)
    {
        unchecked {
            (uint256 path, uint256 second, bool isList) = CalldataRlp.item(first, end);
            uint256 third;
            (place, third,) = CalldataRlp.item(second, end);
            if (third != end) {
                if (depth == reach) revert InvalidProof();
                (place, kind) = _child(first, end, key << (4 * depth) >> 252, reach);
                return (place, depth + 1, kind);
            }
            if (isList) revert InvalidProof();
            (reached, kind) = _passPath(path, second, key, depth, reach);
            if (kind <= OWN_VALUE) {
                // The value is a string, not empty.
                if (place == end || CalldataRlp.number(second, 1) >= CalldataRlp.LIST) revert InvalidProof();
            } else {
                place = second;
            }
        }
    }

    /// @dev As `pass`, the path of a leaf or an extension. The item after it begins where the path ends.
    function _passPath(uint256 path, uint256 end, uint256 key, uint256 depth, uint256 reach)
        private
        pure
        returns (uint256 reached, uint256 kind)
    {
        unchecked {
            (uint256 nibbles, uint256 length, bool isLeaf) = _path(path, end);
            bool isOwn = nibbles == key << (4 * depth) >> (256 - 4 * length);
            reached = depth + length;
            if (isLeaf) {
                if (reach == NIBBLES) {
                    if (reached != NIBBLES) revert InvalidProof();
                } else {
                    _checkKey(key >> (256 - 4 * depth) << (4 * length) | nibbles, reached);
                }
                return (reached, isOwn ? OWN_VALUE : OTHER_VALUE);
            }
            // An extension leads on, to a node that follows a nibble at least.
            if (length == 0 || reached >= reach) revert InvalidProof();
            kind = CalldataRlp.number(end, 1);
            if (kind != HASH) _passEmbedded(end, kind, reach);
            if (!isOwn) kind = NONE;
        }
    }

    /// @dev Checks that a key, a number of so many nibbles, is that of a receipt. None of these begins with another, so that
    /// two that agree as far as both reach are the same.
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
    function _child(uint256 place, uint256 end, uint256 index, uint256 reach)
        private
        pure
        returns (uint256 child, uint256 kind)
    {
        unchecked {
            child = _passReferences(place, index, reach);
            kind = CalldataRlp.number(child, 1);
            place = _passReferences(child, 16 - index, reach);
            // Places only rise, so none of those that were read lies behind the end.
            if (place + 1 != end || CalldataRlp.number(place, 1) != NONE) revert InvalidProof();
        }
    }

    /// @dev Where so many references end: `80` to no node, `a0` and a hash, or an embedded node.
    function _passReferences(uint256 place, uint256 count, uint256 reach) private pure returns (uint256) {
        unchecked {
            for (; count != 0; --count) {
                uint256 first = CalldataRlp.number(place, 1);
                if (first == HASH) place += 33;
                else if (first == NONE) ++place;
                else place = _passEmbedded(place, first, reach);
            }
            return place;
        }
    }

    /// @dev Whether a node of FULL_BRANCH bytes is a branch of sixteen hashes and no value. The upper levels of large
    /// tries are such branches. Any other node is read as those of other sizes are.
    function isFullBranch(uint256 place) internal pure returns (bool isFull) {
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

    /// @dev Where a node ends that is embedded in its parent, and begins with the byte `first`. It is RLP all through. There
    /// is none in a trie of receipts, whose keys have another `reach`.
    function _passEmbedded(uint256 place, uint256 first, uint256 reach) private pure returns (uint256 end) {
        unchecked {
            if (reach != NIBBLES || first < EMBEDDED || first > LONGEST_EMBEDDED) revert InvalidProof();
            end = place + first - EMBEDDED + 1;
            _checkItems(place + 1, end);
        }
    }

    /// @dev Checks that all bytes of a list, and of lists in it, are items of RLP.
    function _checkItems(uint256 place, uint256 end) private pure {
        while (place != end) {
            (uint256 content, uint256 next, bool isList) = CalldataRlp.item(place, end);
            if (isList) _checkItems(content, next);
            place = next;
        }
    }

    /// @dev A hex-prefixed path (Yellow Paper, appendix C). `20 1a` is a leaf's path of the nibbles 1 and a, `31` one of the
    /// nibble 1; `00 1a` and `11` are an extension's.
    /// More than 64 nibbles don't fit into a word: the caller refuses them by their number.
    function _path(uint256 place, uint256 end)
        private
        pure
        returns (uint256 nibbles, uint256 length, bool isLeaf)
    {
        unchecked {
            uint256 flags = CalldataRlp.number(place, 1);
            isLeaf = flags & 0x20 != 0;
            bool isOdd = flags & 0x10 != 0;
            if (place == end || flags > 0x3f || (!isOdd && flags & 0x0f != 0)) revert InvalidProof();
            length = 2 * (end - place - 1);
            nibbles = CalldataRlp.number(place + 1, end - place - 1);
            if (isOdd) {
                nibbles |= (flags & 0x0f) << (4 * length);
                ++length;
            }
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
}
