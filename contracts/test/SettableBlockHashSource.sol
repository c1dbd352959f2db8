// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IBlockHashSource} from "../src/IBlockHashSource.sol";

/// @title For tests only: vouches for whatever it was told.
contract SettableBlockHashSource is IBlockHashSource {
    mapping(uint256 blockNumber => bytes32) public blockHash;

    function set(uint256 blockNumber, bytes32 hash) external {
        blockHash[blockNumber] = hash;
    }
}
