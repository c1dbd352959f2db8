// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {Headers} from "./Headers.sol";
import {IFactsReader} from "./IFactsReader.sol";
import {IFactsRegistry} from "./IFactsRegistry.sol";

/// @title Typed reads of proven facts, and requirements upon them.
/// @notice `using ProvenFacts for IFactsRegistry;`, and `for IFactsReader` where the caller shows a proof. What isn't proven
/// reverts with the registry's or the reader's own error, so that it is never taken for zero.
library ProvenFacts {
    /// @notice The place of a log on its chain. `logIndex` counts from 0 within the receipt, not within the block.
    struct LogPlace {
        uint256 chainId;
        uint256 blockNumber;
        uint256 txIndex;
        uint256 logIndex;
    }

    /// @notice The registry is about another chain than the one that its user was written for.
    error WrongSourceChain(uint256 expected, uint256 actual);
    /// @notice The reader has no registry of this chain.
    error UnknownSourceChain(uint256 chainId);
    /// @notice The balance of the account at the block, in wei, is lower.
    error BalanceTooLow(address account, uint256 blockNumber, uint256 required, uint256 balance);
    /// @notice The slot of the account had another value at the block.
    error SlotDiffers(address account, uint256 blockNumber, bytes32 slot, bytes32 required, bytes32 value);
    /// @notice The log that was shown is of another contract or event. `topic` is zero where it has none.
    error LogDiffers(address emitter, bytes32 topic);

    /// @notice The log of the transaction has another emitter, other topics or other data. Both are hashes.
    error LogHashDiffers(uint256 blockNumber, uint32 txIndex, uint32 logIndex, bytes32 required, bytes32 value);

    /// @notice The registry doesn't know this hash as that of a block of its chain, and its source doesn't vouch for it.
    error UnknownBlockHash(uint256 blockNumber, bytes32 blockHash);
    /// @notice The block's time, in Unix seconds, is further from the present than the reader's user allows.
    error BlockNotRecent(uint256 chainId, uint256 blockNumber, uint256 timestamp, uint256 maxAge);

    /// @notice The place of a header's field, for `headerField`.
    uint8 internal constant HEADER_PARENT_HASH = 0;
    uint8 internal constant HEADER_COINBASE = 2;
    uint8 internal constant HEADER_STATE_ROOT = 3;
    uint8 internal constant HEADER_RECEIPTS_ROOT = 5;
    uint8 internal constant HEADER_TIMESTAMP = 11;
    uint8 internal constant HEADER_MIX_HASH = 13;
    uint8 internal constant HEADER_BASE_FEE_PER_GAS = 15;

    /// @dev For constructors: a registry of another chain would answer with that chain's facts.
    function requireSourceChain(IFactsRegistry registry, uint256 chainId) internal view {
        uint256 actual = registry.sourceChainId();
        if (actual != chainId) revert WrongSourceChain(chainId, actual);
    }

    /// @dev For constructors: without a registry of the chain, every read of it would revert.
    function requireSourceChain(IFactsReader reader, uint256 chainId) internal view {
        if (reader.registryOf(chainId) == address(0)) revert UnknownSourceChain(chainId);
    }

    // --- Accounts ------------------------------------------------------------------------------------------------------

    /// @return In wei.
    function balanceAt(IFactsRegistry registry, address account, uint256 blockNumber) internal view returns (uint256) {
        return uint256(registry.accountField(account, blockNumber, uint8(IFactsRegistry.AccountField.BALANCE)));
    }

    function nonceAt(IFactsRegistry registry, address account, uint256 blockNumber) internal view returns (uint64) {
        // Nonces have 64 bits (EIP-2681), and so has what the registry stores of them.
        return uint64(uint256(registry.accountField(account, blockNumber, uint8(IFactsRegistry.AccountField.NONCE))));
    }

    /// @return Zero of an account that doesn't exist, and the hash of nothing of one without code (EIP-1052).
    function codeHashAt(IFactsRegistry registry, address account, uint256 blockNumber) internal view returns (bytes32) {
        return registry.accountField(account, blockNumber, uint8(IFactsRegistry.AccountField.CODE_HASH));
    }

    function storageRootAt(IFactsRegistry registry, address account, uint256 blockNumber)
        internal
        view
        returns (bytes32)
    {
        return registry.accountField(account, blockNumber, uint8(IFactsRegistry.AccountField.STORAGE_ROOT));
    }

    /// @param required In wei.
    /// @return balance In wei.
    function requireBalanceAt(IFactsRegistry registry, address account, uint256 blockNumber, uint256 required)
        internal
        view
        returns (uint256 balance)
    {
        balance = balanceAt(registry, account, blockNumber);
        if (balance < required) revert BalanceTooLow(account, blockNumber, required, balance);
    }

    // --- Storage -------------------------------------------------------------------------------------------------------

    function slotAt(IFactsRegistry registry, address account, uint256 blockNumber, bytes32 slot)
        internal
        view
        returns (bytes32)
    {
        return registry.accountStorageSlotValues(account, blockNumber, slot);
    }

    function requireSlotAt(
        IFactsRegistry registry,
        address account,
        uint256 blockNumber,
        bytes32 slot,
        bytes32 required
    ) internal view {
        bytes32 value = slotAt(registry, account, blockNumber, slot);
        if (value != required) revert SlotDiffers(account, blockNumber, slot, required, value);
    }

    /// @notice Where `mapping(address => …)`, declared at `slot`, keeps the value of `key`.
    function mappingSlot(uint256 slot, address key) internal pure returns (bytes32) {
        return keccak256(abi.encode(key, slot));
    }

    /// @notice Where `mapping(uint256 => …)`, or one of `bytes32`, declared at `slot`, keeps the value of `key`.
    function mappingSlot(uint256 slot, bytes32 key) internal pure returns (bytes32) {
        return keccak256(abi.encode(key, slot));
    }

    /// @notice Where Vyper's `HashMap[address, …]`, declared at `slot`, keeps the value of `key`. Vyper hashes the key last.
    function vyperMappingSlot(uint256 slot, address key) internal pure returns (bytes32) {
        return keccak256(abi.encode(slot, key));
    }

    /// @notice Where Vyper's `HashMap[uint256, …]`, or one of `bytes32`, declared at `slot`, keeps the value of `key`.
    function vyperMappingSlot(uint256 slot, bytes32 key) internal pure returns (bytes32) {
        return keccak256(abi.encode(slot, key));
    }

    /// @notice Where a library of Solady keeps the value of `key` by its `seed`: 0x87a211a2 for balances of its `ERC20`.
    function soladySlot(uint96 seed, address key) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(key, seed));
    }

    /// @notice Where a dynamic array, declared at `slot`, keeps an element that takes `slotsEach` slots.
    function arraySlot(uint256 slot, uint256 index, uint256 slotsEach) internal pure returns (bytes32) {
        // The layout's own arithmetic wraps around.
        unchecked {
            return bytes32(uint256(keccak256(abi.encode(slot))) + index * slotsEach);
        }
    }

    /// @notice The number in `size` bits of a slot's word, from the bit `offset` on, counted from the lowest. Values share a
    /// word: a balance may have a flag above it.
    function part(bytes32 word, uint256 offset, uint256 size) internal pure returns (uint256) {
        return uint256(word) << (256 - offset - size) >> (256 - size);
    }

    /// @notice As `part`, of a number with a sign.
    function signedPart(bytes32 word, uint256 offset, uint256 size) internal pure returns (int256) {
        return int256(uint256(word) << (256 - offset - size)) >> (256 - size);
    }

    // --- Blocks --------------------------------------------------------------------------------------------------------

    /// @return Unix seconds.
    function timestampOf(IFactsRegistry registry, uint256 blockNumber) internal view returns (uint256) {
        return uint256(registry.headerField(blockNumber, HEADER_TIMESTAMP));
    }

    /// @notice What the beacon chain gave the block as randomness (EIP-4399).
    function prevRandaoOf(IFactsRegistry registry, uint256 blockNumber) internal view returns (bytes32) {
        return registry.headerField(blockNumber, HEADER_MIX_HASH);
    }

    /// @notice Requires that a header is that of a block of the source chain, and returns the block's number. The registry
    /// must know the header's hash, or its source must vouch for it: see `Headers` for older blocks.
    /// @param header RLP, as `Headers` takes it.
    function requireHeader(IFactsRegistry registry, bytes calldata header) internal view returns (uint256 blockNumber) {
        // A proven hash counts with any number. So the number is the one that the header has.
        blockNumber = Headers.number(header);
        bytes32 blockHash = Headers.hash(header);
        if (!registry.vouches(blockNumber, blockHash)) revert UnknownBlockHash(blockNumber, blockHash);
    }

    /// @notice Requires that a block is young. Otherwise the caller chooses the day on which he was rich. It doesn't suffice
    /// for what can move within that age, such as tokens: several accounts show it one after another. The block's TIMESTAMP
    /// must be a fact.
    /// @param maxAge In seconds, by the clocks of both chains. A block may be as far ahead.
    function requireNotOlderThan(IFactsReader reader, uint256 chainId, uint256 blockNumber, uint256 maxAge) internal view {
        uint256 timestamp = uint256(reader.headerField(chainId, blockNumber, HEADER_TIMESTAMP));
        uint256 difference = timestamp < block.timestamp ? block.timestamp - timestamp : timestamp - block.timestamp;
        if (difference > maxAge) revert BlockNotRecent(chainId, blockNumber, timestamp, maxAge);
    }

    // --- Transactions --------------------------------------------------------------------------------------------------

    /// @notice Requires that a log was written, whose hash the registry holds. The same log can be named again: where it
    /// must count once, remember its place, because two logs may have one hash.
    /// @param logIndex Counted from 0 within the receipt, not within the block.
    function requireLog(
        IFactsRegistry registry,
        uint256 blockNumber,
        uint32 txIndex,
        uint32 logIndex,
        address emitter,
        bytes32[] memory topics,
        bytes memory data
    ) internal view {
        bytes32 required = logHash(emitter, topics, data);
        bytes32 value = registry.logHash(blockNumber, txIndex, logIndex);
        if (value != required) revert LogHashDiffers(blockNumber, txIndex, logIndex, required, value);
    }

    /// @notice What a registry stores of a log. All are words, so that their number tells how many topics there are.
    function logHash(address emitter, bytes32[] memory topics, bytes memory data) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(uint256(uint160(emitter)), topics, keccak256(data)));
    }

    // --- Proofs in the caller's own call -------------------------------------------------------------------------------
    //
    // The reader looks each root up, so a proof may come from anybody. Arguments are in the reader's order.

    /// @notice The value of `key` in a `mapping(address => uint256)` that `account` declares at `slot`, such as the balance
    /// of a token's holder.
    function mappingValueByProof(
        IFactsReader reader,
        uint256 chainId,
        uint256 blockNumber,
        address account,
        uint256 slot,
        address key,
        bytes calldata proof
    ) internal view returns (uint256) {
        return uint256(reader.slotByProof(chainId, blockNumber, account, mappingSlot(slot, key), proof));
    }

    function requireSlotByProof(
        IFactsReader reader,
        uint256 chainId,
        uint256 blockNumber,
        address account,
        bytes32 slot,
        bytes32 required,
        bytes calldata proof
    ) internal view {
        bytes32 value = reader.slotByProof(chainId, blockNumber, account, slot, proof);
        if (value != required) revert SlotDiffers(account, blockNumber, slot, required, value);
    }

    /// @return balance In wei.
    function balanceByProof(
        IFactsReader reader,
        uint256 chainId,
        uint256 blockNumber,
        address account,
        bytes calldata proof
    ) internal view returns (uint256 balance) {
        (, balance,,) = reader.accountByProof(chainId, blockNumber, account, proof);
    }

    /// @param required In wei.
    /// @return balance In wei.
    function requireBalanceByProof(
        IFactsReader reader,
        uint256 chainId,
        uint256 blockNumber,
        address account,
        uint256 required,
        bytes calldata proof
    ) internal view returns (uint256 balance) {
        balance = balanceByProof(reader, chainId, blockNumber, account, proof);
        if (balance < required) revert BalanceTooLow(account, blockNumber, required, balance);
    }

    /// @notice The topics and the data of a log that `emitter` wrote and whose first topic, the event's hash, is `topic`.
    /// The same log can be shown again: where it must count once, remember its place.
    function requireLogByProof(
        IFactsReader reader,
        LogPlace memory place,
        address emitter,
        bytes32 topic,
        bytes calldata proof
    ) internal view returns (bytes32[] memory topics, bytes memory data) {
        address actual;
        (actual, topics, data) =
            reader.logByProof(place.chainId, place.blockNumber, place.txIndex, place.logIndex, proof);
        bytes32 first = topics.length == 0 ? bytes32(0) : topics[0];
        // A log without topics is of no event: a `topic` of zero doesn't match it either.
        if (actual != emitter || topics.length == 0 || first != topic) revert LogDiffers(actual, first);
    }
}
