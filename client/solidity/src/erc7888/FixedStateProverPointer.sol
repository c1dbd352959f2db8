// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IStateProver} from "./IStateProver.sol";
import {IStateProverPointer} from "./IStateProverPointer.sol";

/// @title A pointer to one state prover for good (ERC-7888). It has no owner, and nobody can change it.
/// @notice Whoever takes a message by it trusts that prover. Of a `RegistryStateProver` that is the word of its registry's
/// `blockHashSource()`. A prover that is a proxy may change behind the pointer: `RegistryStateProver` isn't one.
contract FixedStateProverPointer is IStateProverPointer {
    /// @dev keccak256("eip7888.pointer.slot") - 1
    bytes32 private constant CODE_HASH_SLOT = 0xee72f8a02087d3307bd38f55854a433976910dab504e72b626e32d8d187b5aca;

    /// @inheritdoc IStateProverPointer
    address public immutable implementationAddress;

    /// @notice The prover is set: its version, its address on this chain, and its code hash.
    event ImplementationAddressSet(
        uint256 indexed newVersion,
        address indexed newImplementation,
        bytes32 indexed newCodeHash,
        address oldImplementation
    );

    /// @notice There is no contract. An account that delegates to one (EIP-7702) may delegate to another.
    error NoCode(address account);

    constructor(IStateProver prover) {
        // Only delegations begin with this byte (EIP-3541).
        bytes memory code = address(prover).code;
        if (code.length == 0 || code[0] == 0xef) revert NoCode(address(prover));
        bytes32 codeHash = address(prover).codehash;
        implementationAddress = address(prover);
        assembly ("memory-safe") {
            sstore(CODE_HASH_SLOT, codeHash)
        }
        emit ImplementationAddressSet(prover.version(), address(prover), codeHash, address(0));
    }

    /// @inheritdoc IStateProverPointer
    function implementationCodeHash() external view returns (bytes32 codeHash) {
        assembly ("memory-safe") {
            codeHash := sload(CODE_HASH_SLOT)
        }
    }
}
