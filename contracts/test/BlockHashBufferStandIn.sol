// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title For tests only: stands in for the buffer of the parent chain's block hashes on an Arbitrum chain.
/// @dev It keeps and forgets hashes as OffchainLabs' Buffer does, with as many places. The constructor of the real
/// one names the accounts that may push; here it is one account.
contract BlockHashBufferStandIn {
    uint256 public constant bufferSize = 393168;

    /// @notice The contract on the parent chain that pushes, as messages from it come: with 0x1111...1111 added.
    address public constant aliasedPusher = 0x6B6D4f3d0f0eFAeED2aeC9B59b67Ec62a4667e99;

    uint64 public newestBlockNumber;
    mapping(uint256 blockNumber => bytes32) public blockHashMapping;
    mapping(uint256 place => uint256 blockNumber) public blockNumberBuffer;

    event BlockHashesPushed(uint256 firstBlockNumber, uint256 lastBlockNumber);

    error UnknownParentChainBlockHash(uint256 parentChainBlockNumber);
    error NotPusher();

    function receiveHashes(uint256 first, bytes32[] calldata hashes) external {
        if (msg.sender != aliasedPusher) revert NotPusher();
        for (uint256 place = 0; place < hashes.length; ++place) {
            uint256 number = first + place;
            uint256 former = blockNumberBuffer[number % bufferSize];
            if (number <= former) continue;
            delete blockHashMapping[former];
            blockHashMapping[number] = hashes[place];
            blockNumberBuffer[number % bufferSize] = number;
        }
        uint256 last = first + hashes.length - 1;
        if (last > newestBlockNumber) newestBlockNumber = uint64(last);
        emit BlockHashesPushed(first, last);
    }

    function parentChainBlockHash(uint256 number) external view returns (bytes32 hash) {
        hash = blockHashMapping[number];
        if (hash == 0) revert UnknownParentChainBlockHash(number);
    }
}
