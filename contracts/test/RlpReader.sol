// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {UnboundedRlp} from "../src/UnboundedRlp.sol";

/// @title For tests only: calls the reader of RLP, each time with calldata of its own.
/// @dev Places count from the beginning of the text, which has no influence on how an item is read.
contract RlpReader {
    function number(bytes calldata text, uint256 size) external pure returns (uint256) {
        return CalldataRlp.number(_start(text), size);
    }

    function item(bytes calldata text, uint256 end) external pure returns (uint256, uint256, bool) {
        uint256 start = _start(text);
        (uint256 content, uint256 next, bool isList) = CalldataRlp.item(start, start + end);
        return (content - start, next - start, isList);
    }

    function list(bytes calldata text, uint256 end) external pure returns (uint256) {
        uint256 start = _start(text);
        return CalldataRlp.list(start, start + end) - start;
    }

    function integer(bytes calldata text, uint256 end, uint256 size) external pure returns (uint256, uint256) {
        uint256 start = _start(text);
        (uint256 value, uint256 next) = CalldataRlp.integer(start, start + end, size);
        return (value, next - start);
    }

    function word(bytes calldata text, uint256 end) external pure returns (bytes32, uint256) {
        uint256 start = _start(text);
        (bytes32 value, uint256 next) = CalldataRlp.word(start, start + end);
        return (value, next - start);
    }

    function prefix(bytes calldata text, uint256 kind) external pure returns (uint256, uint256) {
        uint256 start = _start(text);
        (uint256 size, uint256 content) = UnboundedRlp.prefix(start, kind);
        return (size, content - start);
    }

    function string_(bytes calldata text) external pure returns (uint256, uint256) {
        uint256 start = _start(text);
        (uint256 content, uint256 size) = UnboundedRlp.string_(start);
        return (content - start, size);
    }

    function openInteger(bytes calldata text) external pure returns (uint256, uint256) {
        uint256 start = _start(text);
        (uint256 value, uint256 next) = UnboundedRlp.integer(start);
        return (value, next - start);
    }

    function _start(bytes calldata text) private pure returns (uint256 start) {
        assembly {
            start := text.offset
        }
    }
}
