// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {ArbitrumBlocks} from "./ArbitrumBlocks.sol";

/// @title The parent chain of an Arbitrum chain vouches for the blocks that the rollup has confirmed there.
contract ArbitrumBlockHashSource is ArbitrumBlocks {
    // The getter of the Outbox's mapping.
    bytes4 private constant ROOTS = bytes4(keccak256("roots(bytes32)"));

    constructor(uint256 sourceChainId_, address outbox_) ArbitrumBlocks(sourceChainId_, outbox_) {}

    /// @notice Stores the hash of a block that the Outbox holds at present.
    /// @param header RLP of the block's header.
    /// @return blockNumber Its number, from the header.
    /// @dev Reverts with InvalidHeader, NotConfirmed or Conflict.
    function record(bytes calldata header) external returns (uint256 blockNumber) {
        bytes32 sendRoot;
        (blockNumber, sendRoot) = _read(header);
        // Zero, which is no header's hash, where the Outbox doesn't answer one word.
        bytes32 confirmed = _answer(outbox, abi.encodeWithSelector(ROOTS, sendRoot));
        _record(blockNumber, keccak256(header), confirmed);
    }
}
