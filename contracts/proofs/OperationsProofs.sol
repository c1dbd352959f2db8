// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {MemoryZones} from "../src/MemoryZones.sol";
import {PackedTrie} from "../src/PackedTrie.sol";
import {StepHarness} from "../test/StepHarness.sol";
import {Rlp} from "./Rlp.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Properties of memory after a single operation of a proof, from any state of memory.
/// @dev The open stack lies above one subtree of another stack. Memory there, in the node's zone and behind the top is
/// symbolic. So are keys, hashes and stored values. Depths, lengths and places decide where memory is read or written,
/// and halmos needs to know that. So each of their values has a path of its own.
contract OperationsProofs is Symbolic {
    uint256 private constant SUBTREE = 0xc0;
    uint256 private constant BOTTOM = MemoryZones.STACK + SUBTREE;
    // Bytes behind the top that are checked.
    uint256 private constant BEHIND = SUBTREE + 0x40;

    // The words of a subtree, see `SubtreeStack`.
    uint256 private constant REF = 0x00;
    uint256 private constant SIZE = 0x20;
    uint256 private constant KEY = 0x40;
    uint256 private constant DEPTH = 0x60;
    uint256 private constant REACH = 0x80;
    uint256 private constant LAST = 0xa0;

    uint256 private constant NIBBLES = 64;
    uint256 private constant EMPTY_CODE_HASH = uint256(keccak256(""));
    // Owner of the open storage, if one is open.
    uint256 private constant OWNER = 0x11;

    StepHarness private machine;

    struct State {
        uint256 bottom;
        uint256 top;
        uint256 isStorageOpen;
        uint256 owner;
    }

    function setUp() external {
        machine = new StepHarness(8191);
    }

    // --- Missing subtrees -------------------------------------------------------------------------------------------

    /// @dev The branch takes one subtree more than the stack has. Memory below the bottom is symbolic.
    function check_a_branch_takes_nothing_from_below_the_bottom(uint256 count) external {
        count = _each(count, 1, 16);
        bytes memory image = _image(count - 1);
        bytes memory children = hex"0000";
        if (count < 16) children = abi.encodePacked(hex"8000", svm.createBytes(32, "hash"));
        _assertRefused(image, count - 1, false, abi.encodePacked(uint8(0x10 + count - 1), children));
    }

    /// @dev The other operations that need a subtree, on an empty stack.
    function check_nothing_else_takes_from_below_the_bottom(uint256 op) external {
        op = _each(op, 0, 3);
        bytes memory operation = op == 0
            ? abi.encodePacked(hex"00", svm.createBytes(480, "hashes"))
            : op == 1
            ? abi.encodePacked(hex"36", svm.createBytes(1, "length"))
            : op == 2
            ? abi.encodePacked(hex"72", svm.createBytes(20, "account"))
            : abi.encodePacked(hex"3420", svm.createBytes(32, "slot"));
        _assertRefused(_image(0), 0, op == 3, operation);
    }

    /// @dev A storage is closed by accounts and by absent ones, if there is one subtree in it, at depth 0.
    function check_a_storage_is_closed_with_one_subtree_only(uint256 op, uint256 count) external {
        op = _each(op, 0, 15);
        count = _each(count, 0, 2);
        bytes memory image = _image(count);
        if (count == 1) vm.assume(_word(image, BOTTOM + DEPTH) != 0);
        bytes memory rest = svm.createBytes(64, "rest");
        uint256 account = _withParity(0x08 | (op & 0x07) << 4 | op >> 3 << 1);
        _assertRefused(image, count, true, abi.encodePacked(uint8(0x80 | account), rest));
        _assertRefused(image, count, true, abi.encodePacked(uint8(0x78 | op & 7), rest));
    }

    // --- Branches, extensions ---------------------------------------------------------------------------------------

    /// @dev The new reference is that of the branch of sixteen hashes, ours among them.
    function check_a_full_branch(uint256 depth, uint256 place) external {
        (depth, place) = (_each(depth, 0, 62), _each(place, 0, 15));
        bytes memory image = _image(1);
        _setWord(image, BOTTOM + SIZE, 0);
        _setWord(image, BOTTOM + DEPTH, depth);
        if (depth != 0) _setNibble(image, BOTTOM + KEY, depth - 1, place);
        bytes32[15] memory hashes = abi.decode(svm.createBytes(480, "hashes"), (bytes32[15]));
        bytes memory operation = abi.encodePacked(hex"00", abi.encode(hashes));
        if (depth == 0) return _assertRefused(image, 1, false, operation);

        bytes memory left = _assertAccepted(image, 1, false, operation);
        bytes memory list;
        for (uint256 i = 0; i < 16; ++i) {
            bytes32 child = i == place ? bytes32(_word(image, BOTTOM + REF)) : hashes[i < place ? i : i - 1];
            list = abi.encodePacked(list, hex"a0", child);
        }
        _assertNode(left, abi.encodePacked(list, hex"80"), _word(image, BOTTOM + KEY), depth - 1, 0, 0);
    }

    /// @dev Two children, the first a subtree, the other a hash, a node of three bytes or a subtree. The first is a hash
    /// or a node of four bytes. The reference is that of the branch that holds them: at depth 4 for every two places, at
    /// every other depth for two of them.
    function check_a_branch_of_two(uint256 depth, uint256 place, uint256 other, uint256 form, uint256 size) external {
        depth = _each(depth, 1, 63);
        (place, other) = depth == 5 ? (_each(place, 0, 15), _each(other, 0, 15)) : (uint256(3), uint256(9));
        (form, size) = (_each(form, 0, 2), _each(size, 0, 1) * 4);
        uint256 count = form == 2 ? 2 : 1;
        bytes memory image = _image(count);
        _setSubtree(image, 0, size, depth, place);
        if (count == 2) _setSubtree(image, 1, 0, depth, other);

        bytes32 ref = bytes32(_word(image, BOTTOM + REF));
        bytes memory first = size == 0 ? abi.encodePacked(hex"a0", ref) : abi.encodePacked(bytes4(ref));
        bytes memory second;
        bytes memory operation;
        if (form == 0) {
            bytes memory hash = svm.createBytes(32, "hash");
            second = abi.encodePacked(hex"a0", hash);
            operation = abi.encodePacked(hex"10", uint16(1 << other), hash);
        } else if (form == 1) {
            second = abi.encodePacked(hex"c2", svm.createBytes(2, "node"));
            operation = abi.encodePacked(hex"200000", uint16(1 << other), second);
        } else {
            second = abi.encodePacked(hex"a0", _word(image, BOTTOM + SUBTREE + REF));
            operation = hex"110000";
        }
        // Other children may have any place, and subtrees come by rising places.
        if (other == place || (form == 2 && other < place)) return _assertRefused(image, count, false, operation);

        bytes memory left = _assertAccepted(image, count, false, operation);
        bytes memory list;
        for (uint256 i = 0; i < 17; ++i) {
            list = abi.encodePacked(list, i == place ? first : i == other ? second : bytes(hex"80"));
        }
        _assertNode(left, list, _word(image, BOTTOM + KEY), depth - 1, 0, 0);
    }

    /// @dev One subtree and a hash, or two subtrees, of any depths and with any keys: a branch takes them if and only if
    /// they are its children, at the places that are given.
    function check_a_branch_takes_its_own_children_only(uint256 place, uint256 other, bool isHash) external {
        place = _each(place, 0, 14);
        other = _each(other, place + 1, 15);
        if (place != 0 && other != 15) return;
        uint256 count = isHash ? 1 : 2;
        bytes memory image = _image(count);
        _setWord(image, BOTTOM + SIZE, 0);
        uint256 depth = _word(image, BOTTOM + DEPTH);
        bytes memory operation = hex"110000";
        if (isHash) operation = abi.encodePacked(hex"10", uint16(1 << other), svm.createBytes(32, "hash"));
        else _setWord(image, BOTTOM + SUBTREE + SIZE, 0);
        (bool accepted,,) = _run(image, count, false, operation);
        unchecked {
            uint256 below = 256 - 4 * depth;
            uint256 path = _word(image, BOTTOM + KEY) >> below + 4 << 4;
            // The deepest branch is at depth 62.
            bool areChildren = _both(depth - 1 <= 62, _word(image, BOTTOM + KEY) >> below == path | place);
            if (!isHash) {
                areChildren = _both(areChildren, _word(image, BOTTOM + SUBTREE + DEPTH) == depth);
                areChildren = _both(areChildren, _word(image, BOTTOM + SUBTREE + KEY) >> below == path | other);
            }
            assert(accepted == areChildren);
        }
    }

    /// @dev Empty places are no children.
    function check_a_branch_of_one_is_refused(uint256 place, uint256 empty) external {
        (place, empty) = (_each(place, 1, 15), _each(empty, 1, 3));
        bytes memory image = _image(2);
        _setWord(image, BOTTOM + SIZE, empty & 1);
        _setWord(image, BOTTOM + SUBTREE + SIZE, empty >> 1);
        _assertRefused(image, 2, false, hex"110000");
    }

    /// @dev To a branch that is a hash, or of 17 bytes. One nibble more than there are above it is too many.
    function check_an_extension(uint256 depth, uint256 length, uint256 size) external {
        (depth, size) = (_each(depth, 0, 62), _each(size, 0, 1) * 17);
        length = _each(length, 0, depth + 1);
        if (size != 0 && length > 2) return;
        bytes memory image = _image(1);
        _setWord(image, BOTTOM + SIZE, size);
        _setWord(image, BOTTOM + DEPTH, depth);
        bytes memory operation = abi.encodePacked(hex"36", uint8(length));
        if (length == 0 || length > depth) return _assertRefused(image, 1, false, operation);

        bool leadsToBranch = _word(image, BOTTOM + REACH) == 0;
        if (!leadsToBranch) return _assertRefused(image, 1, false, operation);
        bytes memory left = _assertAccepted(image, 1, false, operation);
        uint256 key = _word(image, BOTTOM + KEY);
        bytes memory ref = abi.encodePacked(_word(image, BOTTOM + REF));
        bytes memory child = size == 0 ? Rlp.string_(ref) : abi.encodePacked(bytes17(bytes32(ref)));
        bytes memory path = Rlp.path(key >> 256 - 4 * depth, length, false);
        _assertNode(left, abi.encodePacked(path, child), key, depth - length, depth, 0);
    }

    // --- Leaves -----------------------------------------------------------------------------------------------------

    /// @dev Of all depths and sizes of values. The first byte of a value is one of three.
    function check_a_slot(uint256 depth, uint256 size, uint256 first) external {
        (depth, size, first) = (_each(depth, 0, 63), _each(size, 1, 32), _each(first, 0, 2));
        if (depth != 7 && size != 32) return;
        bytes32 slot = bytes32(svm.createUint(256, "slot"));
        vm.assume(slot >> 248 != 0);
        bytes memory value = svm.createBytes(size, "value");
        value[0] = first == 0 ? bytes1(0x01) : first == 1 ? bytes1(0x7f) : bytes1(0x80);
        bytes memory operation = abi.encodePacked(hex"4020", slot, uint8(depth), uint8(size), value);
        bytes memory image = _image(0);
        if (depth > 62) return _assertRefused(image, 0, true, operation);
        bytes memory left = _assertAccepted(image, 0, true, operation);
        uint256 key = uint256(keccak256(abi.encode(slot)));
        _assertNode(left, _leaf(key, depth, Rlp.string_(value)), key, depth, NIBBLES, 0);
    }

    /// @dev With all that can be stored of it and all that can follow, and at every depth.
    function check_an_account(uint256 flags, uint256 depth) external {
        depth = _each(depth, 0, 63);
        flags = depth == 31 ? _each(flags, 0, 31) : 31;
        // Bits of stored fields and of following roots.
        uint256 op = _withParity((flags & 0x1c) << 2 | (flags & 3) << 1);
        bytes memory account = svm.createBytes(20, "account");
        (bytes memory rest, bytes memory value, bool areRight) = _account(flags & 3);
        bytes memory operation = abi.encodePacked(uint8(0x80 | op), uint16(depth << 10 | 2 << 6 | 9), account, rest);
        bytes memory image = _image(0);
        if (flags & 0x1c == 0 || depth > 62) return _assertRefused(image, 0, false, operation);

        (bool accepted, State memory state, bytes memory left) = _run(image, 0, false, operation);
        assert(accepted == areRight);
        if (!accepted) return;
        _assertState(image, false, state, left);
        uint256 key = uint256(keccak256(account));
        _assertNode(left, _leaf(key, depth, value), key, depth, NIBBLES, 0);
    }

    /// @dev Returns parts of an account with a nonce of two bytes and a balance of nine: the end of its operation, the
    /// content of its leaf, and whether its hashes are valid.
    function _account(uint256 follows) private pure returns (bytes memory rest, bytes memory value, bool areRight) {
        bytes memory nonce = abi.encodePacked(hex"05", svm.createBytes(1, "nonce"));
        bytes memory balance = abi.encodePacked(hex"80", svm.createBytes(8, "balance"));
        (uint256 root, uint256 codeHash) = (uint256(PackedTrie.EMPTY_TRIE_ROOT), EMPTY_CODE_HASH);
        rest = abi.encodePacked(nonce, balance);
        areRight = true;
        if (follows & 2 != 0) {
            root = svm.createUint(256, "root");
            rest = abi.encodePacked(rest, root);
            areRight = _both(root != 0, root != uint256(PackedTrie.EMPTY_TRIE_ROOT));
        }
        if (follows & 1 != 0) {
            codeHash = svm.createUint(256, "code hash");
            rest = abi.encodePacked(rest, codeHash);
            areRight = _both(areRight, _both(codeHash != 0, codeHash != EMPTY_CODE_HASH));
        }
        value = abi.encodePacked(hex"82", nonce, hex"89", balance, hex"a0", root, hex"a0", codeHash);
        value = Rlp.list(value);
    }

    /// @dev Returns the content of a leaf's list.
    function _leaf(uint256 key, uint256 depth, bytes memory value) private pure returns (bytes memory) {
        return abi.encodePacked(Rlp.path(key, NIBBLES - depth, true), Rlp.string_(value));
    }

    /// @dev With the lowest bit of an account's operation, which makes the number of ones even.
    function _withParity(uint256 op) private pure returns (uint256) {
        return op | (op ^ op >> 1 ^ op >> 2 ^ op >> 3 ^ op >> 4 ^ op >> 5 ^ op >> 6) & 1;
    }

    // --- Absent keys ------------------------------------------------------------------------------------------------

    /// @dev At an empty place, of any depth.
    function check_an_empty_place(bool isSlot, uint8 depth) external {
        (bytes memory subject, uint256 key) = _subject(isSlot, 0);
        bytes memory image = _image(0);
        bytes memory operation = abi.encodePacked(subject, depth);
        if (depth > 62) return _assertRefused(image, 0, isSlot, operation);
        bytes memory left = _assertAccepted(image, 0, isSlot, operation);
        _assertPlace(left, key, depth, NIBBLES, key);
        assert(_left(left, BOTTOM + SIZE) == 1 && _left(left, BOTTOM + REF) == 0x80 << 248);
    }

    /// @dev At the node on top, of any depth and reach: accepted if and only if the key's path leads to it and no further,
    /// and the key is greater than the last.
    function check_the_same_place(bool isSlot) external {
        (bytes memory subject, uint256 key) = _subject(isSlot, 2);
        bytes memory image = _image(1);
        uint256 difference = key ^ _word(image, BOTTOM + KEY);
        (uint256 depth, uint256 reach) = (_word(image, BOTTOM + DEPTH), _word(image, BOTTOM + REACH));
        (bool accepted, State memory state, bytes memory left) = _run(image, 1, isSlot, subject);
        unchecked {
            bool isBelow = _both(depth <= NIBBLES, difference >> 256 - 4 * depth == 0);
            bool isElsewhere = _both(reach <= NIBBLES, difference >> 256 - 4 * reach != 0);
            assert(accepted == _both(_both(isBelow, isElsewhere), key > _word(image, BOTTOM + LAST)));
        }
        if (!accepted) return;
        _assertState(image, isSlot, state, left);
        _assertPlace(left, _word(image, BOTTOM + KEY), depth, reach, key);
        assert(_left(left, BOTTOM + REF) == _word(image, BOTTOM + REF));
        assert(_left(left, BOTTOM + SIZE) == _word(image, BOTTOM + SIZE));
    }

    /// @dev At an extension, if and only if the key doesn't follow it.
    function check_another_extension(bool isSlot, uint256 depth, uint256 length) external {
        (depth, length) = (_each(depth, 0, 62), _each(length, 0, 63));
        if (depth != 5 && length != 5) return;
        (bytes memory subject, uint256 key) = _subject(isSlot, 1);
        bytes memory nibbles = svm.createBytes((length + 1) / 2, "nibbles");
        bytes memory hash = svm.createBytes(32, "hash");
        bytes memory operation = abi.encodePacked(subject, uint8(depth), uint8(length), nibbles, hash);
        bytes memory image = _image(0);
        if (length == 0 || depth + length > 62) return _assertRefused(image, 0, isSlot, operation);
        (bool areRight, uint256 other) = _otherKey(key, depth, depth + length, nibbles);
        (bool accepted, State memory state, bytes memory left) = _run(image, 0, isSlot, operation);
        assert(accepted == areRight);
        if (!accepted) return;
        _assertState(image, isSlot, state, left);
        bytes memory path = Rlp.path(other >> 256 - 4 * (depth + length), length, false);
        _assertNode(left, abi.encodePacked(path, hex"a0", hash), other, depth, depth + length, key);
    }

    /// @dev At the leaf of another slot.
    function check_another_slot(uint256 depth) external {
        depth = _each(depth, 0, 63);
        (bytes memory subject, uint256 key) = _subject(true, 3);
        bytes memory nibbles = svm.createBytes((65 - depth) / 2, "nibbles");
        bytes memory value = abi.encodePacked(hex"80", svm.createBytes(3, "value"));
        bytes memory operation = abi.encodePacked(subject, uint8(depth), nibbles, hex"04", value);
        _assertOtherLeaf(true, depth, key, nibbles, Rlp.string_(value), true, operation);
    }

    /// @dev At the leaf of another account, with all that can follow, and at every depth.
    function check_another_account(uint256 depth, uint256 follows) external {
        depth = _each(depth, 0, 63);
        follows = depth == 31 ? _each(follows, 0, 3) : 3;
        (bytes memory subject, uint256 key) = _subject(false, 4 + follows);
        bytes memory nibbles = svm.createBytes((65 - depth) / 2, "nibbles");
        (bytes memory rest, bytes memory value, bool areRight) = _account(follows);
        bytes memory operation = abi.encodePacked(subject, uint16(depth << 10 | 2 << 6 | 9), nibbles, rest);
        _assertOtherLeaf(false, depth, key, nibbles, value, areRight, operation);
    }

    function _assertOtherLeaf(
        bool isSlot,
        uint256 depth,
        uint256 key,
        bytes memory nibbles,
        bytes memory value,
        bool isValue,
        bytes memory operation
    ) private {
        bytes memory image = _image(0);
        if (depth > 62) return _assertRefused(image, 0, isSlot, operation);
        (bool areRight, uint256 other) = _otherKey(key, depth, NIBBLES, nibbles);
        (bool accepted, State memory state, bytes memory left) = _run(image, 0, isSlot, operation);
        assert(accepted == _both(areRight, isValue));
        if (!accepted) return;
        _assertState(image, isSlot, state, left);
        _assertNode(left, _leaf(other, depth, value), other, depth, NIBBLES, key);
    }

    /// @dev Returns the key that agrees with `key` down to `depth` and has these nibbles from there to `reach`.
    /// `areRight` is true if it differs from `key` and the spare nibble of the last byte is zero.
    function _otherKey(uint256 key, uint256 depth, uint256 reach, bytes memory nibbles)
        private
        pure
        returns (bool areRight, uint256 other)
    {
        uint256 path = uint256(bytes32(nibbles)) >> 256 - 8 * nibbles.length;
        (uint256 above, uint256 below) = (256 - 4 * depth, 256 - 4 * reach);
        other = key >> above << above | path << below;
        areRight = _both(path >> 4 * (reach - depth) == 0, other >> below != key >> below);
    }

    /// @dev The operation's first bytes for an account or a slot that is absent, and its key.
    function _subject(bool isSlot, uint256 how) private pure returns (bytes memory subject, uint256 key) {
        if (isSlot) {
            bytes32 slot = bytes32(svm.createUint(256, "slot"));
            vm.assume(slot >> 248 != 0);
            return (abi.encodePacked(uint8(0x32 + how), uint8(32), slot), uint256(keccak256(abi.encode(slot))));
        }
        bytes memory account = svm.createBytes(20, "account");
        return (abi.encodePacked(uint8(0x70 + how), account), uint256(keccak256(account)));
    }

    // --- The machine ------------------------------------------------------------------------------------------------

    function _image(uint256 count) private pure returns (bytes memory) {
        return svm.createBytes(BOTTOM + count * SUBTREE + BEHIND - MemoryZones.NODE, "image");
    }

    function _run(bytes memory image, uint256 count, bool isStorageOpen, bytes memory operations)
        private
        returns (bool accepted, State memory state, bytes memory left)
    {
        svm.enableSymbolicStorage(address(machine));
        bytes memory input = abi.encodePacked(
            abi.encode(BOTTOM, BOTTOM + count * SUBTREE, isStorageOpen, OWNER, uint256(1), image.length),
            image,
            operations
        );
        (accepted, left) = address(machine).call(input);
        if (!accepted) return (false, state, left);
        uint256 end = MemoryZones.NODE + image.length;
        assert(left.length == end + 0x80);
        assembly {
            mcopy(state, add(add(left, 0x20), end), 0x80)
        }
    }

    function _assertRefused(bytes memory image, uint256 count, bool isStorageOpen, bytes memory operation) private {
        (bool accepted,,) = _run(image, count, isStorageOpen, operation);
        assert(!accepted);
    }

    /// @dev The operation leaves one subtree. All else above the node's zone is as it was.
    function _assertAccepted(bytes memory image, uint256 count, bool isStorageOpen, bytes memory operation)
        private
        returns (bytes memory)
    {
        (bool accepted, State memory state, bytes memory left) = _run(image, count, isStorageOpen, operation);
        assert(accepted);
        _assertState(image, isStorageOpen, state, left);
        return left;
    }

    function _assertState(bytes memory image, bool isStorageOpen, State memory state, bytes memory left) private pure {
        assert(state.bottom == BOTTOM && state.top == BOTTOM + SUBTREE);
        assert(state.isStorageOpen == (isStorageOpen ? 1 : 0) && state.owner == OWNER);
        for (uint256 place = MemoryZones.STACK; place < MemoryZones.NODE + image.length; place += 0x20) {
            if (place >= BOTTOM && place < BOTTOM + SUBTREE) continue;
            assert(_word(image, place) == _left(left, place));
        }
        // The compiler's own memory.
        assert(_left(left, 0x40) < MemoryZones.NODE && _left(left, 0x60) == 0);
    }

    /// @dev The lowest subtree is this list, hashed or not.
    function _assertNode(bytes memory left, bytes memory list, uint256 key, uint256 depth, uint256 reach, uint256 last)
        private
        pure
    {
        bytes memory node = Rlp.list(list);
        uint256 size = node.length < 32 ? node.length : 0;
        assert(_left(left, BOTTOM + REF) == uint256(size == 0 ? keccak256(node) : bytes32(node)));
        assert(_left(left, BOTTOM + SIZE) == size);
        _assertPlace(left, key, depth, reach, last);
    }

    /// @dev Checks the place of the lowest subtree, and the keys below it.
    function _assertPlace(bytes memory left, uint256 key, uint256 depth, uint256 reach, uint256 last) private pure {
        assert(_left(left, BOTTOM + KEY) == key && _left(left, BOTTOM + DEPTH) == depth);
        assert(_left(left, BOTTOM + REACH) == reach && _left(left, BOTTOM + LAST) == last);
    }

    // --- Images -----------------------------------------------------------------------------------------------------

    function _setSubtree(bytes memory image, uint256 index, uint256 size, uint256 depth, uint256 nibble) private pure {
        uint256 place = BOTTOM + index * SUBTREE;
        _setWord(image, place + SIZE, size);
        _setWord(image, place + DEPTH, depth);
        if (index != 0) _setWord(image, place + KEY, _word(image, BOTTOM + KEY));
        _setNibble(image, place + KEY, depth - 1, nibble);
    }

    /// @dev What an image holds for a place in memory.
    function _word(bytes memory image, uint256 place) private pure returns (uint256 word) {
        uint256 zone = MemoryZones.NODE;
        assembly {
            word := mload(add(add(image, 0x20), sub(place, zone)))
        }
    }

    function _setWord(bytes memory image, uint256 place, uint256 word) private pure {
        uint256 zone = MemoryZones.NODE;
        assembly {
            mstore(add(add(image, 0x20), sub(place, zone)), word)
        }
    }

    /// @dev A nibble of a key, counted from the first.
    function _setNibble(bytes memory image, uint256 place, uint256 index, uint256 nibble) private pure {
        uint256 shift = 252 - 4 * index;
        _setWord(image, place, _word(image, place) & ~(uint256(0x0f) << shift) | nibble << shift);
    }

    /// @dev What the machine left in a place of memory.
    function _left(bytes memory left, uint256 place) private pure returns (uint256 word) {
        assembly {
            word := mload(add(add(left, 0x20), place))
        }
    }
}
