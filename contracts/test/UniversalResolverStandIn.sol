// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {EnsRegistryStandIn} from "./EnsRegistryStandIn.sol";

error OffchainLookup(address sender, string[] urls, bytes callData, bytes4 callbackFunction, bytes extraData);

interface IExtendedResolver {
    function resolve(bytes memory name, bytes memory data) external view returns (bytes memory);
}

interface IERC165 {
    function supportsInterface(bytes4 id) external view returns (bool);
}

interface IBatchGateway {
    struct Request {
        address sender;
        string[] urls;
        bytes data;
    }

    function query(Request[] memory requests) external view returns (bool[] memory, bytes[] memory);
}

/// @title For tests only: the universal resolver of ENS, as far as it finds addresses (ENSIP-10, ENSIP-21, ENSIP-23).
contract UniversalResolverStandIn {
    EnsRegistryStandIn public immutable registry;
    string[] private _gateways;

    error ResolverNotFound(bytes name);
    error ResolverError(bytes data);

    constructor(EnsRegistryStandIn registry_) {
        registry = registry_;
    }

    /// @notice Which gateways take several lookups in one. None: each goes to the resolver's own.
    function setGateways(string[] memory gateways) external {
        _gateways = gateways;
    }

    function resolve(bytes memory name, bytes memory data) external view returns (bytes memory, address) {
        (address resolver, uint256 offset) = _find(name);
        bool extended = resolver.code.length != 0
            && IERC165(resolver).supportsInterface(IExtendedResolver.resolve.selector);
        if (resolver == address(0) || (offset != 0 && !extended)) revert ResolverNotFound(name);
        if (extended) data = abi.encodeCall(IExtendedResolver.resolve, (name, data));
        (bool ok, bytes memory answer) = resolver.staticcall(data);
        return _read(resolver, extended, ok, answer);
    }

    function resolveCallback(bytes memory response, bytes memory extra) external view returns (bytes memory, address) {
        (address resolver, bool extended, bytes4 callback, bytes memory theirs, bool batched) =
            abi.decode(extra, (address, bool, bytes4, bytes, bool));
        if (batched) {
            (bool[] memory failures, bytes[] memory responses) = abi.decode(response, (bool[], bytes[]));
            if (failures[0]) revert ResolverError(responses[0]);
            response = responses[0];
        }
        (bool ok, bytes memory answer) = resolver.staticcall(abi.encodeWithSelector(callback, response, theirs));
        return _read(resolver, extended, ok, answer);
    }

    function _read(address resolver, bool extended, bool ok, bytes memory answer)
        private
        view
        returns (bytes memory, address)
    {
        if (ok) return (extended ? abi.decode(answer, (bytes)) : answer, resolver);
        if (bytes4(answer) != OffchainLookup.selector) revert ResolverError(answer);
        assembly ("memory-safe") {
            // Without the selector.
            let size := sub(mload(answer), 4)
            answer := add(answer, 4)
            mstore(answer, size)
        }
        (address sender, string[] memory urls, bytes memory data, bytes4 callback, bytes memory theirs) =
            abi.decode(answer, (address, string[], bytes, bytes4, bytes));
        bool batched = _gateways.length != 0;
        if (batched) {
            IBatchGateway.Request[] memory requests = new IBatchGateway.Request[](1);
            requests[0] = IBatchGateway.Request(sender, urls, data);
            (urls, data) = (_gateways, abi.encodeCall(IBatchGateway.query, (requests)));
        }
        revert OffchainLookup(
            address(this),
            urls,
            data,
            this.resolveCallback.selector,
            abi.encode(resolver, extended, callback, theirs, batched)
        );
    }

    /// @dev The resolver of the name, or of the nearest parent that has one, which begins at that offset.
    function _find(bytes memory name) private view returns (address resolver, uint256 offset) {
        while (true) {
            resolver = registry.resolver(_node(name, offset));
            uint256 size = uint8(name[offset]);
            if (resolver != address(0) || size == 0) return (resolver, offset);
            offset += 1 + size;
        }
    }

    /// @dev The namehash (EIP-137) of what begins at that offset.
    function _node(bytes memory name, uint256 offset) private pure returns (bytes32) {
        uint256 size = uint8(name[offset]);
        if (size == 0) return 0;
        bytes memory label = new bytes(size);
        for (uint256 i = 0; i < size; ++i) {
            label[i] = name[offset + 1 + i];
        }
        return keccak256(abi.encodePacked(_node(name, offset + 1 + size), keccak256(label)));
    }
}
