// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IBlockHashSource} from "./IBlockHashSource.sol";

/// @title An OP Stack chain vouches for blocks of the chain below it, the L1 from which it is derived.
/// @notice The chain itself tells one L1 block at a time, a few behind the newest. Whoever wants to use another one
/// later records it while it is told. An L1 block that is replaced takes this chain's blocks with it, and what was
/// recorded in them. Who may upgrade this chain's predeploys is trusted, as on that chain for everything.
contract OpStackBlockHashSource is IBlockHashSource {
    /// @notice The predeploy into which each block of an OP Stack chain first writes the L1 block that it is derived from.
    address public constant L1_BLOCK = 0x4200000000000000000000000000000000000015;

    // Its functions.
    bytes4 private constant NUMBER = bytes4(keccak256("number()"));
    bytes4 private constant HASH = bytes4(keccak256("hash()"));

    /// @inheritdoc IBlockHashSource
    /// @dev The deployer names the chain below, because the predeploy doesn't.
    uint256 public immutable sourceChainId;

    /// @notice The highest number that is recorded; zero where none is.
    uint256 public newest;

    /// @inheritdoc IBlockHashSource
    /// @dev Also the present L1 block must be recorded: the chain may tell another one when a transaction is mined.
    mapping(uint256 blockNumber => bytes32) public blockHash;

    /// @notice The hash of an L1 block is known for good.
    event BlockRecorded(uint256 indexed blockNumber, bytes32 blockHash);

    /// @notice The chain tells no L1 block: it isn't an OP Stack chain, or it hasn't begun.
    error NoL1Block();

    constructor(uint256 sourceChainId_) {
        sourceChainId = sourceChainId_;
    }

    /// @notice Stores the hash of the L1 block that the chain tells at present. Storing it again changes nothing.
    /// @return blockNumber Its number.
    function record() external returns (uint256 blockNumber) {
        blockNumber = uint256(_told(NUMBER));
        bytes32 hash = _told(HASH);
        if (blockNumber == 0 || hash == 0) revert NoL1Block();
        if (blockHash[blockNumber] != 0) return blockNumber;

        blockHash[blockNumber] = hash;
        if (blockNumber > newest) newest = blockNumber;
        emit BlockRecorded(blockNumber, hash);
    }

    /// @dev What a function of the predeploy answers; zero where it doesn't answer one word.
    function _told(bytes4 selector) private view returns (bytes32 word) {
        assembly ("memory-safe") {
            mstore(0, selector)
            // An address without code succeeds with an empty answer. (Arguments are evaluated from the right: the call
            // comes first.)
            if and(eq(returndatasize(), 32), staticcall(gas(), L1_BLOCK, 0, 4, 0, 32)) { word := mload(0) }
        }
    }
}
