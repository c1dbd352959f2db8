// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {TransactionFacts} from "../src/TransactionFacts.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title A write to the stored facts about transactions, and every answer after it, from any state of storage.
/// @dev A question stands for all questions, as in `FactsProofs`. It is asked before and after one write.
contract TransactionFactsProofs is TransactionFacts, Symbolic {
    enum Kind {
        RECEIPT_FIELD,
        LOG_HASH,
        TRANSACTION_HASH
    }

    struct Question {
        Kind kind;
        uint256 blockNumber;
        uint32 txIndex;
        ReceiptField field;
        uint32 logIndex;
    }

    struct Answer {
        bool proven;
        bytes32 value;
    }

    /// @dev Where the compiler puts these facts.
    uint256 private constant PLACE = 0;

    function check_storing_a_receipt(
        Question memory asked,
        uint256 blockNumber,
        uint32 txIndex,
        bool hasStatus,
        bool status,
        uint8 type_,
        uint64 cumulativeGas,
        uint32 logCount
    ) external {
        vm.assume(_either(hasStatus, !status));
        Answer memory expected = _anyState(asked);
        (bool isKnown,) = tryReceiptField(blockNumber, txIndex, ReceiptField.EXISTS);
        if (_isAbout(asked, blockNumber, txIndex) && !isKnown) {
            uint256 value = 1;
            if (asked.field == ReceiptField.STATUS) value = status ? 1 : 0;
            if (asked.field == ReceiptField.TYPE) value = type_;
            if (asked.field == ReceiptField.CUMULATIVE_GAS_USED) value = cumulativeGas;
            if (asked.field == ReceiptField.LOG_COUNT) value = logCount;
            if (hasStatus || asked.field != ReceiptField.STATUS) expected = Answer(true, bytes32(value));
        }
        // `TransactionProof` puts them together in this way.
        uint256 fields = hasStatus ? WITH_STATUS | uint256(status ? 1 : 0) << STATUS_SHIFT : WITHOUT_STATUS;
        fields |= uint256(cumulativeGas) << GAS_SHIFT | uint256(type_) << TYPE_SHIFT;
        _storeReceipt(blockNumber, txIndex, fields, logCount);
        _assertAnswer(asked, expected);
    }

    function check_storing_an_absent_transaction(Question memory asked, uint256 blockNumber, uint32 txIndex) external {
        Answer memory expected = _anyState(asked);
        if (_isAbout(asked, blockNumber, txIndex) && asked.field == ReceiptField.EXISTS && !expected.proven) {
            expected = Answer(true, 0);
        }
        _storeAbsentTransaction(blockNumber, txIndex);
        _assertAnswer(asked, expected);
    }

    function check_storing_the_hash_of_a_log(
        Question memory asked,
        uint256 blockNumber,
        uint32 txIndex,
        uint32 logIndex,
        bytes32 hash
    ) external {
        vm.assume(hash != 0);
        Answer memory expected = _anyState(asked);
        bool isSame = _both(asked.blockNumber == blockNumber, asked.txIndex == txIndex);
        isSame = _both(isSame, _both(asked.kind == Kind.LOG_HASH, asked.logIndex == logIndex));
        if (isSame && !expected.proven) expected = Answer(true, hash);
        _storeLog(blockNumber, txIndex, logIndex, hash);
        _assertAnswer(asked, expected);
    }

    function check_storing_the_hash_of_a_transaction(
        Question memory asked,
        uint256 blockNumber,
        uint32 txIndex,
        bytes32 hash
    ) external {
        vm.assume(hash != 0);
        Answer memory expected = _anyState(asked);
        bool isSame = _both(asked.blockNumber == blockNumber, asked.txIndex == txIndex);
        if (_both(isSame, asked.kind == Kind.TRANSACTION_HASH) && !expected.proven) expected = Answer(true, hash);
        _storeTransactionHash(blockNumber, txIndex, hash);
        _assertAnswer(asked, expected);
    }

    /// @dev Both forms of a read answer the same. Where nothing is proven, one of them reverts and says what of.
    function check_both_forms_of_a_read_agree(Question memory asked) external {
        Answer memory answer = _anyState(asked);
        assert(_either(answer.proven, answer.value == 0));
        bytes memory read;
        bytes memory refusal;
        if (asked.kind == Kind.RECEIPT_FIELD) {
            read = abi.encodeCall(this.receiptField, (asked.blockNumber, asked.txIndex, asked.field));
            refusal = abi.encodeWithSelector(ReceiptNotProven.selector, asked.blockNumber, asked.txIndex, asked.field);
        } else if (asked.kind == Kind.LOG_HASH) {
            read = abi.encodeCall(this.logHash, (asked.blockNumber, asked.txIndex, asked.logIndex));
            refusal = abi.encodeWithSelector(LogNotProven.selector, asked.blockNumber, asked.txIndex, asked.logIndex);
        } else {
            read = abi.encodeCall(this.transactionHash, (asked.blockNumber, asked.txIndex));
            refusal = abi.encodeWithSelector(TransactionNotProven.selector, asked.blockNumber, asked.txIndex);
        }
        (bool isAnswered, bytes memory told) = address(this).staticcall(read);
        assert(isAnswered == answer.proven);
        assert(keccak256(told) == keccak256(isAnswered ? abi.encode(answer.value) : refusal));
    }

    function _isAbout(Question memory asked, uint256 blockNumber, uint256 txIndex) private pure returns (bool) {
        return _both(
            asked.kind == Kind.RECEIPT_FIELD, _both(asked.blockNumber == blockNumber, asked.txIndex == txIndex)
        );
    }

    function _anyState(Question memory asked) private returns (Answer memory) {
        svm.enableSymbolicStorage(address(this));
        vm.assume(_hasPresence(asked));
        return _answer(asked);
    }

    function _assertAnswer(Question memory asked, Answer memory expected) private view {
        Answer memory answer = _answer(asked);
        assert(_both(answer.proven == expected.proven, answer.value == expected.value));
        assert(_hasPresence(asked));
    }

    function _answer(Question memory asked) private view returns (Answer memory answer) {
        if (asked.kind == Kind.RECEIPT_FIELD) {
            (answer.proven, answer.value) = tryReceiptField(asked.blockNumber, asked.txIndex, asked.field);
        } else if (asked.kind == Kind.LOG_HASH) {
            (answer.proven, answer.value) = tryLogHash(asked.blockNumber, asked.txIndex, asked.logIndex);
        } else {
            (answer.proven, answer.value) = tryTransactionHash(asked.blockNumber, asked.txIndex);
        }
    }

    /// @dev Where anything of a receipt is stored, so is its presence.
    function _hasPresence(Question memory asked) private view returns (bool) {
        bytes32 place = keccak256(abi.encode(uint256(asked.txIndex), keccak256(abi.encode(asked.blockNumber, PLACE))));
        uint256 receipt;
        assembly {
            receipt := sload(place)
        }
        uint256 presence = receipt >> 248;
        return _either(receipt == 0, _both(presence != 0, presence <= 3));
    }
}
