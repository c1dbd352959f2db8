// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @notice The packed calldata isn't the one encoding of a proof of these facts under the block's state root.
error InvalidProof();

/// @title Rebuilds the nodes of a Merkle Patricia trie bottom-up, from leaves and sibling hashes (FORMAT.md).
/// @notice A stack of subtrees. Every function either pushes one, or replaces those on top by the node above them.
/// @dev What is hashed here is always the canonical RLP of a node, built around the keys that were proven. Whoever finds
/// a sequence of calls that ends in a trusted root has therefore shown nodes of the very trie of that root.
///
/// Memory, at fixed places so that most addresses are constants (the compiler's own memory ends below, see `begin`):
///
///     FULL_BRANCH  532 bytes: the RLP of a branch of 16 hashes; only the hashes change
///     NODE         one node of any other kind, its list prefix directly before PAYLOAD
///     BOTTOM       the stack, upwards: 128 bytes a subtree
///
///     reference    the node's hash, or the node itself, left-aligned, where its RLP has less than 32 bytes
///     key          a key below it, or any key that agrees with those in their first `depth` nibbles; see `attach`
///     meta         depth | reach << 8 | size << 16
///                    depth: nibbles of the key above this node
///                    reach: see `attach`; zero where nothing can be absent
///                    size: bytes of a node that is its own reference; zero for a hash
///     last         the greatest key that was proven absent at this very node
///
/// A subtree of depth 0 takes no node above it. The one at the bottom of each stack is such, and so nothing reaches below.
library PackedTrie {
    /// @dev The lowest place on the stack, holding no subtree.
    uint256 internal constant BOTTOM = 0x900;
    /// @dev Bytes that a subtree takes on the stack.
    uint256 internal constant ITEM = 0x80;
    /// @dev Root of the trie without keys: keccak256(0x80).
    bytes32 internal constant EMPTY_TRIE_ROOT = 0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421;

    uint256 private constant FULL_BRANCH = 0x400;
    uint256 private constant NODE = 0x640;
    // The longest prefix of a list here is 0xf9 and two bytes of length.
    uint256 private constant PAYLOAD = 0x643;

    // What stands for an absent child, and for the value that no branch has (all keys are equally long): as many as can
    // come in a row, and more. Written wherever a child ends, and overwritten by the next.
    uint256 private constant ABSENT = 0x8080808080808080808080808080808080808080808080808080808080808080;

    // Keys are Keccak-256 hashes. Two of them that agree in 63 of 64 nibbles would have to be searched for in 2^126
    // steps, so nodes below that depth, which would need forms of their own, don't exist.
    uint256 private constant MAX_DEPTH = 62;

    /// @dev Prepares memory. Nothing may be allocated from here on: what follows is used without asking.
    function begin() internal pure {
        assembly ("memory-safe") {
            // Events and mappings use memory below the first node, and not much of it.
            if gt(mload(0x40), 0x300) { invalid() }
            // The prefix of a list of 16 * 33 + 1 bytes, that of each hash, and no value.
            mstore(FULL_BRANCH, shl(224, 0xf90211a0))
            mstore8(add(FULL_BRANCH, 36), 0xa0)
            mstore8(add(FULL_BRANCH, 69), 0xa0)
            mstore8(add(FULL_BRANCH, 102), 0xa0)
            mstore8(add(FULL_BRANCH, 135), 0xa0)
            mstore8(add(FULL_BRANCH, 168), 0xa0)
            mstore8(add(FULL_BRANCH, 201), 0xa0)
            mstore8(add(FULL_BRANCH, 234), 0xa0)
            mstore8(add(FULL_BRANCH, 267), 0xa0)
            mstore8(add(FULL_BRANCH, 300), 0xa0)
            mstore8(add(FULL_BRANCH, 333), 0xa0)
            mstore8(add(FULL_BRANCH, 366), 0xa0)
            mstore8(add(FULL_BRANCH, 399), 0xa0)
            mstore8(add(FULL_BRANCH, 432), 0xa0)
            mstore8(add(FULL_BRANCH, 465), 0xa0)
            mstore8(add(FULL_BRANCH, 498), 0xa0)
            mstore8(add(FULL_BRANCH, 531), 0x80)
        }
        clear(BOTTOM);
    }

    /// @dev Makes `place` the bottom of a stack.
    function clear(uint256 place) internal pure {
        assembly ("memory-safe") {
            mstore(add(place, 0x40), 0)
        }
    }

    /// @dev The big-endian number in `size` bytes of calldata, at most 32; zero in none.
    function read(uint256 cursor, uint256 size) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := shr(sub(256, shl(3, size)), calldataload(cursor))
        }
    }

    /// @dev As `read`, of a number without leading zero bytes.
    function readShortest(uint256 cursor, uint256 size) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            let word := calldataload(cursor)
            if or(gt(size, 32), gt(iszero(byte(0, word)), iszero(size))) {
                mstore(0, 0x09bde339)
                revert(0x1c, 4)
            }
            value := shr(sub(256, shl(3, size)), word)
        }
    }

    /// @dev Whether a byte has an even number of ones: a bit for each of the 256.
    function isEven(uint256 bits) internal pure returns (bool even) {
        assembly ("memory-safe") {
            even := and(shr(bits, 0x9669699669969669699696699669699669969669966969969669699669969669), 1)
        }
    }

    /// @dev Replaces the top subtree by the branch of sixteen hashes that holds it, and again for as long as the next
    /// operation is the same: these are the upper levels of every large trie, and most of the work.
    /// @param cursor The operation, a zero byte. It stays there if the subtree isn't a hash, or is a root.
    function fullBranches(uint256 cursor, uint256 top) internal pure returns (uint256) {
        assembly ("memory-safe") {
            let depth := mload(add(top, 0x40))
            if lt(depth, 0x10000) {
                depth := and(depth, 0xff)
                let hash := mload(top)
                // Behind the end of calldata are zeros, but then the cursor never gets back to the end.
                for {} mul(depth, iszero(byte(0, calldataload(cursor)))) {} {
                    // The fifteen others to the first fifteen places ...
                    mstore(add(FULL_BRANCH, 4), calldataload(add(cursor, 1)))
                    mstore(add(FULL_BRANCH, 37), calldataload(add(cursor, 33)))
                    mstore(add(FULL_BRANCH, 70), calldataload(add(cursor, 65)))
                    mstore(add(FULL_BRANCH, 103), calldataload(add(cursor, 97)))
                    mstore(add(FULL_BRANCH, 136), calldataload(add(cursor, 129)))
                    mstore(add(FULL_BRANCH, 169), calldataload(add(cursor, 161)))
                    mstore(add(FULL_BRANCH, 202), calldataload(add(cursor, 193)))
                    mstore(add(FULL_BRANCH, 235), calldataload(add(cursor, 225)))
                    mstore(add(FULL_BRANCH, 268), calldataload(add(cursor, 257)))
                    mstore(add(FULL_BRANCH, 301), calldataload(add(cursor, 289)))
                    mstore(add(FULL_BRANCH, 334), calldataload(add(cursor, 321)))
                    mstore(add(FULL_BRANCH, 367), calldataload(add(cursor, 353)))
                    mstore(add(FULL_BRANCH, 400), calldataload(add(cursor, 385)))
                    mstore(add(FULL_BRANCH, 433), calldataload(add(cursor, 417)))
                    mstore(add(FULL_BRANCH, 466), calldataload(add(cursor, 449)))
                    // ... then those from ours on one place up, prefixes included, to make room for it.
                    let nibble := and(shr(sub(256, shl(2, depth)), mload(add(top, 0x20))), 0x0f)
                    let ours := add(add(FULL_BRANCH, 3), mul(33, nibble))
                    mcopy(add(ours, 33), ours, sub(add(FULL_BRANCH, 498), ours))
                    mstore(add(ours, 1), hash)
                    hash := keccak256(FULL_BRANCH, 532)
                    depth := sub(depth, 1)
                    cursor := add(cursor, 481)
                }
                mstore(top, hash)
                mstore(add(top, 0x40), depth)
            }
        }
        return cursor;
    }

    /// @dev Replaces the top 1 to 16 subtrees by the branch that holds them.
    /// @param op Its low four bits: how many subtrees, less one. Its high ones: 0, all other children are hashes; 1, a
    /// mask of children that are absent comes first; 2, after it a mask of those that aren't hashes but nodes.
    function branch(uint256 op, uint256 cursor, uint256 top) internal pure returns (uint256, uint256) {
        uint256 first;
        uint256 depth;
        uint256 end;
        assembly ("memory-safe") {
            function refuse() {
                mstore(0, 0x09bde339)
                revert(0x1c, 4)
            }

            // The place of a child, of which the mask has one bit. The powers of two up to 2^15 differ modulo 19: a table
            // of their exponents.
            function placeOf(bit) -> place {
                place :=
                    byte(mod(bit, 19), 0x0000010d02000e060308000c0f05070b040a0900000000000000000000000000)
            }

            // Copies the children of a mask from calldata. Each begins at its place + `extent`, which is how much longer
            // than a byte those before it are, and where they begin.
            function copyChildren(mask, nodes, extent, source) -> extentAfter, sourceAfter {
                switch nodes
                case 0 {
                    // Both move by the 32 bytes of a hash.
                    let distance := sub(source, extent)
                    for {} mask {} {
                        let bit := and(mask, sub(0, mask))
                        let child := add(placeOf(bit), extent)
                        mstore8(child, 0xa0)
                        mstore(add(child, 1), calldataload(add(extent, distance)))
                        mstore(add(child, 33), ABSENT)
                        extent := add(extent, 32)
                        mask := xor(mask, bit)
                    }
                    source := add(extent, distance)
                }
                default {
                    for {} mask {} {
                        let bit := and(mask, sub(0, mask))
                        let child := add(placeOf(bit), extent)
                        let size := 32
                        switch and(nodes, bit)
                        case 0 {
                            mstore8(child, 0xa0)
                            mstore(add(child, 1), calldataload(source))
                            mstore(add(child, 33), ABSENT)
                            extent := add(extent, 32)
                        }
                        default {
                            // A list of at most 31 bytes, prefix included, tells its own length: whatever is in it, the
                            // children after it stay in their places.
                            size := sub(byte(0, calldataload(source)), 0xbf)
                            if gt(sub(size, 2), 29) { refuse() }
                            calldatacopy(child, source, size)
                            mstore(add(child, size), ABSENT)
                            extent := sub(add(extent, size), 1)
                        }
                        source := add(source, size)
                        mask := xor(mask, bit)
                    }
                }
                extentAfter := extent
                sourceAfter := source
            }

            let present := 0xffff
            let nodes := 0
            if gt(op, 0x0f) {
                present := shr(240, not(calldataload(cursor)))
                cursor := add(cursor, 2)
                switch lt(op, 0x20)
                case 1 { if eq(present, 0xffff) { refuse() } }
                default {
                    nodes := shr(240, calldataload(cursor))
                    cursor := add(cursor, 2)
                    if or(iszero(nodes), and(nodes, not(present))) { refuse() }
                }
            }

            depth := and(mload(add(top, 0x40)), 0xff)
            if iszero(depth) { refuse() }
            first := sub(top, mul(and(op, 0x0f), ITEM))
            end := PAYLOAD
            mstore(end, ABSENT)
            for { let item := first } iszero(gt(item, top)) { item := add(item, ITEM) } {
                // Its path from the root, a number of `depth` nibbles, less that of the branch's first child. It is above
                // 15 if it belongs to another branch; and if it is out of order, its bit is gone.
                let bits := sub(256, shl(2, depth))
                let place :=
                    sub(shr(bits, mload(add(item, 0x20))), shl(4, shr(add(bits, 4), mload(add(top, 0x20)))))
                let bit := shl(place, 1)
                let meta := mload(add(item, 0x40))
                // The bottom of a stack has depth 0: there are subtrees enough.
                if or(iszero(and(present, bit)), or(and(nodes, bit), xor(and(meta, 0xff), depth))) { refuse() }
                let before := and(present, sub(bit, 1))
                present := xor(present, or(before, bit))
                end, cursor := copyChildren(before, nodes, end, cursor)
                place := add(place, end)
                switch lt(meta, 0x10000)
                case 1 {
                    mstore8(place, 0xa0)
                    mstore(add(place, 1), mload(item))
                    mstore(add(place, 33), ABSENT)
                    end := add(end, 32)
                }
                default {
                    mcopy(place, item, shr(16, meta))
                    mstore(add(place, shr(16, meta)), ABSENT)
                    end := add(end, sub(shr(16, meta), 1))
                }
            }
            end, cursor := copyChildren(present, nodes, end, cursor)
            end := add(end, 17)
        }
        (uint256 ref, uint256 size) = _finish(end);
        assembly ("memory-safe") {
            mstore(first, ref)
            mstore(add(first, 0x40), or(shl(16, size), sub(depth, 1)))
        }
        return (cursor, first);
    }

    /// @dev Replaces the top subtree by an extension of `length` nibbles that leads to it.
    function extend(uint256 length, uint256 top) internal pure {
        uint256 end;
        uint256 depth;
        assembly ("memory-safe") {
            let meta := mload(add(top, 0x40))
            depth := and(meta, 0xff)
            if or(lt(depth, length), iszero(length)) {
                mstore(0, 0x09bde339)
                revert(0x1c, 4)
            }
            // Hex prefix: 0x00 before an even number of nibbles, 0x1 before an odd one (Yellow Paper, appendix C).
            let bits := shl(2, length)
            let path := and(shr(sub(256, shl(2, depth)), mload(add(top, 0x20))), sub(shl(bits, 1), 1))
            if and(length, 1) { path := or(path, shl(bits, 1)) }
            let size := add(shr(1, length), 1)
            end := PAYLOAD
            if gt(size, 1) {
                mstore8(end, add(0x80, size))
                end := add(end, 1)
            }
            mstore(end, shl(sub(256, shl(3, size)), path))
            end := add(end, size)

            let node := shr(16, meta)
            switch node
            case 0 {
                mstore8(end, 0xa0)
                mstore(add(end, 1), mload(top))
                end := add(end, 33)
            }
            default {
                mstore(end, mload(top))
                end := add(end, node)
            }
        }
        (uint256 ref, uint256 size) = _finish(end);
        assembly ("memory-safe") {
            mstore(top, ref)
            mstore(add(top, 0x40), or(shl(16, size), or(shl(8, depth), sub(depth, length))))
            mstore(add(top, 0x60), 0)
        }
    }

    /// @dev Pushes the leaf of an account: the RLP list of nonce, balance, storage root and code hash, as a string.
    function pushAccount(
        uint256 top,
        uint256 key,
        uint256 depth,
        uint256 nonce,
        uint256 nonceSize,
        uint256 amount,
        uint256 amountSize,
        bytes32 storageRoot,
        bytes32 codeHash
    ) internal pure returns (uint256) {
        uint256 end = _leafPath(key, depth);
        assembly ("memory-safe") {
            function writeInteger(at, value, size) -> after {
                switch lt(value, 0x80)
                case 1 {
                    mstore8(at, or(value, shl(7, iszero(value))))
                    after := add(at, 1)
                }
                default {
                    mstore8(at, add(0x80, size))
                    mstore(add(at, 1), shl(sub(256, shl(3, size)), value))
                    after := add(add(at, 1), size)
                }
            }
            // The list has 68 to 108 bytes: the string and the list in it both have a prefix of two.
            let list := add(end, 4)
            let at := writeInteger(writeInteger(list, nonce, nonceSize), amount, amountSize)
            mstore8(at, 0xa0)
            mstore(add(at, 1), storageRoot)
            mstore8(add(at, 33), 0xa0)
            mstore(add(at, 34), codeHash)
            at := add(at, 66)
            let length := sub(at, list)
            mstore8(end, 0xb8)
            mstore8(add(end, 1), add(length, 2))
            mstore8(add(end, 2), 0xf8)
            mstore8(add(end, 3), length)
            end := at
        }
        (uint256 ref, uint256 size) = _finish(end);
        return _push(top, ref, key, size << 16 | 64 << 8 | depth, 0);
    }

    /// @dev Pushes the leaf of a storage slot: the RLP of its value, which isn't zero, as a string.
    function pushSlot(uint256 top, uint256 key, uint256 depth, uint256 value, uint256 valueSize)
        internal
        pure
        returns (uint256)
    {
        uint256 end = _leafPath(key, depth);
        assembly ("memory-safe") {
            switch lt(value, 0x80)
            case 1 {
                mstore8(end, value)
                end := add(end, 1)
            }
            default {
                mstore8(end, add(0x81, valueSize))
                mstore8(add(end, 1), add(0x80, valueSize))
                mstore(add(end, 2), shl(sub(256, shl(3, valueSize)), value))
                end := add(add(end, 2), valueSize)
            }
        }
        (uint256 ref, uint256 size) = _finish(end);
        return _push(top, ref, key, size << 16 | 64 << 8 | depth, 0);
    }

    /// @dev Pushes an empty place, in which `key` is absent. At depth 0 it is the empty trie.
    function pushEmpty(uint256 top, uint256 key, uint256 depth) internal pure returns (uint256) {
        if (depth > MAX_DEPTH) revert InvalidProof();
        return _push(top, 0x80 << 248, key, 1 << 16 | 64 << 8 | depth, key);
    }

    /// @dev Pushes an extension that `key` doesn't follow.
    /// @param cursor Its depth, its nibbles' number, the nibbles, and the hash of the branch that it leads to.
    function pushOtherExtension(uint256 cursor, uint256 top, uint256 key) internal pure returns (uint256, uint256) {
        unchecked {
            uint256 depth = read(cursor, 1);
            uint256 length = read(cursor + 1, 1);
            uint256 other;
            if (depth + length > MAX_DEPTH) revert InvalidProof();
            (cursor, other) = readOtherKey(cursor + 2, key, depth, length);
            top = _push(top, read(cursor, 32), other, depth + length, 0);
            extend(length, top);
            attach(top, key);
            return (cursor + 32, top);
        }
    }

    /// @dev A key that is `key` down to `depth`, and goes on with `length` nibbles from calldata, in whole bytes.
    function readOtherKey(uint256 cursor, uint256 key, uint256 depth, uint256 length)
        internal
        pure
        returns (uint256, uint256 other)
    {
        unchecked {
            uint256 size = (length + 1) >> 1;
            uint256 path = read(cursor, size);
            if (length & 1 != 0 && path >> (4 * length) != 0) revert InvalidProof();
            other = key >> (256 - 4 * depth) << (256 - 4 * depth) | path << (256 - 4 * (depth + length));
            return (cursor + size, other);
        }
    }

    /// @dev Proves `key` absent at the node on top: its path leads to that node, and no further. It agrees with the
    /// node's key in `depth` nibbles at least and in less than `reach`, which is where the node's own path ends: for a
    /// leaf all 64, for an extension where it leads to. For an empty place every other key will do, thus 64. Several
    /// come in rising order.
    function attach(uint256 top, uint256 key) internal pure {
        assembly ("memory-safe") {
            let meta := mload(add(top, 0x40))
            let difference := xor(key, mload(add(top, 0x20)))
            let reached := shr(sub(256, shl(2, and(meta, 0xff))), difference)
            let left := shr(sub(256, shl(2, and(shr(8, meta), 0xff))), difference)
            if or(or(reached, iszero(left)), iszero(gt(key, mload(add(top, 0x60))))) {
                mstore(0, 0x09bde339)
                revert(0x1c, 4)
            }
            mstore(add(top, 0x60), key)
        }
    }

    /// @dev The root of the trie that the one subtree above `bottom` is.
    function root(uint256 top, uint256 bottom) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let meta := mload(add(top, 0x40))
            if or(and(meta, 0xff), sub(top, add(bottom, ITEM))) {
                mstore(0, 0x09bde339)
                revert(0x1c, 4)
            }
            hash := mload(top)
            let size := shr(16, meta)
            if size { hash := keccak256(top, size) }
        }
    }

    /// @dev Begins a leaf: its hex-prefixed path, 0x20 before an even number of nibbles, 0x3 before an odd one.
    function _leafPath(uint256 key, uint256 depth) private pure returns (uint256 end) {
        if (depth > MAX_DEPTH) revert InvalidProof();
        assembly ("memory-safe") {
            let odd := and(depth, 1)
            let size := sub(33, shr(1, add(depth, 1)))
            mstore8(PAYLOAD, add(0x80, size))
            let flag := 0x20
            if odd { flag := or(0x30, and(shr(sub(252, shl(2, depth)), key), 0x0f)) }
            mstore8(add(PAYLOAD, 1), flag)
            mstore(add(PAYLOAD, 2), shl(shl(2, add(depth, odd)), key))
            end := add(add(PAYLOAD, 1), size)
        }
    }

    /// @dev Puts the list's prefix before what was written from PAYLOAD to `end`, and gives the node's reference.
    function _finish(uint256 end) private pure returns (uint256 ref, uint256 size) {
        assembly ("memory-safe") {
            let length := sub(end, PAYLOAD)
            let start := NODE
            switch gt(length, 255)
            case 1 {
                mstore8(NODE, 0xf9)
                mstore8(add(NODE, 1), shr(8, length))
                mstore8(add(NODE, 2), length)
            }
            default {
                switch gt(length, 55)
                case 1 {
                    start := add(NODE, 1)
                    mstore8(start, 0xf8)
                    mstore8(add(NODE, 2), length)
                }
                default {
                    start := add(NODE, 2)
                    mstore8(start, add(0xc0, length))
                }
            }
            length := sub(end, start)
            switch lt(length, 32)
            case 0 { ref := keccak256(start, length) }
            default {
                ref := mload(start)
                size := length
            }
        }
    }

    function _push(uint256 top, uint256 ref, uint256 key, uint256 meta, uint256 last)
        private
        pure
        returns (uint256 item)
    {
        assembly ("memory-safe") {
            item := add(top, ITEM)
            mstore(item, ref)
            mstore(add(item, 0x20), key)
            mstore(add(item, 0x40), meta)
            mstore(add(item, 0x60), last)
        }
    }
}
