// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IExtendedResolver, OffchainLookup} from "./UniversalResolverStandIn.sol";

/// @title For tests only: a resolver of ENS names, as honest as it is told to be. Anybody may change it.
contract ResolverStandIn {
    mapping(bytes32 node => address) public addr;

    /// @notice Whether it resolves by the name (ENSIP-10), and with that all names below its own.
    bool public isExtended;
    /// @notice Where it refers to (EIP-3668); empty: nowhere.
    string[] private _urls;
    /// @notice Whether it goes on to refer there.
    bool public isEndless;
    /// @notice What it answers instead of an address.
    bytes public nonsense;

    function setAddr(bytes32 node, address addr_) external {
        addr[node] = addr_;
    }

    function extend() external {
        isExtended = true;
    }

    function refer(string[] memory urls, bool isEndless_) external {
        (_urls, isEndless) = (urls, isEndless_);
    }

    function talkNonsense(bytes memory nonsense_) external {
        nonsense = nonsense_;
    }

    function supportsInterface(bytes4 id) external view returns (bool) {
        return id == IExtendedResolver.resolve.selector && isExtended;
    }

    /// @notice A name below its own name has the same address.
    function resolve(bytes calldata name, bytes calldata data) external view returns (bytes memory) {
        if (nonsense.length != 0) return nonsense;
        if (_urls.length != 0) _lookUp(data);
        bytes32 node = abi.decode(data[4:], (bytes32));
        address own = addr[node];
        return abi.encode(own == address(0) ? addr[keccak256(name[1 + uint8(name[0]):])] : own);
    }

    function resolveCallback(bytes calldata response, bytes calldata extra) external view returns (bytes memory) {
        if (isEndless) _lookUp(extra);
        return response;
    }

    function _lookUp(bytes calldata data) private view {
        revert OffchainLookup(address(this), _urls, data, this.resolveCallback.selector, data);
    }
}
