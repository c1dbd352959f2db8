// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {CalldataRlp} from "./CalldataRlp.sol";
import {IFactsReader} from "./IFactsReader.sol";
import {InvalidProof} from "./InvalidProof.sol";
import {TrieWalk} from "./TrieWalk.sol";

/// @title Reads a receipt and its logs under a root of receipts (header field 5), without a registry.
/// @notice Answers as `receiptByProof` and `logByProof` of `IFactsReader`, and refuses the same proofs. An answer is as true
/// as the root: take that from a fact or a checked header, never from whoever brings the proof.
///
/// All of a receipt must be the only encoding there is: a byte for the type (EIP-2718), unless that is 0, and a list of
/// status, cumulative gas, bloom and logs. From type 0x64 on, other chains have strings behind the logs, which are skipped.
/// The bloom isn't compared with the logs. Where another receipt shows that this one is absent, nothing is read from it.
/// @dev The deployed reader has a twin, `ReceiptReader`, whose code can't change. Here no read goes beyond an `end`.
library Receipts {
    /// @dev The first type with which more than four items may come.
    uint256 private constant FIRST_OF_OTHER_CHAINS = 0x64;

    uint256 private constant TOPICS = 4;

    // Sizes in bytes.
    uint256 private constant BLOOM = 256;
    uint256 private constant EMITTER = 20;
    uint256 private constant ROOT = 32;

    /// @notice The proof shows that the block has no transaction of this index, or that its receipt has no such log.
    error NoSuchLog(uint256 txIndex, uint256 logIndex);

    /// @dev The receipt of a transaction. All is zero where the proof shows that the block has none of this index.
    /// @param proof The RLP list of the nodes, each as a byte string, the root first.
    /// @param txIndex Counted from 0 within the block, 65,535 at most.
    function receipt(bytes calldata proof, bytes32 root, uint256 txIndex)
        internal
        pure
        returns (IFactsReader.Receipt memory found)
    {
        (uint256 place, uint256 end, bool isOwn) = TrieWalk.findPlace(proof, root, txIndex);
        if (isOwn) (found,,) = _receipt(place, end, 0);
    }

    /// @dev A log of a receipt. The status isn't looked at: a transaction that failed has no logs.
    /// @param proof As for `receipt`.
    /// @param logIndex Counted from 0 within the receipt, not within the block.
    function log(bytes calldata proof, bytes32 root, uint256 txIndex, uint256 logIndex)
        internal
        pure
        returns (address emitter, bytes32[] memory topics, bytes calldata data)
    {
        (uint256 place, uint256 end, bool isOwn) = TrieWalk.findPlace(proof, root, txIndex);
        if (isOwn) (, place, end) = _receipt(place, end, logIndex);
        if (!isOwn || end == 0) revert NoSuchLog(txIndex, logIndex);
        return _log(place, end);
    }

    /// @dev A receipt, and where the content of a log of it begins and ends; zeros where there is no such log.
    function _receipt(uint256 place, uint256 end, uint256 logIndex)
        private
        pure
        returns (IFactsReader.Receipt memory found, uint256 logPlace, uint256 logEnd)
    {
        unchecked {
            found.exists = true;
            // A leaf's value has a byte at least.
            uint256 first = CalldataRlp.number(place, 1);
            if (first < CalldataRlp.STRING) {
                if (first == 0) revert InvalidProof();
                found.transactionType = uint8(first);
                ++place;
            }
            place = CalldataRlp.list(place, end);
            place = _status(place, end, found);

            uint256 value;
            (value, place) = CalldataRlp.integer(place, end, 8);
            found.cumulativeGasUsed = uint64(value);

            (, place) = _string(place, end, BLOOM);

            bool isList;
            (value, place, isList) = CalldataRlp.item(place, end);
            if (!isList) revert InvalidProof();
            (value, logPlace, logEnd) = _logs(value, place, logIndex);
            found.logCount = uint32(value);

            while (place != end && found.transactionType >= FIRST_OF_OTHER_CHAINS) {
                (, place, isList) = CalldataRlp.item(place, end);
                if (isList) revert InvalidProof();
            }
            if (place != end) revert InvalidProof();
        }
    }

    /// @dev Reads the first item: `80` (failure) or `01` (success); or, before Byzantium and so without a type, a root.
    /// @return next Where the second item begins.
    function _status(uint256 place, uint256 end, IFactsReader.Receipt memory found) private pure returns (uint256 next) {
        unchecked {
            bool isList;
            (place, next, isList) = CalldataRlp.item(place, end);
            if (isList) revert InvalidProof();
            if (next - place == ROOT && found.transactionType == 0) return next;
            uint256 status = CalldataRlp.number(place, next - place);
            if (next - place != status || status > 1) revert InvalidProof();
            found.hasStatus = true;
            found.status = uint8(status);
        }
    }

    /// @dev The number of logs from a place to the end, and where the log of an index begins and ends; zeros for none.
    function _logs(uint256 place, uint256 end, uint256 logIndex)
        private
        pure
        returns (uint256 count, uint256 logPlace, uint256 logEnd)
    {
        unchecked {
            while (place != end) {
                (uint256 content, uint256 next, bool isList) = CalldataRlp.item(place, end);
                if (!isList) revert InvalidProof();
                _parts(content, next);
                if (count == logIndex) (logPlace, logEnd) = (content, next);
                ++count;
                place = next;
            }
        }
    }

    /// @dev A log whose parts were checked.
    function _log(uint256 place, uint256 end)
        private
        pure
        returns (address emitter, bytes32[] memory topics, bytes calldata data)
    {
        unchecked {
            uint256 count;
            uint256 content;
            (emitter, place, count, content) = _parts(place, end);
            topics = new bytes32[](count);
            for (uint256 index = 0; index < count; ++index) {
                (topics[index], place) = CalldataRlp.word(place, end);
            }
            assembly ("memory-safe") {
                data.offset := content
                data.length := sub(end, content)
            }
        }
    }

    /// @dev The parts of a log: its emitter, where its topics begin, how many these are, and where its data begin, which
    /// are the last bytes.
    function _parts(uint256 place, uint256 end)
        private
        pure
        returns (address emitter, uint256 topics, uint256 count, uint256 data)
    {
        unchecked {
            (data, place) = _string(place, end, EMITTER);
            emitter = address(uint160(CalldataRlp.number(data, EMITTER)));

            bool isList;
            uint256 next;
            (topics, next, isList) = CalldataRlp.item(place, end);
            if (!isList) revert InvalidProof();
            for (place = topics; place != next; ++count) {
                (, place) = CalldataRlp.word(place, next);
            }
            if (count > TOPICS) revert InvalidProof();

            (data, next, isList) = CalldataRlp.item(next, end);
            if (isList || next != end) revert InvalidProof();
        }
    }

    /// @dev A string of so many bytes: where its content begins, and where the next item does.
    function _string(uint256 place, uint256 end, uint256 size) private pure returns (uint256 content, uint256 next) {
        unchecked {
            bool isList;
            (content, next, isList) = CalldataRlp.item(place, end);
            if (isList || next - content != size) revert InvalidProof();
        }
    }
}
