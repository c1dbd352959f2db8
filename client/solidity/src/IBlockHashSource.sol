// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title Where a trusted block hash of a source chain comes from; one contract for each trust model.
interface IBlockHashSource {
    /// @notice The chain whose blocks this vouches for, by its EIP-155 chain id.
    function sourceChainId() external view returns (uint256);

    /// @param blockNumber A block of the source chain.
    /// @return Its hash, or zero when this source can't vouch for it (unknown, too old, not mined yet). It doesn't
    /// revert, and an answer other than zero never changes while this chain's history stands.
    function blockHash(uint256 blockNumber) external view returns (bytes32);
}
