// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IFactsReader} from "../../client/solidity/src/IFactsReader.sol";
import {IFactsRegistry} from "../../client/solidity/src/IFactsRegistry.sol";
import {ProvenFacts} from "../../client/solidity/src/ProvenFacts.sol";

/// @title What the tests of the library call, and a token and a list whose slots they have proven.
contract ReadsOfEveryKind {
    using ProvenFacts for IFactsReader;
    using ProvenFacts for IFactsRegistry;

    mapping(address holder => uint256) public balances;
    mapping(uint256 id => address) public owners;
    uint256[] public list;

    event Held(address indexed holder, uint256 balance);
    event Untold(uint256 balance) anonymous;

    IFactsRegistry private immutable _registry;

    constructor(IFactsRegistry registry, address holder, uint256 balance) {
        _registry = registry;
        balances[holder] = balance;
        owners[7] = holder;
        list.push(3);
        list.push(5);
        emit Held(holder, balance);
        emit Untold(balance);
    }

    function balanceAt(address account, uint256 blockNumber) external view returns (uint256) {
        return _registry.balanceAt(account, blockNumber);
    }

    function nonceAt(address account, uint256 blockNumber) external view returns (uint64) {
        return _registry.nonceAt(account, blockNumber);
    }

    function codeHashAt(address account, uint256 blockNumber) external view returns (bytes32) {
        return _registry.codeHashAt(account, blockNumber);
    }

    function storageRootAt(address account, uint256 blockNumber) external view returns (bytes32) {
        return _registry.storageRootAt(account, blockNumber);
    }

    function requireBalanceAt(address account, uint256 blockNumber, uint256 required) external view returns (uint256) {
        return _registry.requireBalanceAt(account, blockNumber, required);
    }

    function requireSlotAt(address account, uint256 blockNumber, bytes32 slot, bytes32 required) external view {
        _registry.requireSlotAt(account, blockNumber, slot, required);
    }

    function timestampOf(uint256 blockNumber) external view returns (uint256) {
        return _registry.timestampOf(blockNumber);
    }

    function prevRandaoOf(uint256 blockNumber) external view returns (bytes32) {
        return _registry.prevRandaoOf(blockNumber);
    }

    function requireLog(
        uint256 blockNumber,
        uint32 txIndex,
        uint32 logIndex,
        address emitter,
        bytes32[] calldata topics,
        bytes calldata data
    ) external view {
        _registry.requireLog(blockNumber, txIndex, logIndex, emitter, topics, data);
    }

    function requireSourceChain(IFactsReader reader, uint256 chainId) external view {
        reader.requireSourceChain(chainId);
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
        ProvenFacts.LogPlace calldata place,
        address emitter,
        bytes32 topic,
        bytes calldata proof
    ) external view returns (bytes32[] memory, bytes memory) {
        return reader.requireLogByProof(place, emitter, topic, proof);
    }

    function slotsOfOthers(uint256 slot, address holder) external pure returns (bytes32, bytes32, bytes32, bytes32) {
        return (
            ProvenFacts.mappingSlot(slot, holder),
            ProvenFacts.vyperMappingSlot(slot, holder),
            ProvenFacts.vyperMappingSlot(slot, bytes32(uint256(uint160(holder)))),
            ProvenFacts.soladySlot(0x87a211a2, holder)
        );
    }

    function parts(bytes32 word, uint256 offset, uint256 size) external pure returns (uint256, int256) {
        return (ProvenFacts.part(word, offset, size), ProvenFacts.signedPart(word, offset, size));
    }

    function slots(address holder) external pure returns (bytes32, bytes32, bytes32) {
        return (
            ProvenFacts.mappingSlot(0, holder),
            ProvenFacts.mappingSlot(1, bytes32(uint256(7))),
            ProvenFacts.arraySlot(2, 1, 1)
        );
    }
}
