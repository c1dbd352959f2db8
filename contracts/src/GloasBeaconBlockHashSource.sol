// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {GloasBeaconHistory} from "./GloasBeaconHistory.sol";
import {IBeaconHistory} from "./IBeaconHistory.sol";
import {IBlockHashSource} from "./IBlockHashSource.sol";
import {InvalidHeader, PackedHeader} from "./PackedHeader.sol";

/// @title A chain vouches for blocks of Ethereum by the beacon roots that its contract of EIP-4788 holds.
/// @notice On Ethereum those are its own; on an OP Stack chain they are its L1's, one for each block from which it was
/// derived. Whoever may upgrade such a chain is trusted, as on it for everything; on Ethereum nobody is.
/// @dev Roots are held for 8,191 slots of the chain that this is on. What is recorded stays.
contract GloasBeaconBlockHashSource is IBlockHashSource {
    /// @notice The contract of EIP-4788.
    address public constant BEACON_ROOTS = 0x000F3df6D732807Ef1319fB7B8bB8522d0Beac02;

    /// @notice The contract that proves what the roots bind. It is created with this one, and serves the registry too.
    IBeaconHistory public immutable beaconChainHistory;

    /// @inheritdoc IBlockHashSource
    mapping(uint256 blockNumber => bytes32) public blockHash;

    /// @notice The hash of a block is known for good.
    event BlockRecorded(uint256 indexed blockNumber, bytes32 blockHash);

    /// @notice No beacon root is held for this time. Times are those of this chain's blocks.
    error NoBeaconRoot(uint256 timestamp);

    constructor(GloasBeaconHistory.Chain memory chain) {
        beaconChainHistory = new GloasBeaconHistory(chain);
    }

    /// @notice Stores the hash of the execution block that the beacon block names whose root is held: its own, and since
    /// Gloas the last one before. Once more changes nothing, at no error.
    /// @param timestamp Time of this chain's block that received that root, in seconds since 1970.
    /// @param branch From the block's hash to the root, for `IBeaconHistory.ownBlockHash`.
    /// @param header The block's RLP.
    /// @return blockNumber Its number.
    function record(uint256 timestamp, bytes calldata branch, bytes calldata header)
        external
        returns (uint256 blockNumber)
    {
        return _record(beaconChainHistory.ownBlockHash(_beaconRoot(timestamp), branch), header);
    }

    /// @notice As `record`, of a block that the state of the beacon block names whose root is held: of a period that was
    /// over, or one of the last slots.
    /// @param branch Branch for `IBeaconHistory.oldBlockHash`.
    function recordOld(uint256 timestamp, bytes calldata branch, bytes calldata header)
        external
        returns (uint256 blockNumber)
    {
        return _record(beaconChainHistory.oldBlockHash(_beaconRoot(timestamp), branch), header);
    }

    /// @inheritdoc IBlockHashSource
    function sourceChainId() external view returns (uint256) {
        return beaconChainHistory.sourceChainId();
    }

    /// @param hash The one that is proven, not zero.
    function _record(bytes32 hash, bytes calldata header) private returns (uint256 blockNumber) {
        if (keccak256(header) != hash) revert InvalidHeader();
        uint256 start;
        assembly ("memory-safe") {
            start := header.offset
        }
        (uint256 cursor, uint256 end) = PackedHeader.open(start);
        (,, blockNumber,) = PackedHeader.takeFirst(cursor, end);
        if (blockHash[blockNumber] != 0) return blockNumber;

        blockHash[blockNumber] = hash;
        emit BlockRecorded(blockNumber, hash);
    }

    /// @dev What the contract of EIP-4788 holds. It reverts where it holds nothing.
    function _beaconRoot(uint256 time) private view returns (bytes32 root) {
        assembly ("memory-safe") {
            mstore(0, time)
            // An address without code succeeds with an empty answer. (Arguments are evaluated from the right: the call
            // comes first.)
            if and(eq(returndatasize(), 32), staticcall(gas(), BEACON_ROOTS, 0, 32, 0, 32)) { root := mload(0) }
        }
        if (root == 0) revert NoBeaconRoot(time);
    }
}
