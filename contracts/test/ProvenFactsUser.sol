// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Headers} from "@batch-query-service/contracts/src/Headers.sol";
import {IFactsReader} from "@batch-query-service/contracts/src/IFactsReader.sol";
import {IFactsRegistry} from "@batch-query-service/contracts/src/IFactsRegistry.sol";
import {ProvenFacts} from "@batch-query-service/contracts/src/ProvenFacts.sol";

/// @title For tests only: calls the functions of ProvenFacts that no other contract calls, and tells constants.
contract ProvenFactsUser {
    using ProvenFacts for IFactsRegistry;
    using ProvenFacts for IFactsReader;

    function headerPlaces() external pure returns (uint8[7] memory) {
        return [
            ProvenFacts.HEADER_PARENT_HASH,
            ProvenFacts.HEADER_COINBASE,
            ProvenFacts.HEADER_STATE_ROOT,
            ProvenFacts.HEADER_RECEIPTS_ROOT,
            ProvenFacts.HEADER_TIMESTAMP,
            ProvenFacts.HEADER_MIX_HASH,
            ProvenFacts.HEADER_BASE_FEE_PER_GAS
        ];
    }

    function placesByHeaders() external pure returns (uint256[9] memory) {
        return [
            Headers.PARENT_HASH,
            Headers.STATE_ROOT,
            Headers.TRANSACTIONS_ROOT,
            Headers.RECEIPTS_ROOT,
            Headers.LOGS_BLOOM,
            Headers.NUMBER,
            Headers.TIMESTAMP,
            Headers.EXTRA_DATA,
            Headers.PARENT_BEACON_BLOCK_ROOT
        ];
    }

    function requireChainOfRegistry(IFactsRegistry registry, uint256 chainId) external view {
        registry.requireSourceChain(chainId);
    }

    function requireChainOfReader(IFactsReader reader, uint256 chainId) external view {
        reader.requireSourceChain(chainId);
    }

    /// @return The balance, the nonce, the code hash and the storage root.
    function accountFields(IFactsRegistry registry, address account, uint256 blockNumber)
        external
        view
        returns (uint256, uint64, bytes32, bytes32)
    {
        return (
            registry.balanceAt(account, blockNumber),
            registry.nonceAt(account, blockNumber),
            registry.codeHashAt(account, blockNumber),
            registry.storageRootAt(account, blockNumber)
        );
    }

    function requireBalanceAt(IFactsRegistry registry, address account, uint256 blockNumber, uint256 required)
        external
        view
        returns (uint256)
    {
        return registry.requireBalanceAt(account, blockNumber, required);
    }

    function slotAt(IFactsRegistry registry, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bytes32)
    {
        return registry.slotAt(account, blockNumber, slot);
    }

    function requireSlotAt(
        IFactsRegistry registry,
        address account,
        uint256 blockNumber,
        bytes32 slot,
        bytes32 required
    ) external view {
        registry.requireSlotAt(account, blockNumber, slot, required);
    }

    /// @return Slots of a key that is an address and of one that is a number, by Solidity and by Vyper.
    function mappingSlots(uint256 slot, address one, bytes32 other) external pure returns (bytes32[4] memory) {
        return [
            ProvenFacts.mappingSlot(slot, one),
            ProvenFacts.mappingSlot(slot, other),
            ProvenFacts.vyperMappingSlot(slot, one),
            ProvenFacts.vyperMappingSlot(slot, other)
        ];
    }

    function soladySlot(uint96 seed, address key) external pure returns (bytes32) {
        return ProvenFacts.soladySlot(seed, key);
    }

    function arraySlot(uint256 slot, uint256 index, uint256 slotsEach) external pure returns (bytes32) {
        return ProvenFacts.arraySlot(slot, index, slotsEach);
    }

    function parts(bytes32 word, uint256 offset, uint256 size) external pure returns (uint256, int256) {
        return (ProvenFacts.part(word, offset, size), ProvenFacts.signedPart(word, offset, size));
    }

    /// @return The block's time and its randomness.
    function headerOf(IFactsRegistry registry, uint256 blockNumber) external view returns (uint256, bytes32) {
        return (registry.timestampOf(blockNumber), registry.prevRandaoOf(blockNumber));
    }

    function requireLog(
        IFactsRegistry registry,
        uint256 blockNumber,
        uint32 txIndex,
        uint32 logIndex,
        address emitter,
        bytes32[] memory topics,
        bytes memory data
    ) external view {
        registry.requireLog(blockNumber, txIndex, logIndex, emitter, topics, data);
    }

    function mappingValueByProof(
        IFactsReader reader,
        uint256 chainId,
        uint256 blockNumber,
        address account,
        uint256 slot,
        address key,
        bytes calldata proof
    ) external view returns (uint256) {
        return reader.mappingValueByProof(chainId, blockNumber, account, slot, key, proof);
    }

    function requireSlotByProof(
        IFactsReader reader,
        uint256 chainId,
        uint256 blockNumber,
        address account,
        bytes32 slot,
        bytes32 required,
        bytes calldata proof
    ) external view {
        reader.requireSlotByProof(chainId, blockNumber, account, slot, required, proof);
    }

    function requireBalanceByProof(
        IFactsReader reader,
        uint256 chainId,
        uint256 blockNumber,
        address account,
        uint256 required,
        bytes calldata proof
    ) external view returns (uint256) {
        return reader.requireBalanceByProof(chainId, blockNumber, account, required, proof);
    }

    function requireLogByProof(
        IFactsReader reader,
        ProvenFacts.LogPlace memory place,
        address emitter,
        bytes32 topic,
        bytes calldata proof
    ) external view returns (bytes32[] memory, bytes memory) {
        return reader.requireLogByProof(place, emitter, topic, proof);
    }
}
