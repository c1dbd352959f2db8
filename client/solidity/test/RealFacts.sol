// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IFactsReader} from "../src/IFactsReader.sol";
import {IFactsRegistry} from "../src/IFactsRegistry.sol";
import {FactsCode} from "./FactsCode.sol";
import {SettableBlockHashSource} from "./SettableBlockHashSource.sol";

/// @title For tests only: deploys the registry and the reader that are deployed on chains, over a block hash source whose
/// hashes a test sets.
/// @notice `RealFacts.Deployment memory facts = RealFacts.deploy(10);` in `setUp`. The code is in `FactsCode`, so that no
/// cheat code, no permission to read files and no other compiler is needed. A contract that calls this has more code than
/// chains allow: Foundry takes it, and Hardhat by `allowUnlimitedContractSize`.
library RealFacts {
    struct Deployment {
        SettableBlockHashSource source;
        IFactsRegistry registry;
        IFactsReader reader;
    }

    /// @dev Slots of the contract of EIP-2935 on Ethereum and most other chains.
    uint256 private constant HISTORY_WINDOW = 8191;

    /// @param sourceChainId The chain that the facts are about. The registry proves nothing by its beacon chain.
    function deploy(uint256 sourceChainId) internal returns (Deployment memory facts) {
        facts.source = new SettableBlockHashSource(sourceChainId);
        bytes memory arguments = abi.encode(sourceChainId, facts.source, HISTORY_WINDOW, address(0));
        facts.registry = IFactsRegistry(_create(abi.encodePacked(FactsCode.REGISTRY, arguments)));
        address[] memory registries = new address[](1);
        registries[0] = address(facts.registry);
        facts.reader = createReader(registries);
    }

    /// @notice Stores what a proof in packed calldata shows. It reverts as the registry does.
    function prove(Deployment memory facts, bytes memory proof) internal {
        (bool succeeded, bytes memory answer) = address(facts.registry).call(proof);
        if (succeeded) return;
        assembly ("memory-safe") {
            revert(add(answer, 32), mload(answer))
        }
    }

    /// @param registries One for each source chain, by rising chain id.
    function createReader(address[] memory registries) internal returns (IFactsReader) {
        return IFactsReader(_create(abi.encodePacked(FactsCode.READER, abi.encode(registries))));
    }

    function _create(bytes memory code) private returns (address created) {
        assembly ("memory-safe") {
            created := create(0, add(code, 32), mload(code))
        }
        require(created != address(0), "the code could not be deployed");
    }
}
