// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IBlockHashOracle} from "@batch-query-service/contracts/src/adapters/CurveBlockHashOracle.sol";
import {Headers} from "@batch-query-service/contracts/src/Headers.sol";
import {IFactsReader} from "@batch-query-service/contracts/src/IFactsReader.sol";
import {IFactsRegistry} from "@batch-query-service/contracts/src/IFactsRegistry.sol";
import {ProvenFacts} from "@batch-query-service/contracts/src/ProvenFacts.sol";
import {Receipts} from "@batch-query-service/contracts/src/Receipts.sol";
import {SlotValues} from "@batch-query-service/contracts/src/SlotValues.sol";
import {TrieWalk} from "@batch-query-service/contracts/src/TrieWalk.sol";

/// @title For tests only: calls the package's functions that no deployed contract calls.
contract PackageUser {
    struct Found {
        bool exists;
        uint256 place;
        uint256 end;
    }

    function slotValue(bytes32 slot, bytes32 root, bytes[] calldata nodes) external pure returns (uint256) {
        return TrieWalk.slotValue(nodes, root, slot);
    }

    function slotValues(bytes32[] calldata slots, bytes32 root, bytes calldata proof)
        external
        pure
        returns (uint256[] memory)
    {
        return SlotValues.slotValues(proof, root, slots);
    }

    /// @return As the reader's `verifyOnlyAccount`.
    function accountItems(address owner, bytes32 root, bytes[] calldata nodes)
        external
        pure
        returns (uint256, uint256, bytes32, bytes32)
    {
        (uint256 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash) =
            TrieWalk.accountItems(nodes, root, owner);
        return (nonce, balance, codeHash, storageRoot);
    }

    function account(address owner, bytes32 root, bytes calldata proof)
        external
        pure
        returns (bool, uint256, uint256, bytes32, bytes32)
    {
        return TrieWalk.account(proof, root, owner);
    }

    function account(address owner, bytes32 root, bytes[] calldata nodes)
        external
        pure
        returns (bool, uint256, uint256, bytes32, bytes32)
    {
        return TrieWalk.account(nodes, root, owner);
    }

    function value(bytes32 hashedKey, bytes32 root, bytes calldata proof) external pure returns (bool, bytes memory) {
        Found memory found;
        (found.exists, found.place, found.end) = TrieWalk.value(proof, root, hashedKey);
        return (found.exists, _copied(found));
    }

    function value(bytes32 hashedKey, bytes32 root, bytes[] calldata nodes)
        external
        pure
        returns (bool, bytes memory)
    {
        Found memory found;
        (found.exists, found.place, found.end) = TrieWalk.value(nodes, root, hashedKey);
        return (found.exists, _copied(found));
    }

    function receipt(uint256 txIndex, bytes32 root, bytes calldata proof)
        external
        pure
        returns (IFactsReader.Receipt memory)
    {
        return Receipts.receipt(proof, root, txIndex);
    }

    function receiptLog(uint256 txIndex, uint256 logIndex, bytes32 root, bytes calldata proof)
        external
        pure
        returns (address, bytes32[] memory, bytes memory)
    {
        return Receipts.log(proof, root, txIndex, logIndex);
    }

    function headerHash(bytes calldata header) external pure returns (bytes32) {
        return Headers.hash(header);
    }

    function headerStateRoot(bytes calldata header) external pure returns (bytes32) {
        return Headers.stateRoot(header);
    }

    function headerNumber(bytes calldata header) external pure returns (uint256) {
        return Headers.number(header);
    }

    function headerField(bytes calldata header, uint256 place) external pure returns (bytes32) {
        return Headers.field(header, place);
    }

    function requireHeader(IFactsRegistry registry, bytes calldata header) external view returns (uint256) {
        return ProvenFacts.requireHeader(registry, header);
    }

    function requireNotOlderThan(IFactsReader reader, uint256 chainId, uint256 blockNumber, uint256 maxAge)
        external
        view
    {
        ProvenFacts.requireNotOlderThan(reader, chainId, blockNumber, maxAge);
    }

    /// @dev A literal 0 names the nonce.
    function nonceByZero(IFactsRegistry registry, address owner, uint256 blockNumber) external view returns (bytes32) {
        return registry.accountField(owner, blockNumber, 0);
    }

    /// @dev As a consumer that goes on without the block: whether the oracle knows it.
    function stateRootBy(IBlockHashOracle oracle, uint256 blockNumber) external view returns (bool, bytes32) {
        try oracle.get_state_root(blockNumber) returns (bytes32 root) {
            return (true, root);
        } catch {
            return (false, 0);
        }
    }

    function blockHashBy(IBlockHashOracle oracle, uint256 blockNumber) external view returns (bytes32) {
        return oracle.get_block_hash(blockNumber);
    }

    function _copied(Found memory found) private pure returns (bytes memory) {
        return msg.data[found.place:found.end];
    }
}
