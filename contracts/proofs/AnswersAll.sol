// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title Answers the same bytes to any call, or reverts with them.
contract AnswersAll {
    bytes private _answer;
    bool private _reverts;

    function set(bytes memory answer, bool reverts) external {
        (_answer, _reverts) = (answer, reverts);
    }

    fallback() external {
        bytes memory answer = _answer;
        bool reverts = _reverts;
        assembly ("memory-safe") {
            if reverts { revert(add(answer, 32), mload(answer)) }
            return(add(answer, 32), mload(answer))
        }
    }
}
