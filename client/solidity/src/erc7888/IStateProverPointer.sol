// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title Names a state prover on the prover's home chain (ERC-7888).
/// @notice The code hash is in the slot `keccak256("eip7888.pointer.slot") - 1`, where other chains prove it.
interface IStateProverPointer {
    /// @notice The code hash of the prover, by which copies of it on other chains are known.
    function implementationCodeHash() external view returns (bytes32);

    /// @notice The prover on this chain.
    function implementationAddress() external view returns (address);
}
