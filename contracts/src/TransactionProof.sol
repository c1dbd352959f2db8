// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Calldata, CalldataReader} from "./Calldata.sol";
import {CalldataRlp} from "./CalldataRlp.sol";
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

    // Tries of transactions, by the byte that names them.
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

    // Prefixes of strings of 32 and 20 bytes.
    uint256 private constant HASH_PREFIX = 0xa0;
    uint256 private constant ADDRESS_PREFIX = 0x94;

    /// @dev What the operations work on.
    struct TransactionsProof {
        Calldata input;
        Stack stack;
        uint256 blockNumber;
        // The leaf that is being read: its value, the transaction's index, the key, and its nibbles.
        Leaf leaf;
        uint256 index;
        uint256 key;
        uint256 reach;
    }

    /// @dev Runs the operations that are left of calldata, stores what they prove, and answers the root of the trie in
    /// which it all holds. Nothing may be kept unless that root is trusted.
    /// @param trie RECEIPTS or TRANSACTIONS.
    function _proveTransactions(uint256 blockNumber, Calldata memory input, uint256 trie) internal returns (bytes32) {
        TransactionsProof memory proof = TransactionsProof(input, Stack(0, 0), blockNumber, Leaf(0, 0), 0, 0, 0);
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
        uint256 depth = _openLeaf(proof);
        uint256 size = proof.input.take(3);
        proof.leaf.move(proof.input, size);
        uint256 place = proof.leaf.begin;
        bytes32 hash;
        assembly ("memory-safe") {
            hash := keccak256(place, size)
        }
        _pushLeaf(proof, depth);
        _storeTransactionHash(proof.blockNumber, proof.index, hash);
    }

    /// @dev The leaf of a receipt: its index, its depth, and its bytes without the bloom, which follows from the logs.
    /// Before each log is a byte that tells whether to store it.
    function _receipt(TransactionsProof memory proof, bool stored) private {
        uint256 depth = _openLeaf(proof);
        (uint256 fields, uint256 end) = _moveFields(proof);
        (uint256 count, bool any) = _moveLogs(proof, proof.leaf.putBloom());
        if (proof.leaf.end != end && _typeOf(fields) == OP_DEPOSIT) _moveDeposit(proof);
        if (proof.leaf.end != end || !(any || stored)) revert InvalidProof();
        _pushLeaf(proof, depth);
        if (stored) _storeReceipt(proof.blockNumber, proof.index, fields, count);
    }

    /// @dev A transaction that the block doesn't have, because no transaction has so great an index.
    function _absentTransaction(TransactionsProof memory proof, uint256 low) private {
        _takeIndex(proof);
        uint256 index = proof.index;
        // The root doesn't bind every bit of the index, so one bit makes the number of ones even.
        if (_isEven(index) == (low & 1 != 0)) revert InvalidProof();
        _absentKey(proof.stack, proof.input, low >> 1, proof.key);
        // No key is shorter than the way to where it would be.
        if (proof.stack.peek().depth() > proof.reach) revert InvalidProof();
        _storeAbsentTransaction(proof.blockNumber, index);
    }

    /// @dev The index of a transaction, and its key: the index's RLP, as the highest of 64 nibbles. No such key begins with
    /// another.
    function _takeIndex(TransactionsProof memory proof) private pure {
        unchecked {
            uint256 size = proof.input.take(1);
            // No block has more transactions.
            if (size > 2) revert InvalidProof();
            uint256 index = proof.input.takeShortest(size);
            proof.index = index;
            if (index != 0 && index < 0x80) {
                (proof.key, proof.reach) = (index << 248, 2);
            } else {
                (proof.key, proof.reach) = ((0x80 + size) << 248 | index << (248 - 8 * size), 2 + 2 * size);
            }
        }
    }

    function _openLeaf(TransactionsProof memory proof) private pure returns (uint256 depth) {
        _takeIndex(proof);
        depth = proof.input.take(1);
        proof.leaf.open(proof.stack);
    }

    function _pushLeaf(TransactionsProof memory proof, uint256 depth) private pure {
        bytes32 hash = proof.leaf.finish(proof.key, depth, proof.reach);
        proof.stack.push(hash, 0, proof.key, depth, proof.reach, 0);
    }

    // --- Receipts ---------------------------------------------------------------------------------------------------

    /// @dev What comes before the bloom.
    /// @return fields As `_fields` has them.
    /// @return end Where the receipt ends in memory, where it is whole.
    function _moveFields(TransactionsProof memory proof) private pure returns (uint256 fields, uint256 end) {
        unchecked {
            uint256 place = proof.input.cursor;
            (uint256 type_, uint256 cursor) = _readType(place);
            (end, cursor) = CalldataRlp.prefix(cursor, CalldataRlp.LIST);
            end += proof.leaf.end + (cursor - place);
            uint256 status;
            (status, cursor) = _readStatus(cursor, type_);
            uint256 cumulativeGas;
            (cumulativeGas, cursor) = CalldataRlp.integer(cursor);
            proof.leaf.move(proof.input, cursor - place);
            fields = _fields(status, type_, cumulativeGas);
        }
    }

    /// @dev What comes after the logs of a deposit since Canyon: its nonce and its version.
    function _moveDeposit(TransactionsProof memory proof) private pure {
        unchecked {
            uint256 place = proof.input.cursor;
            (, uint256 cursor) = CalldataRlp.integer(place);
            (, cursor) = CalldataRlp.integer(cursor);
            proof.leaf.move(proof.input, cursor - place);
        }
    }

    /// @dev A byte below 0x80 before the list is the transaction's type; without it, that is 0.
    function _readType(uint256 place) private pure returns (uint256 type_, uint256 next) {
        unchecked {
            type_ = CalldataReader.read(place, 1);
            if (type_ >= CalldataRlp.STRING) return (0, place);
            if (type_ == 0 || (type_ > NEWEST_TYPE && type_ != ARBITRUM_INTERNAL && type_ != OP_DEPOSIT)) {
                revert UnknownReceiptType(type_);
            }
            next = place + 1;
        }
    }

    /// @dev The first field: 0 (0x80) or 1; or, before Byzantium and so without a type, a root.
    function _readStatus(uint256 place, uint256 type_) private pure returns (uint256 status, uint256 next) {
        unchecked {
            uint256 first = CalldataReader.read(place, 1);
            if (first == HASH_PREFIX && type_ == 0) return (NO_STATUS, place + 33);
            if (first != 0x80 && first != 0x01) revert InvalidProof();
            return (first & 1, place + 1);
        }
    }

    /// @dev How many logs there are, and whether any was stored.
    function _moveLogs(TransactionsProof memory proof, uint256 bloom)
        private
        returns (uint256 count, bool any)
    {
        unchecked {
            Leaf memory leaf = proof.leaf;
            Calldata memory input = proof.input;
            (uint256 size, uint256 content) = CalldataRlp.prefix(input.cursor, CalldataRlp.LIST);
            leaf.move(input, content - input.cursor);
            uint256 end = leaf.end + size;
            while (leaf.end < end) {
                uint256 stored = input.take(1);
                if (stored != 0 && stored != LOG_STORED) revert InvalidProof();
                (uint256 next, uint256 words, uint256 dataSize) = _readLog(input.cursor, bloom);
                leaf.move(input, next - input.cursor);
                if (stored != 0) {
                    // The data are the last bytes of the log.
                    bytes32 hash = _hashLog(words, leaf.end - dataSize, dataSize);
                    _storeLog(proof.blockNumber, proof.index, count, hash);
                    any = true;
                }
                ++count;
            }
            if (leaf.end != end) revert InvalidProof();
        }
    }

    /// @dev A log: a list of emitter, topics and data. Emitter and topics go into the bloom; and, as words, into the zone
    /// of nodes, of which none is being written.
    /// @return next Where the log ends. The caller checks that all of it was sent.
    /// @return word Where the words end in memory.
    /// @return size Bytes of the data, which are the log's last.
    function _readLog(uint256 cursor, uint256 bloom)
        private
        pure
        returns (uint256 next, uint256 word, uint256 size)
    {
        unchecked {
            (size, cursor) = CalldataRlp.prefix(cursor, CalldataRlp.LIST);
            next = cursor + size;

            if (CalldataReader.read(cursor, 1) != ADDRESS_PREFIX) revert InvalidProof();
            bytes32 hash;
            word = MemoryZones.NODE;
            uint256 emitter = CalldataReader.read(cursor + 1, 20);
            assembly ("memory-safe") {
                mstore(word, emitter)
                hash := keccak256(add(word, 12), 20)
            }
            LeafWriter.setBits(bloom, hash);
            word += 32;

            (size, cursor) = CalldataRlp.prefix(cursor + 21, CalldataRlp.LIST);
            // Topics are strings of 32 bytes, at most four.
            if (size > 4 * 33 || size % 33 != 0) revert InvalidProof();
            for (uint256 behind = cursor + size; cursor < behind; cursor += 33) {
                if (CalldataReader.read(cursor, 1) != HASH_PREFIX) revert InvalidProof();
                assembly ("memory-safe") {
                    mstore(word, calldataload(add(cursor, 1)))
                    hash := keccak256(word, 32)
                }
                LeafWriter.setBits(bloom, hash);
                word += 32;
            }

            (cursor, size) = CalldataRlp.string_(cursor);
            if (cursor + size != next) revert InvalidProof();
        }
    }

    /// @dev The keccak256 of a log's words and of its data's keccak256: six words at most.
    function _hashLog(uint256 words, uint256 data, uint256 size) private pure returns (bytes32 hash) {
        uint256 zone = MemoryZones.NODE;
        assembly ("memory-safe") {
            mstore(words, keccak256(data, size))
            hash := keccak256(zone, sub(add(words, 32), zone))
        }
    }
}
