// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {TrieWalk} from "../src/TrieWalk.sol";
import {Rlp} from "./Rlp.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Walks along the proof that is in calldata.
contract Walker {
    function slotValue(bytes calldata proof, bytes32 root, bytes32 slot) external pure returns (uint256) {
        return TrieWalk.slotValue(proof, root, slot);
    }

    function accountItems(bytes calldata proof, bytes32 root, address account)
        external
        pure
        returns (uint256, uint256, bytes32, bytes32)
    {
        return TrieWalk.accountItems(proof, root, account);
    }
}

/// @title Plain nodes are taken in their one encoding, and answer what they hold.
/// @dev Roots are the hashes of the nodes, whatever is in them.
contract TrieWalkProofs is Symbolic {
    Walker private walker;

    function setUp() external {
        walker = new Walker();
    }

    /// @custom:halmos --array-lengths proof={0,1,2,3,4,5}
    function check_the_empty_trie_has_two_proofs(bytes memory proof, bytes32 slot) external view {
        bool isProof = proof.length == 1 ? proof[0] == 0xc0 : proof.length == 3 && bytes3(proof) == 0xc28180;
        try walker.slotValue(proof, TrieWalk.EMPTY_TRIE_ROOT, slot) returns (uint256 value) {
            assert(isProof && value == 0);
        } catch {
            assert(!isProof);
        }
    }

    /// @param pathPrefix That of a string of 32 or 33 bytes, or of a list of 33.
    /// @param valuePrefix The value's first byte; `size` bytes come after it, 33 at most. If any do, it is that of a string
    /// of so many bytes, one less or one more, or of a list.
    function check_a_leaf_is_taken_from_its_one_encoding_only(
        uint8 pathPrefix,
        uint8 flags,
        bytes32 path,
        uint8 valuePrefix,
        bytes32 word,
        uint8 size,
        bytes32 slot
    ) external view {
        pathPrefix = pathPrefix == 0xe1 ? 0xe1 : uint8(_each(pathPrefix, 0xa0, 0xa1));
        size = uint8(_each(size, 0, 33));
        if (size == 0) valuePrefix = valuePrefix == 0x80 ? 0x80 : valuePrefix == 0xc0 ? 0xc0 : valuePrefix;
        else if (valuePrefix == 0xc0 + size) valuePrefix = 0xc0 + size;
        else valuePrefix = uint8(_each(valuePrefix, 0x7f + size, 0x81 + size));
        bytes memory more = size == 33 ? abi.encodePacked(word, bytes1(0)) : _highest(word, size);
        bytes memory node = Rlp.list(abi.encodePacked(pathPrefix, flags, path, valuePrefix, more));
        bool isInteger = size == 0
            ? valuePrefix != 0 && valuePrefix < 0x80
            : size < 33 && valuePrefix == 0x80 + size && _either(uint8(word[0]) >= 0x80, _both(size != 1, word[0] != 0));
        bool isLeaf = pathPrefix == 0xa1 && flags == 0x20 && isInteger;
        try walker.slotValue(_proof(node), keccak256(node), slot) returns (uint256 value) {
            assert(isLeaf);
            uint256 own = size == 0 ? valuePrefix : uint256(word) >> (256 - 8 * uint256(size));
            assert(value == (path == keccak256(abi.encode(slot)) ? own : 0));
        } catch {
            assert(!isLeaf);
        }
    }

    /// @dev A branch of sixteen strings of 32 bytes above a leaf. That it is taken is left to tests: halmos doesn't know the
    /// key, and so not which hash is read.
    /// @param prefixes Those of the branch's items.
    function check_a_full_branch_is_taken_from_its_one_encoding_only(
        bytes17 prefixes,
        bytes32[16] memory hashes,
        uint248 path,
        uint8 flags,
        uint8 value,
        bytes32 slot,
        uint256 index
    ) external view {
        vm.assume(value != 0 && value < 0x80);
        index = _each(index, 0, 15);
        uint256 key = uint256(keccak256(abi.encode(slot)));
        bytes memory leaf = Rlp.list(abi.encodePacked(bytes1(0xa0), flags, path, value));
        hashes[index] = keccak256(leaf);
        bytes memory content;
        for (uint256 place = 0; place < 16; ++place) {
            content = abi.encodePacked(content, prefixes[place], hashes[place]);
        }
        bytes memory branch = Rlp.list(abi.encodePacked(content, prefixes[16]));
        bytes memory proof = Rlp.list(abi.encodePacked(Rlp.string_(branch), Rlp.string_(leaf)));
        // A leaf's path of 63 nibbles has its first one beside the flags.
        bool areRight = _both(prefixes == 0xa0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a080, flags >> 4 == 3);
        try walker.slotValue(proof, keccak256(branch), slot) returns (uint256 answer) {
            assert(areRight);
            bool isOwn = uint256(uint8(flags) & 0x0f) << 248 | path == key & (1 << 252) - 1;
            assert(answer == (isOwn ? value : 0));
        } catch {}
    }

    /// @param prefixes Those of nonce, balance, storage root and code hash.
    function check_an_account_is_taken_from_its_one_encoding_only(
        bytes4 prefixes,
        bytes8 nonce,
        bytes32 balance,
        bytes32 storageRoot,
        bytes32 codeHash,
        bytes32 path,
        address account
    ) external view {
        uint8 noncePrefix = _prefixUpTo(uint8(prefixes[0]), 9);
        uint8 balancePrefix = _prefixUpTo(uint8(prefixes[1]), 33);
        uint256 nonceSize = noncePrefix > 0x80 ? noncePrefix - 0x80 : 0;
        uint256 balanceSize = balancePrefix > 0x80 ? balancePrefix - 0x80 : 0;
        bytes memory value = abi.encodePacked(
            abi.encodePacked(noncePrefix, _highest(nonce, nonceSize)),
            abi.encodePacked(balancePrefix, _highest(balance, balanceSize)),
            abi.encodePacked(prefixes[2], storageRoot, prefixes[3], codeHash)
        );
        bytes memory node = Rlp.list(abi.encodePacked(bytes2(0xa120), path, Rlp.string_(Rlp.list(value))));
        bool areRight = _isInteger(noncePrefix, nonceSize, nonce, 8)
            && _isInteger(balancePrefix, balanceSize, balance, 32) && _both(prefixes[2] == 0xa0, prefixes[3] == 0xa0);
        try walker.accountItems(_proof(node), keccak256(node), account) returns (
            uint256 takenNonce, uint256 takenBalance, bytes32 takenRoot, bytes32 takenHash
        ) {
            assert(areRight);
            if (path == keccak256(abi.encodePacked(account))) {
                assert(takenNonce == (nonceSize == 0 ? noncePrefix & 0x7f : uint64(nonce) >> (64 - 8 * nonceSize)));
                assert(
                    takenBalance
                        == (balanceSize == 0 ? balancePrefix & 0x7f : uint256(balance) >> (256 - 8 * balanceSize))
                );
                assert(takenRoot == storageRoot && takenHash == codeHash);
            } else {
                assert(takenNonce == 0 && takenBalance == 0);
                assert(takenRoot == TrieWalk.EMPTY_TRIE_ROOT && takenHash == TrieWalk.EMPTY_CODE_HASH);
            }
        } catch {
            assert(!areRight);
        }
    }

    /// @dev A path for each prefix of a string of up to `size` bytes, and one for all bytes that are their own encoding.
    function _prefixUpTo(uint8 prefix, uint256 size) private pure returns (uint8) {
        return prefix < 0x80 ? prefix : uint8(_each(prefix, 0x80, 0x80 + size));
    }

    /// @dev Returns whether a prefix, and a string of `size` bytes behind it, are the RLP of an integer.
    function _isInteger(uint8 prefix, uint256 size, bytes32 string_, uint256 most) private pure returns (bool) {
        if (size == 0) return prefix != 0;
        return size <= most && _either(uint8(string_[0]) >= 0x80, _both(size != 1, string_[0] != 0));
    }

    /// @dev The proof of one node.
    function _proof(bytes memory node) private pure returns (bytes memory) {
        return Rlp.list(Rlp.string_(node));
    }

    /// @dev The highest bytes of a word.
    function _highest(bytes32 word, uint256 size) private pure returns (bytes memory bytes_) {
        bytes_ = new bytes(size);
        for (uint256 place = 0; place < size; ++place) {
            bytes_[place] = word[place % 32];
        }
    }
}
