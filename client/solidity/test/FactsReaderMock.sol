// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IFactsReader} from "../src/IFactsReader.sol";
import {IFactsRegistry} from "../src/IFactsRegistry.sol";
import {InvalidProof} from "../src/InvalidProof.sol";
import {TrieWalk} from "../src/TrieWalk.sol";
import {FactsMock} from "./FactsMock.sol";
import {RealFacts} from "./RealFacts.sol";

/// @title For tests only: a reader of several `FactsMock`. Use it as an `IFactsReader`.
/// @notice The deployed reader's own code answers, except where a proof is shown under a fact: there any proof but an empty
/// one is taken, and shows what the test has set of the block. What isn't set is shown absent.
contract FactsReaderMock {
    uint256 private constant RECEIPTS_ROOT = 5;
    uint256 private constant WITHDRAWALS_ROOT = 16;

    IFactsReader private immutable _reader;

    /// @param registries One `FactsMock` for each source chain, by rising chain id.
    constructor(address[] memory registries) {
        _reader = RealFacts.createReader(registries);
    }

    fallback(bytes calldata data) external returns (bytes memory) {
        (bool succeeded, bytes memory answer) = address(_reader).staticcall(data);
        if (succeeded) return answer;
        assembly ("memory-safe") {
            revert(add(answer, 32), mload(answer))
        }
    }

    function slotByProof(uint256 chainId, uint256 blockNumber, address account, bytes32 slot, bytes calldata proof)
        external
        view
        returns (bytes32 value)
    {
        _reader.accountField(chainId, blockNumber, account, uint8(IFactsRegistry.AccountField.STORAGE_ROOT));
        _checkProof(proof);
        (, value) = _registry(chainId).tryAccountStorageSlotValues(account, blockNumber, slot);
    }

    function accountByProof(uint256 chainId, uint256 blockNumber, address account, bytes calldata proof)
        external
        view
        returns (uint256 nonce, uint256 balance, bytes32 codeHash, bytes32 storageRoot)
    {
        FactsMock registry = _registry(chainId);
        require(
            address(registry) != address(0) && registry.stateRoot(blockNumber) != 0,
            "STORAGE_PROOF_HEADER_FIELD_NOT_SAVED"
        );
        _checkProof(proof);
        nonce = uint256(_account(registry, account, blockNumber, IFactsRegistry.AccountField.NONCE));
        balance = uint256(_account(registry, account, blockNumber, IFactsRegistry.AccountField.BALANCE));
        codeHash = _account(registry, account, blockNumber, IFactsRegistry.AccountField.CODE_HASH);
        storageRoot = _account(registry, account, blockNumber, IFactsRegistry.AccountField.STORAGE_ROOT);
        if (codeHash == 0) (codeHash, storageRoot) = (TrieWalk.EMPTY_CODE_HASH, TrieWalk.EMPTY_TRIE_ROOT);
    }

    function receiptByProof(uint256 chainId, uint256 blockNumber, uint256 txIndex, bytes calldata proof)
        external
        view
        returns (IFactsReader.Receipt memory)
    {
        _checkRoot(chainId, blockNumber, RECEIPTS_ROOT);
        _checkProof(proof);
        _checkPlace(txIndex);
        return _registry(chainId).shownReceipt(blockNumber, txIndex);
    }

    function logByProof(
        uint256 chainId,
        uint256 blockNumber,
        uint256 txIndex,
        uint256 logIndex,
        bytes calldata proof
    ) external view returns (address emitter, bytes32[] memory topics, bytes memory data) {
        _checkRoot(chainId, blockNumber, RECEIPTS_ROOT);
        _checkProof(proof);
        _checkPlace(txIndex);
        bool exists;
        (exists, emitter, topics, data) = _registry(chainId).shownLog(blockNumber, txIndex, logIndex);
        if (!exists) revert IFactsReader.NoSuchLog(chainId, blockNumber, txIndex, logIndex);
    }

    function withdrawalByProof(uint256 chainId, uint256 blockNumber, uint256 place, bytes calldata proof)
        external
        view
        returns (uint64 index, uint64 validatorIndex, address recipient, uint64 amount)
    {
        _checkRoot(chainId, blockNumber, WITHDRAWALS_ROOT);
        _checkProof(proof);
        _checkPlace(place);
        FactsMock.Withdrawal memory shown = _registry(chainId).shownWithdrawal(blockNumber, place);
        if (!shown.exists) revert IFactsReader.NoSuchWithdrawal(chainId, blockNumber, place);
        return (shown.index, shown.validatorIndex, shown.recipient, shown.amount);
    }

    function _registry(uint256 chainId) private view returns (FactsMock) {
        return FactsMock(payable(_reader.registryOf(chainId)));
    }

    function _account(FactsMock registry, address account, uint256 blockNumber, IFactsRegistry.AccountField field)
        private
        view
        returns (bytes32 value)
    {
        (, value) = registry.tryAccountField(account, blockNumber, uint8(field));
    }

    /// @dev The reader's `headerField` knows no fields after the first 15.
    function _checkRoot(uint256 chainId, uint256 blockNumber, uint256 field) private view {
        FactsMock registry = _registry(chainId);
        bool saved = false;
        if (address(registry) != address(0)) (saved,) = registry.tryHeaderField(blockNumber, uint8(field));
        require(saved, "STORAGE_PROOF_HEADER_FIELD_NOT_SAVED");
    }

    function _checkProof(bytes calldata proof) private pure {
        if (proof.length == 0) revert InvalidProof();
    }

    /// @dev The walk takes places of 16 bits.
    function _checkPlace(uint256 place) private pure {
        if (place > type(uint16).max) revert InvalidProof();
    }
}
