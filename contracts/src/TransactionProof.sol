// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Calldata, CalldataReader} from "./Calldata.sol";
import {InvalidProof} from "./InvalidProof.sol";
import {Leaf, LeafWriter} from "./LeafWriter.sol";
import {MemoryZones} from "./MemoryZones.sol";
import {PackedTrie} from "./PackedTrie.sol";
import {StateProof} from "./StateProof.sol";
import {Stack, SubtreeStack} from "./SubtreeStack.sol";
import {TransactionFacts} from "./TransactionFacts.sol";

/// @notice No receipts of this transaction type are known here, so nothing of this one can be proven.
error UnknownReceiptType(uint256 type_);

/// @title Proves receipts, logs and hashes of the transactions of one block, by the operations that
/// docs/developing/proof-format.md specifies.
/// @notice Facts are stored before their root is known. The caller must undo all if that root isn't trusted.
abstract contract TransactionProof is StateProof, TransactionFacts {
    using CalldataReader for Calldata;
    using LeafWriter for Leaf;
    using SubtreeStack for Stack;

    // What names the trie, by its first byte.
    uint256 internal constant RECEIPTS = 0x3d;
    uint256 internal constant TRANSACTIONS = 0x3e;

    // Operations, by their first byte. Those of branches and extensions are the state's.
    uint256 private constant RECEIPT = 0x50;
    uint256 private constant RECEIPT_STORED = 0x53;
    uint256 private constant TRANSACTION = 0x56;
    uint256 private constant ABSENT_TRANSACTION = 0x60; // to 0x65: twice the kind of absence, and a bit for parity

    // Before a log: whether to store it. Two bits, because the root doesn't bind it.
    uint256 private constant LOG_STORED = 0x03;

    // Types of receipts that aren't numbered from 0 on.
    uint256 private constant NEWEST_TYPE = 4;
    uint256 private constant ARBITRUM_INTERNAL = 0x6a;
    uint256 private constant OP_DEPOSIT = 0x7e;

    uint256 private constant NO_STATUS = 2;

    /// @dev What the operations work on.
    struct TransactionsProof {
        Calldata input;
        Stack stack;
        Leaf leaf;
        uint256 blockNumber;
    }

    /// @dev Runs the operations from `cursor` to the end of calldata, stores what they prove, and answers the root of
    /// the trie in which it all holds. Nothing may be kept unless that root is trusted.
    /// @param trie RECEIPTS or TRANSACTIONS.
    function _proveTransactions(uint256 blockNumber, uint256 cursor, uint256 trie) internal returns (bytes32) {
        TransactionsProof memory proof;
        proof.input.cursor = cursor;
        proof.blockNumber = blockNumber;
        proof.stack.begin();
        MemoryZones.check();
        while (!proof.input.atEnd()) {
            uint256 op = proof.input.take(1);
            if (op == FULL_BRANCH) PackedTrie.fullBranches(proof.stack, proof.input);
            else if (op >> 4 == BRANCH >> 4) PackedTrie.branch(proof.stack, proof.input, (op & 0x0f) + 1);
            else if (op == EXTENSION) PackedTrie.extend(proof.stack, proof.input.take(1));
            else if (trie == TRANSACTIONS && op == TRANSACTION) _transaction(proof);
            else if (trie == RECEIPTS && (op == RECEIPT || op == RECEIPT_STORED)) _receipt(proof, op == RECEIPT_STORED);
            else if (trie == RECEIPTS && op >> 3 == ABSENT_TRANSACTION >> 3) _absentTransaction(proof, op & 7);
            else revert InvalidProof();
        }
        return PackedTrie.root(proof.stack);
    }

    /// @dev The leaf of a transaction: its index, its depth, its size (3) and its bytes.
    function _transaction(TransactionsProof memory proof) private {
        unchecked {
            (uint256 index, uint256 key, uint256 reach) = _takeIndex(proof.input);
            uint256 depth = proof.input.take(1);
            uint256 size = proof.input.take(3);
            proof.leaf.open(proof.stack);
            proof.leaf.move(proof.input, size);
            uint256 place = proof.leaf.begin;
            bytes32 hash;
            assembly ("memory-safe") {
                hash := keccak256(place, size)
            }
            _pushLeaf(proof, key, depth, reach);
            _storeTransactionHash(proof.blockNumber, index, hash);
        }
    }

    /// @dev The leaf of a receipt: its index, its depth, and its bytes without the bloom, which follows from the logs.
    /// Before each log is a byte that tells whether to store it.
    function _receipt(TransactionsProof memory proof, bool stored) private {
        unchecked {
            (uint256 index, uint256 key, uint256 reach) = _takeIndex(proof.input);
            uint256 depth = proof.input.take(1);
            Leaf memory leaf = proof.leaf;
            leaf.open(proof.stack);

            uint256 type_ = _moveType(proof);
            // Ends of lists are places in memory, where the value is whole.
            uint256 end = leaf.moveListPrefix(proof.input);
            end += leaf.end;
            uint256 status = _moveStatus(proof, type_);
            uint256 cumulativeGas = leaf.moveInteger(proof.input);
            uint256 bloom = leaf.putBloom();
            (uint256 count, bool any) = _moveLogs(proof, index, bloom);
            if (type_ == OP_DEPOSIT && leaf.end != end) {
                // Nonce and version of a deposit, since Canyon.
                leaf.moveInteger(proof.input);
                leaf.moveInteger(proof.input);
            }
            if (leaf.end != end || !(any || stored)) revert InvalidProof();
            _pushLeaf(proof, key, depth, reach);
            if (stored) _storeReceipt(proof.blockNumber, index, status, type_, cumulativeGas, count);
        }
    }

    /// @dev A transaction that the block doesn't have, because no transaction has so great an index.
    function _absentTransaction(TransactionsProof memory proof, uint256 low) private {
        (uint256 index, uint256 key,) = _takeIndex(proof.input);
        // The root doesn't bind every bit of the index, so one bit makes the number of ones even.
        if (_isEven(index) == (low & 1 != 0)) revert InvalidProof();
        _absentKey(proof.stack, proof.input, low >> 1, key);
        _storeAbsentTransaction(proof.blockNumber, index);
    }

    /// @dev The index of a transaction, and its key: the index's RLP, as the highest of 64 nibbles. No such key begins with
    /// another.
    /// @return index From 0.
    /// @return key Padded with zeros.
    /// @return reach Nibbles of the key.
    function _takeIndex(Calldata memory input) private pure returns (uint256 index, uint256 key, uint256 reach) {
        unchecked {
            uint256 size = input.take(1);
            // No block has more transactions.
            if (size > 2) revert InvalidProof();
            index = input.takeShortest(size);
            if (index == 0) return (0, 0x80 << 248, 2);
            if (index < 0x80) return (index, index << 248, 2);
            return (index, (0x80 + size) << 248 | index << (248 - 8 * size), 2 + 2 * size);
        }
    }

    function _pushLeaf(TransactionsProof memory proof, uint256 key, uint256 depth, uint256 reach) private pure {
        bytes32 hash = proof.leaf.finish(key, depth, reach);
        proof.stack.push(hash, 0, key, depth, reach, 0);
    }

    // --- Receipts ---------------------------------------------------------------------------------------------------

    /// @dev A byte below 0x80 before the list is the transaction's type; without it, that is 0.
    function _moveType(TransactionsProof memory proof) private pure returns (uint256 type_) {
        type_ = proof.input.peek();
        if (type_ >= 0x80) return 0;
        if (type_ == 0 || (type_ > NEWEST_TYPE && type_ != ARBITRUM_INTERNAL && type_ != OP_DEPOSIT)) {
            revert UnknownReceiptType(type_);
        }
        proof.leaf.move(proof.input, 1);
    }

    /// @dev The first field: 0 (0x80) or 1; or, before Byzantium and so without a type, a root.
    function _moveStatus(TransactionsProof memory proof, uint256 type_) private pure returns (uint256) {
        uint256 first = proof.input.peek();
        if (first == 0xa0 && type_ == 0) {
            proof.leaf.move(proof.input, 33);
            return NO_STATUS;
        }
        if (first != 0x80 && first != 0x01) revert InvalidProof();
        proof.leaf.move(proof.input, 1);
        return first & 1;
    }

    /// @dev How many logs there are, and whether any was stored.
    function _moveLogs(TransactionsProof memory proof, uint256 index, uint256 bloom)
        private
        returns (uint256 count, bool any)
    {
        unchecked {
            Leaf memory leaf = proof.leaf;
            uint256 end = leaf.moveListPrefix(proof.input);
            end += leaf.end;
            while (leaf.end < end) {
                uint256 stored = proof.input.take(1);
                if (stored != 0 && stored != LOG_STORED) revert InvalidProof();
                bytes32 hash = _moveLog(proof, bloom);
                if (stored != 0) {
                    _storeLog(proof.blockNumber, index, count, hash);
                    any = true;
                }
                ++count;
            }
            if (leaf.end != end) revert InvalidProof();
        }
    }

    /// @dev A log: a list of emitter, topics and data. Its emitter and topics are in the bloom.
    /// @return hash The keccak256 of these as words, and of the data's keccak256.
    function _moveLog(TransactionsProof memory proof, uint256 bloom) private pure returns (bytes32 hash) {
        unchecked {
            Leaf memory leaf = proof.leaf;
            uint256 end = leaf.moveListPrefix(proof.input);
            end += leaf.end;

            uint256 place = leaf.move(proof.input, 21);
            if (CalldataReader.read(place, 1) != 0x94) revert InvalidProof();
            uint256 emitter = CalldataReader.read(place + 1, 20);
            assembly ("memory-safe") {
                mstore(0, emitter)
                hash := keccak256(12, 20)
            }
            LeafWriter.setBits(bloom, hash);
            // Six words at most, in the zone of nodes, of which none is being written.
            uint256 zone = MemoryZones.NODE;
            uint256 word = zone;
            assembly ("memory-safe") {
                mstore(word, emitter)
            }

            uint256 size = leaf.moveListPrefix(proof.input);
            place = leaf.move(proof.input, size);
            if (size > 4 * 33) revert InvalidProof();
            for (uint256 behind = place + size; place != behind; place += 33) {
                // A list that isn't one of hashes has another prefix somewhere, or ends within a topic.
                if (behind - place < 33 || CalldataReader.read(place, 1) != 0xa0) revert InvalidProof();
                word += 32;
                assembly ("memory-safe") {
                    mstore(word, calldataload(add(place, 1)))
                    hash := keccak256(word, 32)
                }
                LeafWriter.setBits(bloom, hash);
            }

            uint256 content = leaf.moveString(proof.input);
            size = leaf.end;
            if (size != end) revert InvalidProof();
            size -= content;
            word += 32;
            assembly ("memory-safe") {
                mstore(word, keccak256(content, size))
                hash := keccak256(zone, sub(add(word, 32), zone))
            }
        }
    }
}
