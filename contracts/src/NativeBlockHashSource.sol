// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IBlockHashSource} from "./IBlockHashSource.sol";

/// @title The chain vouches for its own blocks: source chain = destination chain.
/// @notice Knows the last 8,191 blocks where the history contract of EIP-2935 exists, and the last 256 elsewhere; or
/// fewer, as it is made.
/// Useless, though harmless, where `block.number` counts another chain's blocks (Arbitrum).
contract NativeBlockHashSource is IBlockHashSource {
    /// @notice The history contract of EIP-2935.
    address public constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    // Number of blocks that the history contract serves.
    uint256 private constant MAX_WINDOW = 8191;

    /// @notice Maximum number of newest blocks for which this vouches.
    uint256 public immutable window;

    /// @notice The window must be from 1 to 8,191, which the history contract serves.
    error InvalidWindow();

    constructor(uint256 window_) {
        if (window_ == 0 || window_ > MAX_WINDOW) revert InvalidWindow();
        window = window_;
    }

    /// @inheritdoc IBlockHashSource
    function sourceChainId() external view returns (uint256) {
        return block.chainid;
    }

    /// @inheritdoc IBlockHashSource
    function blockHash(uint256 blockNumber) external view returns (bytes32 hash) {
        // The history contract is a ring buffer that checks its window itself. A chain's own variant may not, and would
        // then answer with the hash of the block that came later to the same place.
        if (blockNumber >= block.number || block.number - blockNumber > window) return 0;

        // A history contract that answers wrongly spoils only blocks that BLOCKHASH doesn't reach: older than 256.
        hash = blockhash(blockNumber);
        if (hash != 0) return hash;
        assembly ("memory-safe") {
            mstore(0, blockNumber)
            // An address without code succeeds with an empty answer; the contract reverts outside of its window. A place is
            // zero until its first block comes. (Arguments are evaluated from the right: the call comes first.)
            if and(eq(returndatasize(), 32), staticcall(gas(), HISTORY, 0, 32, 0, 32)) { hash := mload(0) }
        }
    }
}
