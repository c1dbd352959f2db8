// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {TrieWalk} from "@batch-query-service/contracts/src/TrieWalk.sol";
import {TransactionFacts} from "../src/TransactionFacts.sol";
import {TransactionHarness} from "../test/TransactionHarness.sol";
import {Rlp} from "./Rlp.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Walks along the proof that is in calldata, in a trie whose keys are indexes.
contract IndexWalker {
    function indexKey(uint256 index) external pure returns (uint256, uint256) {
        return TrieWalk.indexKey(index);
    }

    /// @dev Answers what `findPlace` does, with the value instead of its place.
    function find(bytes calldata proof, bytes32 root, uint256 index)
        external
        pure
        returns (bool isFound, bool isOwn, bytes memory)
    {
        uint256 place;
        uint256 end;
        (place, end, isOwn) = TrieWalk.findPlace(proof, root, index);
        bytes calldata value;
        assembly {
            value.offset := place
            value.length := mul(iszero(iszero(end)), sub(end, place))
        }
        return (end != 0, isOwn, value);
    }
}

/// @title Keys of the tries of a block are the RLP of indexes of 16 bits: none begins with another, walk and registry have
/// the same, and take no others.
/// @dev A value has 32 bytes. Roots are the hashes of the nodes, whatever is in them.
contract IndexKeyProofs is Symbolic {
    // Tries, by the byte that names them, and operations.
    uint256 private constant RECEIPTS = 0x3d;
    uint256 private constant TRANSACTIONS = 0x3e;
    uint8 private constant TRANSACTION = 0x56;
    uint8 private constant ABSENT_BESIDE_LEAF = 0x66;

    uint256 private constant BLOCK = 7;

    IndexWalker private walker;
    TransactionHarness private registry;

    function setUp() external {
        walker = new IndexWalker();
        registry = new TransactionHarness();
    }

    function check_the_key_of_an_index_is_its_rlp(uint16 index) external view {
        (uint256 nibbles, uint256 length) = _key(index);
        (uint256 key, uint256 reach) = walker.indexKey(index);
        assert(reach == length && key == nibbles << 256 - 4 * length);
    }

    function check_no_key_begins_with_another(uint16 one, uint16 other) external view {
        vm.assume(one != other);
        (uint256 key, uint256 reach) = walker.indexKey(one);
        (uint256 otherKey, uint256 otherReach) = walker.indexKey(other);
        if (reach <= otherReach) assert((key ^ otherKey) >> 256 - 4 * reach != 0);
    }

    /// @dev The trie is a leaf, whose path has up to 8 nibbles. It is taken if these are the key of an index, and else
    /// nothing is answered.
    function check_a_leaf_has_the_key_of_an_index_only(uint16 index, uint32 nibbles, uint256 length, bytes32 value)
        external
        view
    {
        length = _each(length, 0, 8);
        nibbles >>= 32 - 4 * length;
        bytes memory leaf = _leaf(nibbles, length, value);
        _assertFound(Rlp.list(Rlp.string_(leaf)), keccak256(leaf), index, nibbles, length, value);
    }

    /// @dev The same of a leaf below a branch of two. Its path has up to 7 nibbles.
    function check_a_leaf_below_a_branch_has_the_key_of_an_index_only(
        uint16 index,
        uint32 nibbles,
        uint256 length,
        uint256 place,
        bytes32 sibling,
        bytes32 value
    ) external view {
        length = _each(length, 0, 7);
        nibbles >>= 32 - 4 * length;
        place = _each(place, 0, 8);
        // The way leads to the leaf.
        index = _indexBelow(index, place);
        bytes memory leaf = _leaf(nibbles, length, value);
        bytes memory content;
        for (uint256 each = 0; each < 16; ++each) {
            if (each == place) content = abi.encodePacked(content, hex"a0", keccak256(leaf));
            else if (each == 15 - place) content = abi.encodePacked(content, hex"a0", sibling);
            else content = abi.encodePacked(content, hex"80");
        }
        bytes memory branch = Rlp.list(abi.encodePacked(content, hex"80"));
        bytes memory proof = Rlp.list(abi.encodePacked(Rlp.string_(branch), Rlp.string_(leaf)));
        _assertFound(proof, keccak256(branch), index, place << 4 * length | nibbles, 1 + length, value);
    }

    /// @dev The registry takes an index in its one form, and ends in the root of the trie that has the value at the RLP of the
    /// index. There the walk finds it.
    function check_registry_and_walk_have_the_same_keys(bytes3 digits, uint256 size, bytes32 value) external {
        size = _each(size, 0, 3);
        (bool isIndex, uint256 index) = _index(digits, size);
        (bool accepted, bytes memory root) = _run(TRANSACTIONS, abi.encodePacked(TRANSACTION, _sent(digits, size, value)));
        assert(accepted == isIndex);
        if (!accepted) return;
        (uint256 nibbles, uint256 length) = _key(index);
        bytes memory leaf = _leaf(nibbles, length, value);
        assert(bytes32(root) == keccak256(leaf));
        (bool isProven, bytes32 hash) = registry.tryTransactionHash(BLOCK, uint32(index));
        assert(isProven && hash == keccak256(abi.encode(value)));
        _assertFound(Rlp.list(Rlp.string_(leaf)), bytes32(root), index, nibbles, length, value);
    }

    /// @dev In a trie of one leaf the registry proves every index absent but the leaf's own.
    function check_an_index_is_absent_beside_another_only(
        bytes2 digits,
        uint256 size,
        bytes2 otherDigits,
        uint256 otherSize,
        bool isOdd,
        bytes32 value
    ) external {
        (size, otherSize) = (_each(size, 0, 2), _each(otherSize, 0, 2));
        (bool isIndex, uint256 index) = _index(digits, size);
        (bool isOther, uint256 other) = _index(otherDigits, otherSize);
        uint8 op = ABSENT_BESIDE_LEAF | (isOdd ? 1 : 0);
        (bool accepted,) =
            _run(RECEIPTS, abi.encodePacked(op, _encoded(digits, size), _sent(otherDigits, otherSize, value)));
        bool areRight = _both(_both(isIndex, isOther), index != other);
        assert(accepted == _both(areRight, _isOdd(index) == isOdd));
        if (!accepted) return;
        (bool isProven, bytes32 exists) = registry.tryReceiptField(BLOCK, uint32(index), TransactionFacts.ReceiptField.EXISTS);
        assert(isProven && exists == 0);
    }

    // --- Walks ------------------------------------------------------------------------------------------------------

    /// @dev The walk takes a leaf with this key if it is the RLP of an index, and calls it the index's own if that is this.
    function _assertFound(
        bytes memory proof,
        bytes32 root,
        uint256 index,
        uint256 nibbles,
        uint256 length,
        bytes32 value
    ) private view {
        // Nobody finds another preimage of it.
        vm.assume(root != TrieWalk.EMPTY_TRIE_ROOT);
        // The index that has this key, if one has.
        uint256 known = length == 2 ? nibbles & 0x7f : length == 4 ? nibbles & 0xff : nibbles & 0xffff;
        (uint256 key, uint256 reach) = _key(known);
        bool isKey = _both(reach == length, key == nibbles);
        try walker.find(proof, root, index) returns (bool isFound, bool isOwn, bytes memory found) {
            assert(_both(isKey, isFound));
            assert(isOwn == (index == known));
            assert(found.length == 32 && bytes32(found) == value);
        } catch {
            assert(!isKey);
        }
    }

    /// @dev The index, of those whose keys begin with this nibble.
    function _indexBelow(uint16 index, uint256 place) private pure returns (uint16) {
        if (place == 8) vm.assume(_either(index == 0, index >= 0x80));
        else vm.assume(_both(index != 0, index >> 4 == place));
        return index;
    }

    /// @dev The RLP of an index as a number of so many nibbles.
    function _key(uint256 index) private pure returns (uint256 nibbles, uint256 length) {
        bytes memory digits =
            index == 0 ? bytes("") : index < 256 ? abi.encodePacked(uint8(index)) : abi.encodePacked(uint16(index));
        bytes memory key = Rlp.string_(digits);
        return (uint256(bytes32(key)) >> 256 - 8 * key.length, 2 * key.length);
    }

    /// @dev The leaf that has the value at the end of a path.
    function _leaf(uint256 nibbles, uint256 length, bytes32 value) private pure returns (bytes memory) {
        return Rlp.list(abi.encodePacked(Rlp.path(nibbles, length, true), Rlp.string_(abi.encode(value))));
    }

    // --- The registry -----------------------------------------------------------------------------------------------

    function _run(uint256 trie, bytes memory operations) private returns (bool, bytes memory) {
        return address(registry).call(abi.encodePacked(BLOCK, trie, operations));
    }

    /// @dev A leaf at depth 0 as the registry takes it whole.
    function _sent(bytes3 digits, uint256 size, bytes32 value) private pure returns (bytes memory) {
        return abi.encodePacked(_encoded(digits, size), uint8(0), uint24(32), value);
    }

    function _encoded(bytes3 digits, uint256 size) private pure returns (bytes memory encoded) {
        if (size == 0) return hex"00";
        if (size == 1) return abi.encodePacked(uint8(1), bytes1(digits));
        if (size == 2) return abi.encodePacked(uint8(2), bytes2(digits));
        return abi.encodePacked(uint8(3), digits);
    }

    /// @dev Returns whether so many bytes are the one form of an index, and which.
    function _index(bytes3 digits, uint256 size) private pure returns (bool, uint256 index) {
        index = uint24(digits) >> 24 - 8 * size;
        return (size < 3 && (size == 0 || digits[0] != 0), index);
    }

    function _isOdd(uint256 number) private pure returns (bool) {
        number ^= number >> 8;
        number ^= number >> 4;
        number ^= number >> 2;
        number ^= number >> 1;
        return number & 1 != 0;
    }
}
