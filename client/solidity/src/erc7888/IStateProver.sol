// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title Proves the state of one chain, its target, by the state of another, its home (ERC-7888).
/// @notice Both chains are fixed by its code, which is the same on every chain. A state commitment is a word that binds
/// all state of a chain at a block: a state root, or the hash of the block.
interface IStateProver {
    /// @notice The target's state commitment, by a proof of the home chain's state. Reverts on the home chain.
    function verifyTargetStateCommitment(bytes32 homeStateCommitment, bytes calldata input)
        external
        view
        returns (bytes32 targetStateCommitment);

    /// @notice The target's state commitment, as the home chain knows it. Reverts on any other chain.
    function getTargetStateCommitment(bytes calldata input) external view returns (bytes32 targetStateCommitment);

    /// @notice One storage slot of one account of the target, by a proof. Answers on every chain.
    function verifyStorageSlot(bytes32 targetStateCommitment, bytes calldata input)
        external
        view
        returns (address account, uint256 slot, bytes32 value);

    /// @notice Of the provers that a pointer names one after the other, each has a higher version.
    function version() external pure returns (uint256);
}
