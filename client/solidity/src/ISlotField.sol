// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title The registry's `accountField` of a slot, for contracts that call it by this name.
/// @notice It isn't in `IFactsRegistry`. There `accountField(account, blockNumber, 0)` would read storage slot 0 instead of
/// the nonce, because the compiler converts a literal 0 to `bytes32` but not to an enum.
interface ISlotField {
    /// @notice The value of a storage slot, as `IFactsRegistry.accountStorageSlotValues`, with its errors.
    function accountField(address account, uint256 blockNumber, bytes32 slot) external view returns (bytes32);
}
