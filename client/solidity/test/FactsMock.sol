// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IBlockHashSource} from "../src/IBlockHashSource.sol";
import {IFactsReader} from "../src/IFactsReader.sol";
import {IFactsRegistry} from "../src/IFactsRegistry.sol";
import {InvalidProof as InvalidNodes} from "../src/InvalidProof.sol";
import {TrieWalk} from "../src/TrieWalk.sol";

/// @title For tests only: a registry, a reader and a block hash source, whose facts a test sets.
/// @notice What isn't set reverts with the real contracts' errors. The registry's reads are about `sourceChainId`, the
/// reader's about any chain of which something was set.
///
/// Reads by proof need the root to be set, as the real ones do. They take any proof but an empty one, and show what was set:
/// what wasn't is shown absent. Facts aren't compared with one another: a slot may be set of an account that is absent. Only `verifyOnlyStorage` and `verifyOnlyAccount` verify what they are given.
contract FactsMock is IFactsRegistry, IFactsReader, IBlockHashSource {
    struct Account {
        bool isSet;
        bool exists;
        uint64 nonce;
        uint256 balance;
        bytes32 storageRoot;
        bytes32 codeHash;
    }

    struct Word {
        bool isSet;
        bytes32 value;
    }

    struct Log {
        address emitter;
        bytes32[] topics;
        bytes data;
    }

    struct Withdrawal {
        bool exists;
        uint64 index;
        uint64 validatorIndex;
        address recipient;
        uint64 amount;
    }

    struct Transaction {
        bool hasReceipt;
        Receipt receipt;
        bytes32 hash;
        mapping(uint256 logIndex => Log) logs;
        mapping(uint256 logIndex => bytes32) logHashes;
    }

    struct Block {
        bytes32 stateRoot;
        bytes32 hash;
        mapping(uint256 field => Word) fields;
        mapping(address account => Account) accounts;
        mapping(address account => mapping(bytes32 slot => Word)) slots;
        mapping(uint256 txIndex => Transaction) transactions;
        mapping(uint256 place => Withdrawal) withdrawals;
    }

    uint256 private constant HEADER_FIELDS = 31;
    uint256 private constant STATE_ROOT = 3;
    uint8 private constant RECEIPTS_ROOT = 5;
    uint256 private constant LOGS_BLOOM = 6;
    uint256 private constant NUMBER = 8;
    uint256 private constant EXTRA_DATA = 12;
    uint8 private constant WITHDRAWALS_ROOT = 16;

    // The last ones that the reader knows.
    uint8 private constant LAST_HEADER_FIELD = 14;
    uint8 private constant LAST_ACCOUNT_FIELD = 8;

    uint256 public immutable override(IBlockHashSource, IFactsRegistry) sourceChainId;

    mapping(uint256 chainId => bool) private _isKnown;
    mapping(uint256 chainId => mapping(uint256 blockNumber => Block)) private _blocks;
    mapping(uint256 chainId => mapping(uint256 time => Word)) private _times;
    mapping(bytes32 blockHash => bool) private _hashes;

    constructor(uint256 sourceChainId_) {
        sourceChainId = sourceChainId_;
        _isKnown[sourceChainId_] = true;
    }

    /// @dev As the registry, which takes any other call for a proof.
    fallback() external {
        revert UnknownFunction(msg.sig);
    }

    // --- Setting --------------------------------------------------------------------------------------------------------

    /// @notice Accumulates a header. The fields 3 (state root) and 8 (number) can be read then.
    function setStateRoot(uint256 chainId, uint256 blockNumber, bytes32 root) external {
        _block(chainId, blockNumber).stateRoot = root;
    }

    /// @param field Its place in the header, neither 3 nor 8: these are set by `setStateRoot`.
    function setHeaderField(uint256 chainId, uint256 blockNumber, uint8 field, bytes32 value) external {
        require(field < HEADER_FIELDS && field != STATE_ROOT && field != NUMBER, "set the state root instead");
        _block(chainId, blockNumber).fields[field] = Word(true, value);
    }

    function setTimestamp(uint256 chainId, uint256 time, uint256 blockNumber) external {
        require(blockNumber <= type(uint64).max, "no block has this number");
        _isKnown[chainId] = true;
        _times[chainId][time] = Word(true, bytes32(blockNumber));
    }

    /// @param storageRoot Of an account without storage: `TrieWalk.EMPTY_TRIE_ROOT`.
    /// @param codeHash Of one without code: `TrieWalk.EMPTY_CODE_HASH`.
    function setAccount(
        uint256 chainId,
        uint256 blockNumber,
        address account,
        uint64 nonce,
        uint256 balance,
        bytes32 storageRoot,
        bytes32 codeHash
    ) external {
        require(storageRoot != 0 && codeHash != 0, "no account has a root or a code hash of zero");
        _block(chainId, blockNumber).accounts[account] = Account(true, true, nonce, balance, storageRoot, codeHash);
    }

    /// @notice Sets that the block's state has no such account.
    function setAbsentAccount(uint256 chainId, uint256 blockNumber, address account) external {
        _block(chainId, blockNumber).accounts[account] = Account(true, false, 0, 0, TrieWalk.EMPTY_TRIE_ROOT, 0);
    }

    function setSlot(uint256 chainId, uint256 blockNumber, address account, bytes32 slot, bytes32 value) external {
        _block(chainId, blockNumber).slots[account][slot] = Word(true, value);
    }

    /// @param receipt Where it doesn't exist, all else in it must be zero. Without a status, its status must be.
    function setReceipt(uint256 chainId, uint256 blockNumber, uint256 txIndex, Receipt calldata receipt) external {
        Transaction storage transaction = _block(chainId, blockNumber).transactions[txIndex];
        transaction.hasReceipt = true;
        transaction.receipt = receipt;
    }

    /// @param logIndex Counted from 0 within the receipt.
    function setLog(
        uint256 chainId,
        uint256 blockNumber,
        uint256 txIndex,
        uint256 logIndex,
        address emitter,
        bytes32[] calldata topics,
        bytes calldata data
    ) external {
        require(topics.length <= 4, "a log has four topics at most");
        Transaction storage transaction = _block(chainId, blockNumber).transactions[txIndex];
        transaction.logs[logIndex] = Log(emitter, topics, data);
        transaction.logHashes[logIndex] =
            keccak256(abi.encodePacked(uint256(uint160(emitter)), topics, keccak256(data)));
    }

    function setTransactionHash(uint256 chainId, uint256 blockNumber, uint256 txIndex, bytes32 hash) external {
        _block(chainId, blockNumber).transactions[txIndex].hash = hash;
    }

    /// @notice Sets a withdrawal that is shown by proof.
    function setWithdrawal(
        uint256 chainId,
        uint256 blockNumber,
        uint256 place,
        uint64 index,
        uint64 validatorIndex,
        address recipient,
        uint64 amount
    ) external {
        _block(chainId, blockNumber).withdrawals[place] = Withdrawal(true, index, validatorIndex, recipient, amount);
    }

    /// @notice Makes the source vouch for the hash of a block of `sourceChainId`.
    function vouchFor(uint256 blockNumber, bytes32 hash) external {
        _block(sourceChainId, blockNumber).hash = hash;
    }

    /// @notice Sets that a hash is proven to be that of a block of `sourceChainId`.
    function setBlockHash(bytes32 hash) external {
        _hashes[hash] = true;
    }

    // --- The block hash source and the registry ---------------------------------------------------------------------------

    function blockHash(uint256 blockNumber) public view returns (bytes32) {
        return _blocks[sourceChainId][blockNumber].hash;
    }

    function blockHashSource() external view returns (address) {
        return address(this);
    }

    function vouches(uint256 blockNumber, bytes32 hash) external view returns (bool) {
        return hash != 0 && (blockHash(blockNumber) == hash || _hashes[hash]);
    }

    function stateRoot(uint256 blockNumber) external view returns (bytes32) {
        return _blocks[sourceChainId][blockNumber].stateRoot;
    }

    function accountField(address account, uint256 blockNumber, AccountField field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryAccountField(account, blockNumber, field);
        if (!proven) revert NotProven(account, blockNumber, field);
        return value;
    }

    function accountField(address account, uint256 blockNumber, bytes32 slot) external view returns (bytes32) {
        return accountStorageSlotValues(account, blockNumber, slot);
    }

    function tryAccountField(address account, uint256 blockNumber, AccountField field)
        public
        view
        returns (bool proven, bytes32 value)
    {
        return _accountField(sourceChainId, blockNumber, account, uint8(field));
    }

    function accountStorageSlotValues(address account, uint256 blockNumber, bytes32 slot)
        public
        view
        returns (bytes32)
    {
        (bool proven, bytes32 value) = tryAccountStorageSlotValues(account, blockNumber, slot);
        if (!proven) revert SlotNotProven(account, blockNumber, slot);
        return value;
    }

    function tryAccountStorageSlotValues(address account, uint256 blockNumber, bytes32 slot)
        public
        view
        returns (bool proven, bytes32 value)
    {
        return _read(_blocks[sourceChainId][blockNumber].slots[account][slot]);
    }

    function headerField(uint256 blockNumber, uint8 field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryHeaderField(blockNumber, field);
        if (!proven) revert HeaderFieldNotProven(blockNumber, field);
        return value;
    }

    function tryHeaderField(uint256 blockNumber, uint8 field) public view returns (bool proven, bytes32 value) {
        return _headerField(sourceChainId, blockNumber, field);
    }

    function blockAtTimestamp(uint256 time) external view returns (uint256) {
        (bool proven, uint256 blockNumber) = tryBlockAtTimestamp(time);
        if (!proven) revert TimestampNotProven(time);
        return blockNumber;
    }

    function tryBlockAtTimestamp(uint256 time) public view returns (bool proven, uint256 blockNumber) {
        Word storage word = _times[sourceChainId][time];
        return (word.isSet, uint256(word.value));
    }

    function receiptField(uint256 blockNumber, uint32 txIndex, ReceiptField field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryReceiptField(blockNumber, txIndex, field);
        if (!proven) revert ReceiptNotProven(blockNumber, txIndex, field);
        return value;
    }

    function tryReceiptField(uint256 blockNumber, uint32 txIndex, ReceiptField field)
        public
        view
        returns (bool proven, bytes32 value)
    {
        return _receiptField(sourceChainId, blockNumber, txIndex, field);
    }

    function logHash(uint256 blockNumber, uint32 txIndex, uint32 logIndex) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryLogHash(blockNumber, txIndex, logIndex);
        if (!proven) revert LogNotProven(blockNumber, txIndex, logIndex);
        return value;
    }

    function tryLogHash(uint256 blockNumber, uint32 txIndex, uint32 logIndex)
        public
        view
        returns (bool proven, bytes32 value)
    {
        value = _blocks[sourceChainId][blockNumber].transactions[txIndex].logHashes[logIndex];
        proven = value != 0;
    }

    function transactionHash(uint256 blockNumber, uint32 txIndex) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryTransactionHash(blockNumber, txIndex);
        if (!proven) revert TransactionNotProven(blockNumber, txIndex);
        return value;
    }

    function tryTransactionHash(uint256 blockNumber, uint32 txIndex) public view returns (bool proven, bytes32 value) {
        value = _blocks[sourceChainId][blockNumber].transactions[txIndex].hash;
        proven = value != 0;
    }

    // --- The reader -------------------------------------------------------------------------------------------------------

    function registryOf(uint256 chainId) public view returns (address) {
        return _isKnown[chainId] ? address(this) : address(0);
    }

    function headerField(uint256 chainId, uint256 blockNumber, uint8 field) public view returns (bytes32) {
        (bool saved, bytes32 value) = headerFieldSafe(chainId, blockNumber, field);
        require(saved, "STORAGE_PROOF_HEADER_FIELD_NOT_SAVED");
        return value;
    }

    function headerFieldSafe(uint256 chainId, uint256 blockNumber, uint8 field) public view returns (bool, bytes32) {
        if (field > LAST_HEADER_FIELD) revert();
        if (field == LOGS_BLOOM || field == EXTRA_DATA) return (false, 0);
        return _headerField(chainId, blockNumber, field);
    }

    function accountField(uint256 chainId, uint256 blockNumber, address account, uint8 field)
        public
        view
        returns (bytes32)
    {
        (bool saved, bytes32 value) = accountFieldSafe(chainId, blockNumber, account, field);
        require(saved, "STORAGE_PROOF_ACCOUNT_FIELD_NOT_SAVED");
        return value;
    }

    function accountFieldSafe(uint256 chainId, uint256 blockNumber, address account, uint8 field)
        public
        view
        returns (bool saved, bytes32 value)
    {
        if (field > LAST_ACCOUNT_FIELD) revert();
        if (field > uint8(AccountField.CODE_HASH)) return (false, 0);
        (saved, value) = _accountField(chainId, blockNumber, account, field);
        if (saved && field == uint8(AccountField.CODE_HASH) && value == 0) value = TrieWalk.EMPTY_CODE_HASH;
    }

    function storageSlot(uint256 chainId, uint256 blockNumber, address account, bytes32 slot)
        public
        view
        returns (bytes32)
    {
        (bool saved, bytes32 value) = storageSlotSafe(chainId, blockNumber, account, slot);
        require(saved, "STORAGE_PROOF_SLOT_NOT_SAVED");
        return value;
    }

    function storageSlotSafe(uint256 chainId, uint256 blockNumber, address account, bytes32 slot)
        public
        view
        returns (bool, bytes32)
    {
        return _read(_blocks[chainId][blockNumber].slots[account][slot]);
    }

    function timestamp(uint256 chainId, uint256 time) external view returns (uint256) {
        (bool saved, uint256 blockNumber) = timestampSafe(chainId, time);
        require(saved, "STORAGE_PROOF_TIMESTAMP_NOT_SAVED");
        return blockNumber;
    }

    function timestampSafe(uint256 chainId, uint256 time) public view returns (bool, uint256) {
        Word storage word = _times[chainId][time];
        return (word.isSet, uint256(word.value));
    }

    function receiptField(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint8 field)
        external
        view
        returns (bytes32)
    {
        (bool saved, bytes32 value) = receiptFieldSafe(chainId, blockNumber, txIndex, field);
        require(saved, "STORAGE_PROOF_RECEIPT_FIELD_NOT_SAVED");
        return value;
    }

    function receiptFieldSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint8 field)
        public
        view
        returns (bool, bytes32)
    {
        if (field > uint8(ReceiptField.EXISTS)) revert();
        _checkIndexes(chainId, txIndex, 0);
        return _receiptField(chainId, blockNumber, txIndex, ReceiptField(field));
    }

    function logHash(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint256 logIndex)
        external
        view
        returns (bytes32)
    {
        (bool saved, bytes32 value) = logHashSafe(chainId, blockNumber, txIndex, logIndex);
        require(saved, "STORAGE_PROOF_LOG_NOT_SAVED");
        return value;
    }

    function logHashSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint256 logIndex)
        public
        view
        returns (bool saved, bytes32 value)
    {
        _checkIndexes(chainId, txIndex, logIndex);
        value = _blocks[chainId][blockNumber].transactions[txIndex].logHashes[logIndex];
        saved = value != 0;
    }

    function transactionHash(uint256 chainId, uint256 blockNumber, uint256 txIndex) external view returns (bytes32) {
        (bool saved, bytes32 value) = transactionHashSafe(chainId, blockNumber, txIndex);
        require(saved, "STORAGE_PROOF_TRANSACTION_NOT_SAVED");
        return value;
    }

    function transactionHashSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex)
        public
        view
        returns (bool saved, bytes32 value)
    {
        _checkIndexes(chainId, txIndex, 0);
        value = _blocks[chainId][blockNumber].transactions[txIndex].hash;
        saved = value != 0;
    }

    function accountField(uint256 chainId, address account, uint256 blockNumber, uint8 field)
        external
        view
        returns (bytes32)
    {
        return accountField(chainId, blockNumber, account, field);
    }

    function accountFieldSafe(uint256 chainId, address account, uint256 blockNumber, uint8 field)
        external
        view
        returns (bool, bytes32)
    {
        return accountFieldSafe(chainId, blockNumber, account, field);
    }

    function storageSlot(uint256 chainId, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bytes32)
    {
        return storageSlot(chainId, blockNumber, account, slot);
    }

    function storageSlotSafe(uint256 chainId, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bool, bytes32)
    {
        return storageSlotSafe(chainId, blockNumber, account, slot);
    }

    // --- The reader's reads by proof ----------------------------------------------------------------------------------------

    function slotByProof(uint256 chainId, uint256 blockNumber, address account, bytes32 slot, bytes calldata proof)
        external
        view
        returns (bytes32)
    {
        accountField(chainId, blockNumber, account, uint8(AccountField.STORAGE_ROOT));
        _checkProof(proof);
        return _blocks[chainId][blockNumber].slots[account][slot].value;
    }

    function accountByProof(uint256 chainId, uint256 blockNumber, address account, bytes calldata proof)
        external
        view
        returns (uint256 nonce, uint256 balance, bytes32 codeHash, bytes32 storageRoot)
    {
        Block storage known = _blocks[chainId][blockNumber];
        require(known.stateRoot != 0, "STORAGE_PROOF_HEADER_FIELD_NOT_SAVED");
        _checkProof(proof);
        Account storage shown = known.accounts[account];
        if (!shown.exists) return (0, 0, TrieWalk.EMPTY_CODE_HASH, TrieWalk.EMPTY_TRIE_ROOT);
        return (shown.nonce, shown.balance, shown.codeHash, shown.storageRoot);
    }

    function receiptByProof(uint256 chainId, uint256 blockNumber, uint256 txIndex, bytes calldata proof)
        external
        view
        returns (Receipt memory)
    {
        headerField(chainId, blockNumber, RECEIPTS_ROOT);
        _checkProof(proof);
        _checkPlace(txIndex);
        return _blocks[chainId][blockNumber].transactions[txIndex].receipt;
    }

    function logByProof(
        uint256 chainId,
        uint256 blockNumber,
        uint256 txIndex,
        uint256 logIndex,
        bytes calldata proof
    ) external view returns (address emitter, bytes32[] memory topics, bytes memory data) {
        headerField(chainId, blockNumber, RECEIPTS_ROOT);
        _checkProof(proof);
        _checkPlace(txIndex);
        Transaction storage transaction = _blocks[chainId][blockNumber].transactions[txIndex];
        if (transaction.logHashes[logIndex] == 0) revert NoSuchLog(chainId, blockNumber, txIndex, logIndex);
        Log storage log = transaction.logs[logIndex];
        return (log.emitter, log.topics, log.data);
    }

    function withdrawalByProof(uint256 chainId, uint256 blockNumber, uint256 place, bytes calldata proof)
        external
        view
        returns (uint64 index, uint64 validatorIndex, address recipient, uint64 amount)
    {
        (bool saved,) = _headerField(chainId, blockNumber, WITHDRAWALS_ROOT);
        require(saved, "STORAGE_PROOF_HEADER_FIELD_NOT_SAVED");
        _checkProof(proof);
        _checkPlace(place);
        Withdrawal storage shown = _blocks[chainId][blockNumber].withdrawals[place];
        if (!shown.exists) revert NoSuchWithdrawal(chainId, blockNumber, place);
        return (shown.index, shown.validatorIndex, shown.recipient, shown.amount);
    }

    function verifyOnlyStorage(bytes32 slot, bytes32 storageRoot, bytes calldata proof)
        external
        pure
        returns (bytes32)
    {
        return bytes32(TrieWalk.slotValue(proof, storageRoot, slot));
    }

    function verifyOnlyAccount(uint256, address account, bytes32 root, bytes calldata proof)
        external
        pure
        returns (uint256 nonce, uint256 balance, bytes32 codeHash, bytes32 storageRoot)
    {
        (nonce, balance, storageRoot, codeHash) = TrieWalk.accountItems(proof, root, account);
    }

    function verifyOnlyTimestamp(uint256 time, uint256 blockLow, uint256 timeLow, uint256 timeHigh) external pure {
        require(blockLow != type(uint256).max, "STORAGE_PROOF_BLOCK_NUMBER_TOO_HIGH");
        require(timeLow <= time && time < timeHigh, "STORAGE_PROOF_TIMESTAMP_NOT_BETWEEN_BLOCKS");
    }

    // --- Facts of any chain -------------------------------------------------------------------------------------------------

    function _block(uint256 chainId, uint256 blockNumber) private returns (Block storage) {
        _isKnown[chainId] = true;
        return _blocks[chainId][blockNumber];
    }

    function _read(Word storage word) private view returns (bool, bytes32) {
        return (word.isSet, word.value);
    }

    function _headerField(uint256 chainId, uint256 blockNumber, uint8 field)
        private
        view
        returns (bool proven, bytes32 value)
    {
        Block storage known = _blocks[chainId][blockNumber];
        if (field != STATE_ROOT && field != NUMBER) return _read(known.fields[field]);
        value = known.stateRoot;
        proven = value != 0;
        if (proven && field == NUMBER) value = bytes32(blockNumber);
    }

    function _accountField(uint256 chainId, uint256 blockNumber, address account, uint8 field)
        private
        view
        returns (bool, bytes32)
    {
        Account storage known = _blocks[chainId][blockNumber].accounts[account];
        if (field == uint8(AccountField.NONCE)) return (known.isSet, bytes32(uint256(known.nonce)));
        if (field == uint8(AccountField.BALANCE)) return (known.isSet, bytes32(known.balance));
        return (known.isSet, field == uint8(AccountField.STORAGE_ROOT) ? known.storageRoot : known.codeHash);
    }

    function _receiptField(uint256 chainId, uint256 blockNumber, uint256 txIndex, ReceiptField field)
        private
        view
        returns (bool, bytes32)
    {
        Transaction storage transaction = _blocks[chainId][blockNumber].transactions[txIndex];
        Receipt storage receipt = transaction.receipt;
        if (!transaction.hasReceipt) return (false, 0);
        if (field == ReceiptField.EXISTS) return (true, bytes32(uint256(receipt.exists ? 1 : 0)));
        if (!receipt.exists || (field == ReceiptField.STATUS && !receipt.hasStatus)) return (false, 0);
        if (field == ReceiptField.STATUS) return (true, bytes32(uint256(receipt.status)));
        if (field == ReceiptField.TYPE) return (true, bytes32(uint256(receipt.transactionType)));
        if (field == ReceiptField.LOG_COUNT) return (true, bytes32(uint256(receipt.logCount)));
        return (true, bytes32(uint256(receipt.cumulativeGasUsed)));
    }

    /// @dev The registry's indexes have 32 bits.
    function _checkIndexes(uint256 chainId, uint256 txIndex, uint256 logIndex) private view {
        if (_isKnown[chainId] && (txIndex | logIndex) > type(uint32).max) revert();
    }

    function _checkProof(bytes calldata proof) private pure {
        if (proof.length == 0) revert InvalidNodes();
    }

    /// @dev The walk takes places of 16 bits.
    function _checkPlace(uint256 place) private pure {
        if (place > type(uint16).max) revert InvalidNodes();
    }
}
