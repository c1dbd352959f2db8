// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IBlockHashSource} from "./IBlockHashSource.sol";

/// @title An Arbitrum chain vouches for blocks of its parent chain that somebody has pushed into the buffer there.
/// @notice Anybody may push the newest 256 hashes, by a message from the parent chain, through a contract that reads them
/// there itself. The buffer takes hashes from that contract alone, or, once it has begun so, from Arbitrum's system.
/// Trusted are the parties that can upgrade the Arbitrum chain, and until its block is derived, its sequencer.
/// @dev The buffer is OffchainLabs' (block-hash-pusher), at the same address on every chain, without an owner. It keeps
/// 393,168 places by block number modulo that, and a block's hash until a later block takes its place.
contract ArbitrumBufferBlockHashSource is IBlockHashSource {
    /// @notice The buffer. CREATE2 derives its address from its creation code, so no other code can be there.
    address public constant BUFFER = 0x0000000048C4Ed10cF14A02B9E0AbDDA5227b071;

    // Its only function that is promised to stay.
    bytes4 private constant PARENT_CHAIN_BLOCK_HASH = bytes4(keccak256("parentChainBlockHash(uint256)"));

    /// @inheritdoc IBlockHashSource
    /// @dev The deployer names the parent chain, because the buffer doesn't.
    uint256 public immutable sourceChainId;

    constructor(uint256 sourceChainId_) {
        sourceChainId = sourceChainId_;
    }

    /// @inheritdoc IBlockHashSource
    function blockHash(uint256 blockNumber) external view returns (bytes32 hash) {
        (address asked, bytes4 selector) = (BUFFER, PARENT_CHAIN_BLOCK_HASH);
        assembly ("memory-safe") {
            mstore(0, selector)
            mstore(4, blockNumber)
            // An address without code succeeds with an empty answer; the buffer reverts where it has no hash. (Arguments
            // are evaluated from the right: the call comes first.)
            if and(eq(returndatasize(), 32), staticcall(gas(), asked, 0, 36, 0, 32)) { hash := mload(0) }
        }
    }
}
