// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Calldata, CalldataReader} from "./Calldata.sol";
import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {LeafWriter} from "./LeafWriter.sol";
import {MemoryZones} from "./MemoryZones.sol";
import {PackedTrie} from "./PackedTrie.sol";
import {ReceiptForm} from "./ReceiptForm.sol";
import {StateProof} from "./StateProof.sol";
import {Stack, SubtreeStack} from "./SubtreeStack.sol";
import {TransactionFacts} from "./TransactionFacts.sol";
import {TrieWalk} from "@batch-query-service/contracts/src/TrieWalk.sol";
import {UnboundedRlp} from "./UnboundedRlp.sol";

/// @title Proves receipts, logs and hashes of the transactions of one block, by the operations that
/// docs/developing/proof-format.md specifies.
/// @notice Facts are stored before their root is known. The caller must undo all if that root isn't trusted.
abstract contract TransactionProof is StateProof, TransactionFacts {
    using CalldataReader for Calldata;
    using SubtreeStack for Stack;

    // Tries of transactions, by the byte that names them.
    uint256 internal constant RECEIPTS = 0x3d;
    uint256 internal constant TRANSACTIONS = 0x3e;

    // Operations, by their first byte. Those of branches and extensions are the state's.
    uint256 private constant LOGS = 0x50;
    uint256 private constant FIELDS = 0x53;
    uint256 private constant FIELDS_AND_LOGS = 0x55;
    uint256 private constant TRANSACTION = 0x56;
    uint256 private constant ABSENT_TRANSACTION = 0x60; // to 0x67: twice the kind of absence, and a bit for parity

    // More than any log's index, with the bit that no other follows.
    uint256 private constant NO_LOG = type(uint256).max - 1;

    // Prefixes of strings of 32 and 20 bytes.
    uint256 private constant HASH_PREFIX = 0xa0;
    uint256 private constant ADDRESS_PREFIX = 0x94;

    /// @dev Runs the operations that are left of calldata, stores what they prove, and answers the root of the trie in
    /// which it all holds. Nothing may be kept unless that root is trusted.
    /// @param cursor Where the operations begin.
    /// @param trie RECEIPTS or TRANSACTIONS.
    function _proveTransactions(uint256 blockNumber, uint256 cursor, uint256 trie) internal returns (bytes32) {
        Stack memory stack = Stack(MemoryZones.STACK, MemoryZones.STACK);
        Calldata memory input;
        MemoryZones.check();
        unchecked {
            while (cursor < msg.data.length) {
                uint256 op = CalldataRlp.number(cursor, 1);
                ++cursor;
                if (op == FULL_BRANCH) {
                    cursor = PackedTrie.fullBranches(stack, cursor);
                } else if (_isBranch(op)) {
                    cursor = PackedTrie.branch(stack, cursor, _countOf(op), op >= BRANCH_WITH_NODES);
                } else if (trie == RECEIPTS && _isReceipt(op)) {
                    cursor = _receipt(stack, cursor, blockNumber, op);
                } else {
                    input.cursor = cursor;
                    if (op == EXTENSION) PackedTrie.extend(stack, input.take(1));
                    else if (trie == TRANSACTIONS && op == TRANSACTION) _transaction(stack, input, blockNumber);
                    else if (trie == RECEIPTS && op >> 3 == ABSENT_TRANSACTION >> 3) {
                        _absentTransaction(stack, input, blockNumber, op & 7);
                    } else revert InvalidProof();
                    cursor = input.cursor;
                }
            }
        }
        return PackedTrie.root(stack);
    }

    function _isReceipt(uint256 op) private pure returns (bool) {
        unchecked {
            // A bit for each of the three. Below LOGS the difference is huge.
            return (1 | 1 << (FIELDS - LOGS) | 1 << (FIELDS_AND_LOGS - LOGS)) >> (op - LOGS) & 1 != 0;
        }
    }

    /// @dev The leaf of a transaction. The facts have the hash of its value, whatever that is.
    function _transaction(Stack memory stack, Calldata memory input, uint256 blockNumber) private {
        (uint256 index, bytes32 hash) = _wholeLeaf(stack, input);
        _storeTransactionHash(blockNumber, index, hash);
    }

    /// @dev A leaf that was sent whole: its index, its depth, the size of its value (3) and its value, whose hash is returned.
    function _wholeLeaf(Stack memory stack, Calldata memory input) private pure returns (uint256 index, bytes32 hash) {
        uint256 next;
        (index, next) = _readIndex(input.cursor);
        uint256 depth = CalldataRlp.number(next, 1);
        uint256 size = CalldataRlp.number(next + 1, 3);
        input.skip(next + 4 - input.cursor);
        uint256 place = input.skip(size);
        uint256 value = LeafWriter.begin(stack, size);
        assembly ("memory-safe") {
            calldatacopy(value, place, size)
            hash := keccak256(value, size)
        }
        _pushLeaf(stack, index, depth, value, size);
    }

    /// @dev The leaf of a receipt: its index, its depth, the logs to store, and its bytes without the bloom, which follows
    /// from the logs.
    /// @return end Where the operation that follows begins.
    function _receipt(Stack memory stack, uint256 start, uint256 blockNumber, uint256 op)
        private
        returns (uint256 end)
    {
        unchecked {
            (uint256 index, uint256 wanted) = _readIndex(start);
            uint256 depth = CalldataRlp.number(wanted, 1);
            ++wanted;
            uint256 place = wanted;
            if (op != FIELDS) {
                while (CalldataRlp.number(place, 2) & 1 != 0) place += 2;
                place += 2;
            }
            uint256 fields;
            uint256 behind;
            (fields, behind, end) = _readFields(place);
            CalldataReader.behind(start, end - start);
            uint256 size = end - place + LeafWriter.BLOOM;
            uint256 value = LeafWriter.begin(stack, size);
            uint256 bloom = LeafWriter.putReceipt(value, place, behind, end);
            (uint256 count, uint256 cursor) =
                _proveLogs(blockNumber, index, op == FIELDS ? NO_LOG : _logAt(wanted), wanted, behind, bloom);
            ReceiptForm.passMore(_typeOf(fields), cursor, end);
            _pushLeaf(stack, index, depth, value, size);
            if (op != LOGS) _storeReceipt(blockNumber, index, fields, count);
        }
    }

    /// @dev A transaction that the block doesn't have, because no transaction has so great an index. Beside the leaf of
    /// another one, that leaf comes whole: it may be any value, because nothing is read from it.
    function _absentTransaction(Stack memory stack, Calldata memory input, uint256 blockNumber, uint256 low) private {
        (uint256 index, uint256 next) = _readIndex(input.cursor);
        input.skip(next - input.cursor);
        // The root doesn't bind every bit of the index, so one bit makes the number of ones even.
        if (_isEven(index) == (low & 1 != 0)) revert InvalidProof();
        (uint256 key, uint256 reach) = TrieWalk.indexKey(index);
        if (low >> 1 == AT_LEAF) {
            _wholeLeaf(stack, input);
            PackedTrie.attach(stack, key);
        } else {
            _absentKey(stack, input, low >> 1, key);
        }
        // No key is shorter than the way to where it would be.
        if (stack.peek().depth() > reach) revert InvalidProof();
        _storeAbsentTransaction(blockNumber, index);
    }

    /// @dev The index of a transaction: its size, then its bytes. No block has more transactions than two bytes can tell.
    /// And where what follows begins. The caller checks that all of it was sent.
    function _readIndex(uint256 place) private pure returns (uint256 index, uint256 next) {
        unchecked {
            uint256 size = CalldataRlp.number(place, 1);
            if (size > 2) revert InvalidProof();
            next = place + 1 + size;
            index = CalldataRlp.number(place + 1, size);
            if (size != 0 && index >> (8 * size - 8) == 0) revert InvalidProof();
        }
    }

    function _pushLeaf(Stack memory stack, uint256 index, uint256 depth, uint256 value, uint256 size) private pure {
        (uint256 key, uint256 reach) = TrieWalk.indexKey(index);
        stack.push(LeafWriter.hash(value, size, key, depth, reach), 0, key, depth, reach, 0);
    }

    // --- Receipts ---------------------------------------------------------------------------------------------------

    /// @dev What comes before the bloom.
    /// @return fields As they are stored, but for the number of logs.
    /// @return next Where what follows the bloom begins.
    /// @return end Where the receipt ends.
    function _readFields(uint256 place) private pure returns (uint256 fields, uint256 next, uint256 end) {
        unchecked {
            uint256 type_;
            (type_, next) = ReceiptForm.readType(place);
            (end, next) = UnboundedRlp.prefix(next, CalldataRlp.LIST);
            end += next - LeafWriter.BLOOM;
            (fields, next) = ReceiptForm.readStatus(next, type_);
            fields = fields == ReceiptForm.NO_STATUS ? WITHOUT_STATUS : WITH_STATUS | fields << STATUS_SHIFT;
            uint256 cumulativeGas;
            (cumulativeGas, next) = UnboundedRlp.integer(next);
            if (next > end) revert InvalidProof();
            fields |= cumulativeGas << GAS_SHIFT | type_ << TYPE_SHIFT;
        }
    }

    /// @dev Twice the index of a log to store, and one more if another follows. Calldata has three times this: no flip of one
    /// bit leaves a multiple of three.
    function _logAt(uint256 place) private pure returns (uint256 log) {
        unchecked {
            log = CalldataRlp.number(place, 2);
            if (log % 3 != 0) revert InvalidProof();
            return log / 3;
        }
    }

    /// @dev Puts logs into the bloom, and stores the wanted ones.
    /// @param log The first of these, as `_logAt` has it, from calldata at `wanted`.
    /// @param place Where the logs begin. In memory they follow the bloom.
    /// @return count How many there are.
    /// @return cursor Where they end.
    function _proveLogs(
        uint256 blockNumber,
        uint256 index,
        uint256 log,
        uint256 wanted,
        uint256 place,
        uint256 bloom
    ) private returns (uint256 count, uint256 cursor) {
        unchecked {
            uint256 end;
            (end, cursor) = UnboundedRlp.prefix(place, CalldataRlp.LIST);
            end += cursor;
            // The data of a log are hashed in as much memory as they claim to take.
            if (end > msg.data.length) revert InvalidProof();
            while (cursor < end) {
                uint256 words;
                uint256 size;
                (cursor, words, size) = _readLog(cursor, bloom);
                if (cursor > end) revert InvalidProof();
                if (log >> 1 == count) {
                    // The data are the last bytes of the log.
                    uint256 data = bloom + LeafWriter.BLOOM_BYTES + cursor - place - size;
                    _storeLog(blockNumber, index, count, _hashLog(words, data, size));
                    wanted += 2;
                    log = log & 1 == 0 ? NO_LOG : _logAt(wanted);
                }
                ++count;
            }
            if (log != NO_LOG) revert InvalidProof();
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
            (size, cursor) = UnboundedRlp.prefix(cursor, CalldataRlp.LIST);
            next = cursor + size;

            if (CalldataRlp.number(cursor, 1) != ADDRESS_PREFIX) revert InvalidProof();
            bytes32 hash;
            word = MemoryZones.NODE;
            uint256 emitter = CalldataRlp.number(cursor + 1, 20);
            assembly ("memory-safe") {
                mstore(word, emitter)
                hash := keccak256(add(word, 12), 20)
            }
            LeafWriter.setBits(bloom, hash);
            word += 32;

            (size, cursor) = UnboundedRlp.prefix(cursor + 21, CalldataRlp.LIST);
            // Topics are strings of 32 bytes, at most four.
            if (size > 4 * 33 || size % 33 != 0) revert InvalidProof();
            for (uint256 behind = cursor + size; cursor < behind; cursor += 33) {
                if (CalldataRlp.number(cursor, 1) != HASH_PREFIX) revert InvalidProof();
                assembly ("memory-safe") {
                    mstore(word, calldataload(add(cursor, 1)))
                    hash := keccak256(word, 32)
                }
                LeafWriter.setBits(bloom, hash);
                word += 32;
            }

            (cursor, size) = UnboundedRlp.string_(cursor);
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
