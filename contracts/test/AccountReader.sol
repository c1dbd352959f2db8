// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {FactsRegistry} from "../src/FactsRegistry.sol";

/// @title For tests only: reads a registry as another contract would, and measures it.
contract AccountReader {
    /// @return value What `accountField` answered.
    /// @return gasUsed Of the call alone: cold storage, but not the access to a cold address, nor the transaction.
    function read(FactsRegistry registry, address account, uint256 blockNumber, FactsRegistry.AccountField field)
        external
        view
        returns (bytes32 value, uint256 gasUsed)
    {
        // Warms the address, so that the figure is the registry's own.
        registry.sourceChainId();
        uint256 before = gasleft();
        value = registry.accountField(account, blockNumber, field);
        gasUsed = before - gasleft();
    }
}
