// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {ArbitrumBlocks} from "./ArbitrumBlocks.sol";
import {Facts} from "./Facts.sol";

/// @title Any chain that has a registry of an Arbitrum chain's parent vouches for the blocks that are confirmed there.
/// @notice The Outbox is read in the parent's state, as a fact: its storage slot must be proven in the registry first.
/// Trusted is what the registry trusts, and nothing beside the rollup itself.
contract ArbitrumSlotBlockHashSource is ArbitrumBlocks {
    // The mapping `roots` of the Outbox. Source: nitro-contracts, AbsOutbox.
    uint256 private constant ROOTS_SLOT = 3;

    /// @notice Facts about the parent chain, where the Outbox is.
    Facts public immutable registry;

    constructor(uint256 sourceChainId_, address outbox_, Facts registry_) ArbitrumBlocks(sourceChainId_, outbox_) {
        registry = registry_;
    }

    /// @notice Stores the hash of a block that the Outbox held at a block of the parent chain.
    /// @param parentBlock The block of the parent chain at which the Outbox's slot for the header's send root is proven:
    /// keccak256(send root . 3).
    /// @param header RLP of the block's header.
    /// @return blockNumber Its number, from the header.
    /// @dev Reverts with InvalidHeader, Conflict, and with NotConfirmed also where the slot isn't proven.
    function record(uint256 parentBlock, bytes calldata header) external returns (uint256 blockNumber) {
        bytes32 sendRoot;
        (blockNumber, sendRoot) = _read(header);
        bytes32 slot = keccak256(abi.encode(sendRoot, ROOTS_SLOT));
        // Zero where it isn't proven, which is no header's hash.
        (, bytes32 confirmed) = registry.tryAccountStorageSlotValues(outbox, parentBlock, slot);
        _record(blockNumber, keccak256(header), confirmed);
    }
}
