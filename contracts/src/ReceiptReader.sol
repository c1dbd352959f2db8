// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {ReceiptForm} from "./ReceiptForm.sol";
import {TrieWalk} from "@batch-query-service/contracts/src/TrieWalk.sol";

/// @dev The receipt of a transaction. All is zero where the block has no transaction of this index.
/// @param exists Whether the block has the transaction.
/// @param hasStatus Whether the receipt has a status. Before Byzantium it had a state root instead.
/// @param status 1 (success) or 0. Without a status it is 0, too.
/// @param transactionType The type (EIP-2718), below 0x80.
/// @param cumulativeGasUsed Gas that the block's transactions used up to this one, with it.
/// @param logCount The number of logs.
struct Receipt {
    bool exists;
    bool hasStatus;
    uint8 status;
    uint8 transactionType;
    uint64 cumulativeGasUsed;
    uint32 logCount;
}

/// @title Reads a receipt and its logs in calldata, as plain nodes of the trie of receipts show them.
/// @notice All of a receipt must be the only encoding there is. Where another transaction's receipt shows that this one is
/// absent, nothing is read from it. The bits of the bloom aren't compared with the logs: the root binds them, and nothing is read from them.
library ReceiptReader {
    uint256 private constant BLOOM = 256;

    // Items of a fixed length: the prefix of a string of 20 or 32 bytes, and the bytes.
    uint256 private constant EMITTER = 21;
    uint256 private constant EMITTER_PREFIX = 0x94;
    uint256 private constant TOPIC = 33;
    uint256 private constant TOPIC_PREFIX = 0xa0;
    uint256 private constant TOPICS = 4;

    /// @dev The receipt of an index, and where one of its logs begins and ends in calldata. Zeros where the block has no
    /// such transaction, or the receipt no such log.
    /// @param proof The RLP list of the nodes, each as a byte string, the root first.
    /// @param logIndex Counted from 0 within the receipt.
    function read(bytes calldata proof, bytes32 root, uint256 txIndex, uint256 logIndex)
        internal
        pure
        returns (Receipt memory receipt, uint256 log, uint256 logEnd)
    {
        (uint256 place, uint256 end, bool isOwn) = TrieWalk.findPlace(proof, root, txIndex);
        // Another transaction's receipt may be any value: it shows absence by its key.
        if (isOwn) return _receipt(place, end, logIndex);
    }

    /// @dev A log that `read` has found.
    function logItems(uint256 place, uint256 end)
        internal
        pure
        returns (address emitter, bytes32[] memory topics, bytes calldata data)
    {
        unchecked {
            (uint256 topic, uint256 topicsEnd, uint256 content) = _log(place, end);
            emitter = address(uint160(CalldataRlp.number(place, EMITTER)));
            topics = new bytes32[]((topicsEnd - topic) / TOPIC);
            for (uint256 index = 0; topic < topicsEnd; topic += TOPIC) {
                topics[index++] = bytes32(CalldataRlp.number(topic + 1, 32));
            }
            assembly ("memory-safe") {
                data.offset := content
                data.length := sub(end, content)
            }
        }
    }

    function _receipt(uint256 place, uint256 end, uint256 logIndex)
        private
        pure
        returns (Receipt memory receipt, uint256 log, uint256 logEnd)
    {
        unchecked {
            receipt.exists = true;
            uint256 type_;
            uint256 number;
            bool isList;
            (type_, place) = ReceiptForm.readType(place);
            receipt.transactionType = uint8(type_);

            place = CalldataRlp.list(place, end);
            // If there is no item, the next one isn't there either.
            (number, place) = ReceiptForm.readStatus(place, type_);
            receipt.hasStatus = number != ReceiptForm.NO_STATUS;
            if (receipt.hasStatus) receipt.status = uint8(number);

            (number, place) = CalldataRlp.integer(place, end, 8);
            receipt.cumulativeGasUsed = uint64(number);

            uint256 next;
            (place, next, isList) = CalldataRlp.item(place, end);
            if (isList || next - place != BLOOM) revert InvalidProof();

            (place, next, isList) = CalldataRlp.item(next, end);
            if (!isList) revert InvalidProof();
            (number, log, logEnd) = _logs(place, next, logIndex);
            receipt.logCount = uint32(number);

            ReceiptForm.passMore(type_, next, end);
        }
    }

    /// @dev The number of logs from a place to the end, and where the log of an index begins and ends; zeros for none.
    function _logs(uint256 place, uint256 end, uint256 logIndex)
        private
        pure
        returns (uint256 count, uint256 log, uint256 logEnd)
    {
        unchecked {
            while (place != end) {
                (uint256 content, uint256 next, bool isList) = CalldataRlp.item(place, end);
                if (!isList) revert InvalidProof();
                _log(content, next);
                if (count == logIndex) (log, logEnd) = (content, next);
                ++count;
                place = next;
            }
        }
    }

    /// @dev Where a log's topics begin and end, and where its data do, which are the last bytes.
    function _log(uint256 place, uint256 end) private pure returns (uint256 topics, uint256 topicsEnd, uint256 data) {
        unchecked {
            if (CalldataRlp.number(place, 1) != EMITTER_PREFIX) revert InvalidProof();

            bool isList;
            (topics, topicsEnd, isList) = CalldataRlp.item(place + EMITTER, end);
            uint256 size = topicsEnd - topics;
            if (!isList || size > TOPICS * TOPIC || size % TOPIC != 0) revert InvalidProof();
            for (place = topics; place < topicsEnd; place += TOPIC) {
                if (CalldataRlp.number(place, 1) != TOPIC_PREFIX) revert InvalidProof();
            }

            uint256 next;
            (data, next, isList) = CalldataRlp.item(topicsEnd, end);
            if (isList || next != end) revert InvalidProof();
        }
    }
}
