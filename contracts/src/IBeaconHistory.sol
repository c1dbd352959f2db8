// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title Who proves hashes of a chain's old blocks by its beacon chain.
/// @notice Each function takes a branch, as docs/developing/proof-format.md specifies it, and answers the hash of an
/// execution block, which is never zero, or reverts.
interface IBeaconHistory {
    /// @notice The chain whose blocks are proven here, by its EIP-155 chain id.
    function sourceChainId() external view returns (uint256);

    /// @notice The hash of the execution block in the beacon block of this root.
    function ownBlockHash(bytes32 beaconRoot, bytes calldata branch) external view returns (bytes32 blockHash);

    /// @notice The hash of an older execution block, of a period from Capella on: below the beacon block of this root.
    function oldBlockHash(bytes32 beaconRoot, bytes calldata branch) external view returns (bytes32 blockHash);

    /// @notice The hash of an execution block of a period before Capella.
    function blockHashBeforeCapella(bytes calldata branch) external view returns (bytes32 blockHash);

    /// @notice The hash of a block before the Merge.
    function blockHashBeforeMerge(bytes calldata branch) external view returns (bytes32 blockHash);
}
