// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {Calldata, CalldataReader} from "./Calldata.sol";
import {Facts} from "./Facts.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {MemoryZones} from "./MemoryZones.sol";
import {PackedTrie} from "./PackedTrie.sol";
import {Stack, SubtreeStack} from "./SubtreeStack.sol";

/// @title Proves accounts and storage slots of one state, by the operations that docs/developing/proof-format.md specifies.
/// @notice Each operation reads and checks its input, then changes the stack, and stores its fact last. Facts are
/// stored before their root is known. The caller must undo all if that root isn't trusted.
abstract contract StateProof is Facts {
    using CalldataReader for Calldata;
    using SubtreeStack for Stack;

    bytes32 private constant EMPTY_CODE_HASH = 0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470;

    // Operations, by their first byte.
    uint256 internal constant FULL_BRANCH = 0x00;
    uint256 internal constant BRANCH = 0x10; // to 0x1f, by how many subtrees it takes
    uint256 internal constant BRANCH_WITH_NODES = 0x20; // to 0x2f
    uint256 private constant END_OF_BRANCHES = 0x30;
    uint256 private constant OPEN_STORAGE = 0x30;
    uint256 private constant ZERO_SLOT = 0x32; // to 0x35
    uint256 internal constant EXTENSION = 0x36;
    uint256 private constant SLOT = 0x40;
    // Two bits from SLOT, because the root doesn't bind what it stores either.
    uint256 private constant BLOCK_HASH = 0x43;
    uint256 private constant ABSENT_ACCOUNT = 0x70; // to 0x7f
    uint256 private constant ACCOUNT = 0x80; // to 0xff

    // Kinds of absence: low bits of ABSENT_ACCOUNT, offset of ZERO_SLOT.
    uint256 private constant AT_EMPTY = 0;
    uint256 private constant AT_EXTENSION = 1;
    uint256 private constant AT_SAME = 2;
    uint256 internal constant AT_LEAF = 3; // of an account: 4 to 7, by what follows
    uint256 private constant ABSENT_CLOSES_STORAGE = 0x08;

    // Bits of ACCOUNT. The lowest makes the number of ones below 0x80 even: what to store is all that the root doesn't
    // bind, and no flip of one bit may change that either.
    uint256 private constant CLOSES_STORAGE = 0x08;
    uint256 private constant STORE_CODE_HASH = 0x10;
    uint256 private constant STORE_STORAGE_ROOT = 0x20;
    uint256 private constant STORE_NONCE_AND_BALANCE = 0x40;
    uint256 private constant STORE_ANYTHING = STORE_CODE_HASH | STORE_STORAGE_ROOT | STORE_NONCE_AND_BALANCE;
    // One bit up in ACCOUNT.
    uint256 private constant CODE_HASH_FOLLOWS = 0x01;
    uint256 private constant STORAGE_ROOT_FOLLOWS = 0x02;

    // The history contract (EIP-2935). Its storage holds only hashes of earlier blocks.
    address private constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    /// @notice Number of slots, from 0, to which the source chain's history contract (EIP-2935) writes: 8191 on Ethereum.
    uint256 public immutable historyWindow;

    /// @dev What the operations work on.
    struct Proof {
        Calldata input;
        Stack stack;
        uint256 blockNumber;
        // While a storage is open: whose it is.
        bool isStorageOpen;
        address owner;
    }

    constructor(uint256 historyWindow_) {
        historyWindow = historyWindow_;
    }

    /// @dev Runs the operations from `cursor` to the end of calldata, stores what they prove, and answers the root of
    /// the state in which it all holds. Nothing may be kept unless that root is trusted.
    function _proveState(uint256 blockNumber, uint256 cursor) internal returns (bytes32) {
        Proof memory proof;
        proof.input.cursor = cursor;
        proof.blockNumber = blockNumber;
        proof.stack.begin();
        _runOperations(proof);
        if (proof.isStorageOpen) revert InvalidProof();
        return PackedTrie.root(proof.stack);
    }

    /// @dev Runs the operations that are left of calldata.
    function _runOperations(Proof memory proof) internal {
        MemoryZones.check();
        uint256 cursor;
        while ((cursor = proof.input.cursor) < msg.data.length) {
            uint256 op = CalldataRlp.number(cursor, 1);
            proof.input.cursor = ++cursor;
            if (op == FULL_BRANCH) proof.input.cursor = PackedTrie.fullBranches(proof.stack, cursor);
            else if (_isBranch(op)) proof.input.cursor = PackedTrie.branch(proof.stack, cursor, _countOf(op), op >= BRANCH_WITH_NODES);
            else if (op >= ACCOUNT) _account(proof, op);
            else if (op == SLOT) _slot(proof);
            else if (op == OPEN_STORAGE) _openStorage(proof);
            else if (op == EXTENSION) PackedTrie.extend(proof.stack, proof.input.take(1));
            else if (op >= ABSENT_ACCOUNT) _absentAccount(proof, op);
            else if (op == BLOCK_HASH) _blockHash(proof);
            else if (op >= ZERO_SLOT && op <= ZERO_SLOT + AT_LEAF) _zeroSlot(proof, op - ZERO_SLOT);
            else revert InvalidProof();
        }
    }

    // --- Storage ----------------------------------------------------------------------------------------------------

    function _openStorage(Proof memory proof) private pure {
        if (proof.isStorageOpen) revert InvalidProof();
        proof.owner = proof.input.takeAddress();
        proof.isStorageOpen = true;
        proof.stack.open();
    }

    /// @dev Whose the open storage is, and its root. The stack of the state is open after that.
    function _closeStorage(Proof memory proof) private pure returns (address owner, bytes32 root) {
        if (!proof.isStorageOpen) revert InvalidProof();
        root = PackedTrie.root(proof.stack);
        proof.stack.close();
        proof.isStorageOpen = false;
        owner = proof.owner;
    }

    function _slot(Proof memory proof) private {
        if (!proof.isStorageOpen) revert InvalidProof();
        (uint256 slot, uint256 value) = _pushSlot(proof);
        _storeSlot(proof.blockNumber, proof.owner, slot, value);
    }

    /// @dev A slot of the history contract: its value is the hash of a block, and no fact. That the storage is that
    /// contract's shows when it is closed, as for any slot.
    function _blockHash(Proof memory proof) private {
        if (!proof.isStorageOpen || proof.owner != HISTORY) revert InvalidProof();
        (uint256 slot, uint256 value) = _pushSlot(proof);
        // The protocol writes to no other slots.
        if (slot >= historyWindow) revert InvalidProof();
        _storeBlockHash(bytes32(value));
    }

    /// @dev Pushes the leaf of a slot: its number, its depth and its value, which isn't zero.
    function _pushSlot(Proof memory proof) private pure returns (uint256 slot, uint256 value) {
        slot = proof.input.takeShortest(proof.input.take(1));
        uint256 depth = proof.input.take(1);
        value = proof.input.takeShortest(proof.input.take(1));
        PackedTrie.pushSlot(proof.stack, _key(slot), depth, value);
    }

    function _zeroSlot(Proof memory proof, uint256 how) private {
        unchecked {
            if (!proof.isStorageOpen) revert InvalidProof();
            uint256 slot = proof.input.takeShortest(proof.input.take(1));
            uint256 key = _key(slot);
            if (how == AT_LEAF) {
                uint256 depth = proof.input.take(1);
                uint256 other = PackedTrie.takeOtherKey(proof.input, key, depth, PackedTrie.NIBBLES);
                uint256 value = proof.input.takeShortest(proof.input.take(1));
                PackedTrie.pushSlot(proof.stack, other, depth, value);
                PackedTrie.attach(proof.stack, key);
            } else {
                _absentKey(proof.stack, proof.input, how, key);
            }
            _storeSlot(proof.blockNumber, proof.owner, slot, 0);
        }
    }

    // --- Accounts ---------------------------------------------------------------------------------------------------

    function _account(Proof memory proof, uint256 op) private {
        unchecked {
            if (!_isEven(op & 0x7f)) revert InvalidProof();
            address owner;
            bytes32 storageRoot = PackedTrie.EMPTY_TRIE_ROOT;
            uint256 follows = op >> 1 & 3;
            if (op & CLOSES_STORAGE != 0) {
                if (follows & STORAGE_ROOT_FOLLOWS != 0) revert InvalidProof();
                (owner, storageRoot) = _closeStorage(proof);
            } else if (proof.isStorageOpen || op & STORE_ANYTHING == 0) {
                // An account that stores nothing and closes nothing would be there for nothing.
                revert InvalidProof();
            }
            uint256 head = proof.input.take(2);
            if (op & CLOSES_STORAGE == 0) owner = proof.input.takeAddress();
            (uint256 nonce, uint256 balance) = _takeNumbers(proof.input, head);
            bytes32 codeHash;
            (storageRoot, codeHash) = _takeHashes(proof.input, follows, storageRoot);
            PackedTrie.pushAccount(proof.stack, _key(owner), head >> 10, nonce, balance, storageRoot, codeHash);

            uint256 fields = op & STORE_NONCE_AND_BALANCE == 0 ? 0 : NONCE_AND_BALANCE;
            if (op & STORE_STORAGE_ROOT != 0) fields |= STORAGE_ROOT;
            if (op & STORE_CODE_HASH != 0) fields |= CODE_HASH;
            _storeAccount(proof.blockNumber, owner, uint8(fields), nonce, balance, storageRoot, codeHash);
        }
    }

    function _absentAccount(Proof memory proof, uint256 op) private {
        unchecked {
            address owner;
            if (op & ABSENT_CLOSES_STORAGE != 0) {
                bytes32 storageRoot;
                (owner, storageRoot) = _closeStorage(proof);
                // An account that doesn't exist has no storage.
                if (storageRoot != PackedTrie.EMPTY_TRIE_ROOT) revert InvalidProof();
            } else {
                if (proof.isStorageOpen) revert InvalidProof();
                owner = proof.input.takeAddress();
            }
            uint256 key = _key(owner);
            uint256 how = op & 7;
            if (how > AT_LEAF) {
                uint256 head = proof.input.take(2);
                uint256 depth = head >> 10;
                uint256 other = PackedTrie.takeOtherKey(proof.input, key, depth, PackedTrie.NIBBLES);
                (uint256 nonce, uint256 balance) = _takeNumbers(proof.input, head);
                (bytes32 storageRoot, bytes32 codeHash) = _takeHashes(proof.input, how & 3, PackedTrie.EMPTY_TRIE_ROOT);
                PackedTrie.pushAccount(proof.stack, other, depth, nonce, balance, storageRoot, codeHash);
                PackedTrie.attach(proof.stack, key);
            } else {
                _absentKey(proof.stack, proof.input, how, key);
            }
            _storeAbsentAccount(proof.blockNumber, owner);
        }
    }

    /// @dev Nonce and balance, whose sizes are in the head of an account.
    function _takeNumbers(Calldata memory input, uint256 head) private pure returns (uint256 nonce, uint256 balance) {
        unchecked {
            // Nonces have 64 bits (EIP-2681).
            uint256 size = head >> 6 & 0x0f;
            if (size > 8) revert InvalidProof();
            nonce = input.takeShortest(size);
            balance = input.takeShortest(head & 0x3f);
        }
    }

    /// @dev Storage root and code hash of an account, where they follow. Where they don't they are `impliedRoot`, and the
    /// hash of no code. The root of the empty trie never follows, and neither does the hash of no code.
    function _takeHashes(Calldata memory input, uint256 follows, bytes32 impliedRoot)
        private
        pure
        returns (bytes32 storageRoot, bytes32 codeHash)
    {
        storageRoot = impliedRoot;
        codeHash = EMPTY_CODE_HASH;
        if (follows & STORAGE_ROOT_FOLLOWS != 0) {
            storageRoot = input.takeHash();
            if (storageRoot == 0 || storageRoot == PackedTrie.EMPTY_TRIE_ROOT) revert InvalidProof();
        }
        if (follows & CODE_HASH_FOLLOWS != 0) {
            codeHash = input.takeHash();
            if (codeHash == 0 || codeHash == EMPTY_CODE_HASH) revert InvalidProof();
        }
    }

    // --- Keys -------------------------------------------------------------------------------------------------------

    /// @dev A key that is absent elsewhere than at a leaf of its own.
    function _absentKey(Stack memory stack, Calldata memory input, uint256 how, uint256 key) internal pure {
        if (how == AT_EMPTY) PackedTrie.pushEmpty(stack, key, input.take(1));
        else if (how == AT_EXTENSION) PackedTrie.pushOtherExtension(stack, input, key);
        else if (how == AT_SAME) PackedTrie.attach(stack, key);
        else revert InvalidProof();
    }

    /// @dev Where an account is in the state trie.
    function _key(address account) private pure returns (uint256 key) {
        assembly ("memory-safe") {
            mstore(0, shl(96, account))
            key := keccak256(0, 20)
        }
    }

    /// @dev Where a slot is in its account's storage trie.
    function _key(uint256 slot) private pure returns (uint256 key) {
        assembly ("memory-safe") {
            mstore(0, slot)
            key := keccak256(0, 32)
        }
    }

    /// @dev How many subtrees the operation of a branch takes.
    function _countOf(uint256 op) internal pure returns (uint256) {
        unchecked {
            return (op & 0x0f) + 1;
        }
    }

    function _isBranch(uint256 op) internal pure returns (bool) {
        unchecked {
            // Below BRANCH the difference is huge.
            return op - BRANCH < END_OF_BRANCHES - BRANCH;
        }
    }

    /// @dev Whether a number of at most 32 bits has an even number of ones.
    function _isEven(uint256 bits) internal pure returns (bool) {
        unchecked {
            bits ^= bits >> 16;
            bits ^= bits >> 8;
            bits ^= bits >> 4;
            // A bit for each of sixteen numbers.
            return 0x9669 >> (bits & 0x0f) & 1 != 0;
        }
    }
}
