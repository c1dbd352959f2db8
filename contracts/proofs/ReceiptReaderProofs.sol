// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {TrieWalk} from "@batch-query-service/contracts/src/TrieWalk.sol";
import {Receipt, ReceiptReader} from "../src/ReceiptReader.sol";
import {Rlp} from "./Rlp.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Reads the receipt of index 0, and one of its logs, along the proof that is in calldata.
contract ReceiptWalker {
    function receiptOf(bytes calldata proof, bytes32 root, uint256 logIndex)
        external
        pure
        returns (Receipt memory receipt, bool hasLog)
    {
        uint256 end;
        (receipt,, end) = ReceiptReader.read(proof, root, 0, logIndex);
        hasLog = end != 0;
    }

    function logOf(bytes calldata proof, bytes32 root, uint256 logIndex)
        external
        pure
        returns (address, bytes32[] memory, bytes memory)
    {
        (, uint256 log, uint256 end) = ReceiptReader.read(proof, root, 0, logIndex);
        return ReceiptReader.logItems(log, end);
    }
}

/// @title A receipt is read from its one encoding, and from no other bytes.
/// @dev The trie has no other receipt. Lists have the prefixes of their sizes, and so has the string around the receipt.
contract ReceiptReaderProofs is Symbolic {
    bytes1 private constant EMITTER = 0x94;
    bytes1 private constant WORD = 0xa0;
    uint8 private constant ROOT = 0xa0;

    /// @param type_ The byte before the list, if there is one. It is below 0x80: others are no types, but prefixes of lists.
    /// @param status The first item's first byte. If it is that of a root, 32 bytes come after it, and else none.
    /// @param gas The second item's first byte; `gasSize` bytes come after it, 9 at most.
    /// @param logs The list of the logs, or a string in its place.
    struct Form {
        bool isTyped;
        uint8 type_;
        uint8 status;
        uint8 gas;
        uint256 gasSize;
        bytes9 gasDigits;
        bool isBloomList;
        bytes1 logs;
        bool hasMore;
        bytes1 more;
    }

    ReceiptWalker private walker;

    function setUp() external {
        walker = new ReceiptWalker();
    }

    /// @dev There are no logs. Behind them there is a byte or none.
    function check_a_receipt_is_taken_from_its_one_encoding_only(Form memory form) external view {
        vm.assume(form.type_ < 0x80);
        form.gasSize = _each(form.gasSize, 0, 9);
        if (form.gasSize != 0) form.gas = uint8(0x80 + form.gasSize);
        else if (form.gas == 0x80) form.gas = 0x80;
        else vm.assume(form.gas < 0x80);
        if (form.status == ROOT) form.status = ROOT;
        vm.assume(_either(form.logs == 0xc0, form.logs < 0x81));
        bool areRight = _isRight(form);
        (bytes memory proof, bytes32 root) = _proof(_receipt(form));
        try walker.receiptOf(proof, root, 0) returns (Receipt memory taken, bool hasLog) {
            assert(areRight);
            assert(taken.exists && taken.hasStatus == (form.status != ROOT));
            assert(taken.status == (form.status == 1 ? 1 : 0));
            assert(taken.transactionType == (form.isTyped ? form.type_ : 0));
            assert(taken.cumulativeGasUsed == _value(form.gas, form.gasSize, form.gasDigits));
            assert(taken.logCount == 0 && !hasLog);
        } catch {
            assert(!areRight);
        }
    }

    function _receipt(Form memory form) private pure returns (bytes memory receipt) {
        receipt = abi.encodePacked(form.status, svm.createBytes(form.status == ROOT ? 32 : 0, "state root"));
        receipt = abi.encodePacked(receipt, form.gas, _highest(form.gasDigits, form.gasSize));
        bytes memory bloom = svm.createBytes(256, "bloom");
        receipt = abi.encodePacked(receipt, form.isBloomList ? bytes3(0xf90100) : bytes3(0xb90100), bloom, form.logs);
        if (form.hasMore) receipt = abi.encodePacked(receipt, form.more);
        receipt = Rlp.list(receipt);
        if (form.isTyped) receipt = abi.encodePacked(form.type_, receipt);
    }

    function _isRight(Form memory form) private pure returns (bool) {
        bool isStatus = form.status == 0x01 || form.status == 0x80 || (form.status == ROOT && !form.isTyped);
        bool isInteger = form.gasSize == 0
            ? form.gas != 0
            : form.gasSize <= 8
                && _either(uint8(form.gasDigits[0]) >= 0x80, _both(form.gasSize != 1, form.gasDigits[0] != 0));
        bool isType = _either(!form.isTyped, form.type_ != 0);
        bool mayHaveMore = _both(_both(form.isTyped, form.type_ >= 0x64), form.more <= 0x80);
        bool areRest = _both(!form.isBloomList, _both(form.logs == 0xc0, _either(!form.hasMore, mayHaveMore)));
        return _both(_both(isStatus, isInteger), _both(isType, areRest));
    }

    /// @dev Up to two logs, each of which has up to five topics and three bytes of data.
    /// @param emitters The first byte of each emitter. 20 bytes come after it.
    /// @param first The first byte of each first topic, if there is one. Those of the others are right.
    /// @param index The log in question, the first, the second or none.
    function check_logs_are_taken_from_their_one_encoding_only(
        uint256 count,
        uint256 topics,
        bytes2 emitters,
        bytes2 first,
        uint256 index
    ) external view {
        (count, topics, index) = (_each(count, 0, 2), _each(topics, 0, 5), _each(index, 0, 2));
        bytes[3] memory items;
        bytes memory logs;
        bool areRight = true;
        for (uint256 place = 0; place < count; ++place) {
            bytes memory words = svm.createBytes(32 * topics, "topics");
            items[place] = abi.encodePacked(svm.createBytes(20, "emitter"), words, svm.createBytes(3, "data"));
            logs = abi.encodePacked(logs, _log(items[place], topics, emitters[place], first[place]));
            areRight = _both(areRight, emitters[place] == EMITTER);
            areRight = _both(areRight, _either(topics == 0, _both(first[place] == WORD, topics <= 4)));
        }
        bytes memory receipt = Rlp.list(
            abi.encodePacked(bytes2(0x0105), hex"b90100", svm.createBytes(256, "bloom"), Rlp.list(logs))
        );
        (bytes memory proof, bytes32 root) = _proof(receipt);
        try walker.receiptOf(proof, root, index) returns (Receipt memory taken, bool hasLog) {
            assert(areRight);
            assert(taken.logCount == count && hasLog == (index < count));
        } catch {
            assert(!areRight);
        }
        if (!areRight || index >= count) return;
        bytes memory answer = _returned(address(walker), abi.encodeCall(walker.logOf, (proof, root, index)));
        (address emitter, bytes32[] memory names, bytes memory data) =
            abi.decode(answer, (address, bytes32[], bytes));
        bytes memory expected = items[index];
        assert(bytes20(emitter) == bytes20(expected) && names.length == topics && data.length == 3);
        for (uint256 place = 0; place < topics; ++place) {
            assert(names[place] == _word(expected, 20 + 32 * place));
        }
        assert(bytes3(data) == bytes3(_word(expected, 20 + 32 * topics)));
    }

    // --- Encodings --------------------------------------------------------------------------------------------------

    /// @dev The proof of a trie that has the receipt at index 0, whose key is 80.
    function _proof(bytes memory receipt) private pure returns (bytes memory proof, bytes32 root) {
        bytes memory leaf = Rlp.list(abi.encodePacked(Rlp.path(0x80, 2, true), Rlp.string_(receipt)));
        root = keccak256(leaf);
        // Nobody finds another preimage of it.
        vm.assume(root != TrieWalk.EMPTY_TRIE_ROOT);
        proof = Rlp.list(Rlp.string_(leaf));
    }

    function _log(bytes memory items, uint256 topics, bytes1 emitter, bytes1 first)
        private
        pure
        returns (bytes memory)
    {
        bytes memory words;
        for (uint256 place = 0; place < topics; ++place) {
            words = abi.encodePacked(words, place == 0 ? first : WORD, _word(items, 20 + 32 * place));
        }
        bytes3 data = bytes3(_word(items, 20 + 32 * topics));
        return Rlp.list(abi.encodePacked(emitter, bytes20(items), Rlp.list(words), Rlp.string_(abi.encodePacked(data))));
    }

    function _value(uint8 prefix, uint256 size, bytes9 digits) private pure returns (uint256) {
        return size == 0 ? prefix & 0x7f : uint72(digits) >> 72 - 8 * size;
    }

    function _highest(bytes9 digits, uint256 size) private pure returns (bytes memory bytes_) {
        bytes_ = new bytes(size);
        for (uint256 place = 0; place < size; ++place) {
            bytes_[place] = digits[place];
        }
    }

    function _word(bytes memory text, uint256 place) private pure returns (bytes32 word) {
        assembly {
            word := mload(add(add(text, 0x20), place))
        }
    }
}
