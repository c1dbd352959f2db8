// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IBlockHashSource} from "../src/IBlockHashSource.sol";

/// @title For tests only: vouches for any hash that a test has set.
contract SettableBlockHashSource is IBlockHashSource {
    uint256 public immutable sourceChainId;

    mapping(uint256 blockNumber => bytes32) public blockHash;

    constructor(uint256 sourceChainId_) {
        sourceChainId = sourceChainId_;
    }

    function set(uint256 blockNumber, bytes32 hash) external {
        blockHash[blockNumber] = hash;
    }
}
