// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IBlockHashSource} from "./IBlockHashSource.sol";
import {InvalidHeader, PackedHeader} from "./PackedHeader.sol";

/// @title Blocks that are known for good once they are recorded: the common base of sources that take headers.
abstract contract RecordedBlocks is IBlockHashSource {
    /// @inheritdoc IBlockHashSource
    /// @dev The deployer names the chain, because the contract that vouches for its blocks doesn't.
    uint256 public immutable sourceChainId;

    /// @inheritdoc IBlockHashSource
    mapping(uint256 blockNumber => bytes32) public blockHash;

    /// @notice The highest number that is recorded; zero where none is.
    uint256 public newest;

    /// @notice The hash of a block is known for good.
    event BlockRecorded(uint256 indexed blockNumber, bytes32 blockHash);

    /// @notice Another block of this number is recorded. What is known doesn't change.
    error Conflict(uint256 blockNumber);

    constructor(uint256 sourceChainId_) {
        sourceChainId = sourceChainId_;
    }

    /// @dev The header's state root and number; where the field after the number begins, and where the header ends.
    function _open(bytes calldata header)
        internal
        pure
        returns (bytes32 stateRoot, uint256 blockNumber, uint256 cursor, uint256 end)
    {
        uint256 start;
        assembly ("memory-safe") {
            start := header.offset
        }
        (cursor, end) = PackedHeader.open(start);
        if (end - start != header.length) revert InvalidHeader();
        (, stateRoot, blockNumber, cursor) = PackedHeader.takeFirst(cursor, end);
    }

    /// @dev Stores a hash that is vouched for, not zero. Once more changes nothing, at no error.
    function _store(uint256 blockNumber, bytes32 hash) internal {
        bytes32 known = blockHash[blockNumber];
        if (known == hash) return;
        if (known != 0) revert Conflict(blockNumber);

        blockHash[blockNumber] = hash;
        if (blockNumber > newest) newest = blockNumber;
        emit BlockRecorded(blockNumber, hash);
    }

    /// @dev What a contract answers to a call; zero where it doesn't answer one word.
    function _answer(address asked, bytes memory data) internal view returns (bytes32 word) {
        assembly ("memory-safe") {
            // An address without code succeeds with an empty answer. (Arguments are evaluated from the right: the call
            // comes first.)
            if and(eq(returndatasize(), 32), staticcall(gas(), asked, add(data, 32), mload(data), 0, 32)) {
                word := mload(0)
            }
        }
    }
}
