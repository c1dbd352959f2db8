// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {InvalidProof} from "./InvalidProof.sol";
import {TrieWalk} from "./TrieWalk.sol";

/// @dev The receipt of a transaction. All is zero where the block has no transaction of this index.
/// @param exists Whether the block has the transaction.
/// @param hasStatus Whether the receipt has a status. Before Byzantium it had a state root instead.
/// @param status 1 (success) or 0. Without a status it is 0, too.
/// @param transactionType The type (EIP-2718): 0 to 4, 0x6a (Arbitrum's own) or 0x7e (OP Stack's deposits).
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
/// @notice All of a receipt must be the only encoding there is, also where another transaction's receipt shows that this
/// one is absent. The bits of the bloom aren't compared with the logs: the root binds them, and nothing is read from them.
library ReceiptReader {
    /// @notice No receipts of this transaction type are known here, so nothing of this one can be shown.
    error UnknownReceiptType(uint256 type_);

    // The first byte of a string or a list. Types are below.
    uint256 private constant STRING = 0x80;

    // Types of receipts that aren't numbered from 0 on.
    uint256 private constant NEWEST_TYPE = 4;
    uint256 private constant ARBITRUM_INTERNAL = 0x6a;
    uint256 private constant OP_DEPOSIT = 0x7e;

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
        (uint256 place, uint256 end, bool isOwn) = TrieWalk.findReceipt(proof, root, txIndex);
        if (end == 0) return (receipt, 0, 0);
        // The receipt of another transaction is read as strictly.
        (receipt, log, logEnd) = _receipt(place, end, logIndex);
        if (!isOwn) {
            Receipt memory absent;
            return (absent, 0, 0);
        }
    }

    /// @dev A log that `read` has found.
    function logItems(uint256 place, uint256 end)
        internal
        pure
        returns (address emitter, bytes32[] memory topics, bytes calldata data)
    {
        unchecked {
            (uint256 topic, uint256 topicsEnd, uint256 content) = _log(place, end);
            emitter = address(uint160(TrieWalk.number(place, EMITTER)));
            topics = new bytes32[]((topicsEnd - topic) / TOPIC);
            for (uint256 index = 0; topic < topicsEnd; topic += TOPIC) {
                topics[index++] = bytes32(TrieWalk.number(topic + 1, 32));
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
            // A byte before the list is the transaction's type; without it, that is 0.
            uint256 type_ = TrieWalk.number(place, 1);
            if (type_ < STRING) {
                if (type_ == 0 || (type_ > NEWEST_TYPE && type_ != ARBITRUM_INTERNAL && type_ != OP_DEPOSIT)) {
                    revert UnknownReceiptType(type_);
                }
                receipt.transactionType = uint8(type_);
                ++place;
            }
            place = TrieWalk.list(place, end);

            bool isList;
            uint256 next;
            (place, next, isList) = TrieWalk.item(place, end);
            uint256 size = next - place;
            if (isList) revert InvalidProof();
            // Before Byzantium, and so without a type, it is a root. Else it is no byte, or a byte of 1.
            if (size != 32 || receipt.transactionType != 0) {
                if (size > 1 || TrieWalk.number(place, size) != size) revert InvalidProof();
                (receipt.hasStatus, receipt.status) = (true, uint8(size));
            }

            (size, next) = TrieWalk.integer(next, end, 8);
            receipt.cumulativeGasUsed = uint64(size);

            (place, next, isList) = TrieWalk.item(next, end);
            if (isList || next - place != BLOOM) revert InvalidProof();

            (place, next, isList) = TrieWalk.item(next, end);
            if (!isList) revert InvalidProof();
            (size, log, logEnd) = _logs(place, next, logIndex);
            receipt.logCount = uint32(size);

            // Since Canyon a deposit's nonce and its version come after the logs.
            if (next != end && receipt.transactionType == OP_DEPOSIT) {
                (, next) = TrieWalk.integer(next, end, 8);
                (, next) = TrieWalk.integer(next, end, 8);
            }
            if (next != end) revert InvalidProof();
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
                (uint256 content, uint256 next, bool isList) = TrieWalk.item(place, end);
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
            if (TrieWalk.number(place, 1) != EMITTER_PREFIX) revert InvalidProof();

            bool isList;
            (topics, topicsEnd, isList) = TrieWalk.item(place + EMITTER, end);
            uint256 size = topicsEnd - topics;
            if (!isList || size > TOPICS * TOPIC || size % TOPIC != 0) revert InvalidProof();
            for (place = topics; place < topicsEnd; place += TOPIC) {
                if (TrieWalk.number(place, 1) != TOPIC_PREFIX) revert InvalidProof();
            }

            uint256 next;
            (data, next, isList) = TrieWalk.item(topicsEnd, end);
            if (isList || next != end) revert InvalidProof();
        }
    }
}
