// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title The registry's `accountField` of a slot, for contracts that call it by this name.
/// @notice It isn't in `IFactsRegistry`, so that `accountField(account, blockNumber, 0)` can mean nothing but the nonce there.
interface ISlotField {
    /// @notice The value of a storage slot, as `IFactsRegistry.accountStorageSlotValues`, with its errors.
    function accountField(address account, uint256 blockNumber, bytes32 slot) external view returns (bytes32);
}
