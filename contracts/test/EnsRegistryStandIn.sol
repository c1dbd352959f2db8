// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title For tests only: the ENS registry, as far as names are resolved by it (EIP-137). Anybody may change it.
contract EnsRegistryStandIn {
    mapping(bytes32 node => address) public resolver;

    function setResolver(bytes32 node, address resolver_) external {
        resolver[node] = resolver_;
    }
}
