// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title The reader's reads in the order of arguments that Herodotus' Satellite had before May 2025.
/// @notice They aren't in `IFactsReader`, because ethers refuses to choose between functions of one name and as many
/// arguments. They answer, and revert, as the reader's functions of these names.
interface IEarlierSatellite {
    /// @param field NONCE 0, BALANCE 1 (wei), STORAGE_ROOT 2, CODE_HASH 3.
    function accountField(uint256 chainId, address account, uint256 blockNumber, uint8 field)
        external
        view
        returns (bytes32);
    function accountFieldSafe(uint256 chainId, address account, uint256 blockNumber, uint8 field)
        external
        view
        returns (bool, bytes32);

    function storageSlot(uint256 chainId, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bytes32);
    function storageSlotSafe(uint256 chainId, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bool, bytes32);
}
