// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title For tests only: keeps messages where state provers find them (ERC-7888).
contract Broadcaster {
    event MessageBroadcast(bytes32 indexed message, address indexed publisher);

    error AlreadyBroadcast(bytes32 message, address publisher);

    function broadcastMessage(bytes32 message) external {
        bytes32 slot = keccak256(abi.encode(message, msg.sender));
        uint256 before;
        assembly ("memory-safe") {
            before := sload(slot)
            if iszero(before) { sstore(slot, timestamp()) }
        }
        if (before != 0) revert AlreadyBroadcast(message, msg.sender);
        emit MessageBroadcast(message, msg.sender);
    }
}
