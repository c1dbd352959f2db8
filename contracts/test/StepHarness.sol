// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {MemoryZones} from "../src/MemoryZones.sol";
import {StateProof} from "../src/StateProof.sol";

/// @title For tests only: runs operations of proofs from any state of memory, and returns the memory after them.
contract StepHarness is StateProof {
    constructor(uint256 historyWindow_) StateProof(historyWindow_) {}

    /// @notice Takes, a word each: bottom and top of the stack that is open, whether that is a storage's, whose, the
    /// block number, and the size of an image. Then the image, which memory holds from MemoryZones.NODE on, and then the
    /// operations. Reverts as they do.
    /// @dev Answers memory from 0 to the end of the image, or to the top of the stack where that is higher; then bottom,
    /// top, whether a storage is open, and whose, a word each.
    fallback() external {
        uint256 begin = MemoryZones.NODE;
        Proof memory proof;
        uint256 size;
        assembly ("memory-safe") {
            size := calldataload(0xa0)
        }
        (proof.stack.bottom, proof.stack.top) = (_word(0x00), _word(0x20));
        proof.isStorageOpen = _word(0x40) != 0;
        proof.owner = address(uint160(_word(0x60)));
        proof.blockNumber = _word(0x80);
        proof.input.cursor = 0xc0 + size;
        assembly ("memory-safe") {
            calldatacopy(begin, 0xc0, size)
        }
        _runOperations(proof);

        uint256 end = begin + size;
        if (end < proof.stack.top) end = proof.stack.top;
        uint256 bottom = proof.stack.bottom;
        uint256 top = proof.stack.top;
        uint256 isOpen = proof.isStorageOpen ? 1 : 0;
        address owner = proof.owner;
        assembly {
            mstore(end, bottom)
            mstore(add(end, 0x20), top)
            mstore(add(end, 0x40), isOpen)
            mstore(add(end, 0x60), owner)
            return(0, add(end, 0x80))
        }
    }

    function _word(uint256 place) private pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := calldataload(place)
        }
    }
}
