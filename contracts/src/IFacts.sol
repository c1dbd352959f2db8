// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title The facts of one source chain, as `FactsRegistry` answers them.
interface IFacts {
    function sourceChainId() external view returns (uint256);

    /// @dev Zero where the block's header isn't accumulated.
    function stateRoot(uint256 blockNumber) external view returns (bytes32);

    function tryAccountField(address account, uint256 blockNumber, uint8 field)
        external
        view
        returns (bool proven, bytes32 value);

    function tryAccountStorageSlotValues(address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bool proven, bytes32 value);

    function tryHeaderField(uint256 blockNumber, uint8 field) external view returns (bool proven, bytes32 value);

    function tryBlockAtTimestamp(uint256 timestamp) external view returns (bool proven, uint256 blockNumber);

    function tryReceiptField(uint256 blockNumber, uint32 txIndex, uint8 field)
        external
        view
        returns (bool proven, bytes32 value);

    function tryLogHash(uint256 blockNumber, uint32 txIndex, uint32 logIndex)
        external
        view
        returns (bool proven, bytes32 value);

    function tryTransactionHash(uint256 blockNumber, uint32 txIndex)
        external
        view
        returns (bool proven, bytes32 value);
}
