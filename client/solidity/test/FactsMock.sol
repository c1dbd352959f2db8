// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IBlockHashSource} from "../src/IBlockHashSource.sol";
import {IFactsReader} from "../src/IFactsReader.sol";
import {IFactsRegistry} from "../src/IFactsRegistry.sol";
import {InvalidProof} from "../src/InvalidProof.sol";
import {ISlotField} from "../src/ISlotField.sol";
import {TrieWalk} from "../src/TrieWalk.sol";

/// @title For tests only: a registry of one source chain, and its block hash source. A test sets the facts.
/// @notice Reads of other facts revert with the registry's errors. `FactsReaderMock` reads several of these.
///
/// Facts aren't compared with one another: a test may set a slot of an account that is absent.
contract FactsMock is IFactsRegistry, IBlockHashSource {
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

    /// @param amount In Gwei.
    struct Withdrawal {
        bool exists;
        uint64 index;
        uint64 validatorIndex;
        address recipient;
        uint64 amount;
    }

    struct Transaction {
        bool hasReceipt;
        IFactsReader.Receipt receipt;
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
    uint256 private constant NUMBER = 8;

    uint256 public immutable override(IBlockHashSource, IFactsRegistry) sourceChainId;

    mapping(uint256 blockNumber => Block) private _blocks;
    mapping(uint256 time => Word) private _times;
    mapping(bytes32 blockHash => bool) private _hashes;

    constructor(uint256 sourceChainId_) {
        sourceChainId = sourceChainId_;
    }

    /// @dev Serves `ISlotField`, as the registry does. Any other call is no proof.
    fallback(bytes calldata data) external returns (bytes memory) {
        if (data.length < 4) revert InvalidProof();
        if (msg.sig != ISlotField.accountField.selector) revert UnknownFunction(msg.sig);
        (address account, uint256 blockNumber, bytes32 slot) = abi.decode(data[4:], (address, uint256, bytes32));
        return abi.encode(accountStorageSlotValues(account, blockNumber, slot));
    }

    // --- Setting --------------------------------------------------------------------------------------------------------

    /// @notice Accumulates a header. The fields 3 (state root) and 8 (number) can be read then.
    function setStateRoot(uint256 blockNumber, bytes32 root) external {
        _blocks[blockNumber].stateRoot = root;
    }

    /// @param field Its place in the header, neither 3 nor 8: `setStateRoot` sets these.
    function setHeaderField(uint256 blockNumber, uint8 field, bytes32 value) external {
        require(field < HEADER_FIELDS && field != STATE_ROOT && field != NUMBER, "set the state root instead");
        _blocks[blockNumber].fields[field] = Word(true, value);
    }

    function setTimestamp(uint256 time, uint256 blockNumber) external {
        require(blockNumber <= type(uint64).max, "no block has this number");
        _times[time] = Word(true, bytes32(blockNumber));
    }

    /// @param balance In wei.
    /// @param storageRoot Of an account without storage: `TrieWalk.EMPTY_TRIE_ROOT`.
    /// @param codeHash Of an account without code: `TrieWalk.EMPTY_CODE_HASH`.
    function setAccount(
        uint256 blockNumber,
        address account,
        uint64 nonce,
        uint256 balance,
        bytes32 storageRoot,
        bytes32 codeHash
    ) external {
        require(storageRoot != 0 && codeHash != 0, "no account has a root or a code hash of zero");
        _blocks[blockNumber].accounts[account] = Account(true, true, nonce, balance, storageRoot, codeHash);
    }

    /// @notice Sets that the block's state has no such account.
    function setAbsentAccount(uint256 blockNumber, address account) external {
        _blocks[blockNumber].accounts[account] = Account(true, false, 0, 0, TrieWalk.EMPTY_TRIE_ROOT, 0);
    }

    function setSlot(uint256 blockNumber, address account, bytes32 slot, bytes32 value) external {
        _blocks[blockNumber].slots[account][slot] = Word(true, value);
    }

    /// @param receipt If it doesn't exist, all else in it must be zero. Without a status, its status must be zero.
    function setReceipt(uint256 blockNumber, uint256 txIndex, IFactsReader.Receipt calldata receipt) external {
        Transaction storage transaction = _blocks[blockNumber].transactions[txIndex];
        transaction.hasReceipt = true;
        transaction.receipt = receipt;
    }

    /// @param logIndex Counted from 0 within the receipt.
    function setLog(
        uint256 blockNumber,
        uint256 txIndex,
        uint256 logIndex,
        address emitter,
        bytes32[] calldata topics,
        bytes calldata data
    ) external {
        require(topics.length <= 4, "a log has four topics at most");
        Transaction storage transaction = _blocks[blockNumber].transactions[txIndex];
        transaction.logs[logIndex] = Log(emitter, topics, data);
        transaction.logHashes[logIndex] =
            keccak256(abi.encodePacked(uint256(uint160(emitter)), topics, keccak256(data)));
    }

    function setTransactionHash(uint256 blockNumber, uint256 txIndex, bytes32 hash) external {
        _blocks[blockNumber].transactions[txIndex].hash = hash;
    }

    /// @notice Sets a withdrawal, which only a proof shows. A block with withdrawals has header field 16.
    function setWithdrawal(
        uint256 blockNumber,
        uint256 place,
        uint64 index,
        uint64 validatorIndex,
        address recipient,
        uint64 amount
    ) external {
        _blocks[blockNumber].withdrawals[place] = Withdrawal(true, index, validatorIndex, recipient, amount);
    }

    /// @notice Makes the source vouch for the hash of a block.
    function vouchFor(uint256 blockNumber, bytes32 hash) external {
        _blocks[blockNumber].hash = hash;
    }

    /// @notice Sets that a hash is proven to be that of a block of the source chain.
    function setBlockHash(bytes32 hash) external {
        _hashes[hash] = true;
    }

    // --- Facts for readers by proof -------------------------------------------------------------------------------------

    function shownReceipt(uint256 blockNumber, uint256 txIndex) external view returns (IFactsReader.Receipt memory) {
        return _blocks[blockNumber].transactions[txIndex].receipt;
    }

    function shownLog(uint256 blockNumber, uint256 txIndex, uint256 logIndex)
        external
        view
        returns (bool exists, address emitter, bytes32[] memory topics, bytes memory data)
    {
        Transaction storage transaction = _blocks[blockNumber].transactions[txIndex];
        Log storage log = transaction.logs[logIndex];
        return (transaction.logHashes[logIndex] != 0, log.emitter, log.topics, log.data);
    }

    function shownWithdrawal(uint256 blockNumber, uint256 place) external view returns (Withdrawal memory) {
        return _blocks[blockNumber].withdrawals[place];
    }

    // --- The block hash source and the registry ---------------------------------------------------------------------------

    function blockHash(uint256 blockNumber) public view returns (bytes32) {
        return _blocks[blockNumber].hash;
    }

    function blockHashSource() external view returns (address) {
        return address(this);
    }

    function vouches(uint256 blockNumber, bytes32 hash) external view returns (bool) {
        return hash != 0 && (blockHash(blockNumber) == hash || _hashes[hash]);
    }

    function stateRoot(uint256 blockNumber) external view returns (bytes32) {
        return _blocks[blockNumber].stateRoot;
    }

    function accountField(address account, uint256 blockNumber, uint8 field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryAccountField(account, blockNumber, field);
        if (!proven) revert NotProven(account, blockNumber, AccountField(field));
        return value;
    }

    function tryAccountField(address account, uint256 blockNumber, uint8 field) public view returns (bool, bytes32) {
        // There is no such field.
        if (field > uint8(AccountField.CODE_HASH)) revert();
        Account storage known = _blocks[blockNumber].accounts[account];
        if (field == uint8(AccountField.NONCE)) return (known.isSet, bytes32(uint256(known.nonce)));
        if (field == uint8(AccountField.BALANCE)) return (known.isSet, bytes32(known.balance));
        return (known.isSet, field == uint8(AccountField.STORAGE_ROOT) ? known.storageRoot : known.codeHash);
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
        returns (bool, bytes32)
    {
        Word storage word = _blocks[blockNumber].slots[account][slot];
        return (word.isSet, word.value);
    }

    function headerField(uint256 blockNumber, uint8 field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryHeaderField(blockNumber, field);
        if (!proven) revert HeaderFieldNotProven(blockNumber, field);
        return value;
    }

    function tryHeaderField(uint256 blockNumber, uint8 field) public view returns (bool proven, bytes32 value) {
        Block storage known = _blocks[blockNumber];
        if (field != STATE_ROOT && field != NUMBER) return (known.fields[field].isSet, known.fields[field].value);
        value = known.stateRoot;
        proven = value != 0;
        if (proven && field == NUMBER) value = bytes32(blockNumber);
    }

    function blockAtTimestamp(uint256 time) external view returns (uint256) {
        (bool proven, uint256 blockNumber) = tryBlockAtTimestamp(time);
        if (!proven) revert TimestampNotProven(time);
        return blockNumber;
    }

    function tryBlockAtTimestamp(uint256 time) public view returns (bool, uint256) {
        return (_times[time].isSet, uint256(_times[time].value));
    }

    function receiptField(uint256 blockNumber, uint32 txIndex, ReceiptField field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryReceiptField(blockNumber, txIndex, field);
        if (!proven) revert ReceiptNotProven(blockNumber, txIndex, field);
        return value;
    }

    function tryReceiptField(uint256 blockNumber, uint32 txIndex, ReceiptField field)
        public
        view
        returns (bool, bytes32)
    {
        Transaction storage transaction = _blocks[blockNumber].transactions[txIndex];
        IFactsReader.Receipt storage receipt = transaction.receipt;
        if (!transaction.hasReceipt) return (false, 0);
        if (field == ReceiptField.EXISTS) return (true, bytes32(uint256(receipt.exists ? 1 : 0)));
        if (!receipt.exists || (field == ReceiptField.STATUS && !receipt.hasStatus)) return (false, 0);
        if (field == ReceiptField.STATUS) return (true, bytes32(uint256(receipt.status)));
        if (field == ReceiptField.TYPE) return (true, bytes32(uint256(receipt.transactionType)));
        if (field == ReceiptField.LOG_COUNT) return (true, bytes32(uint256(receipt.logCount)));
        return (true, bytes32(uint256(receipt.cumulativeGasUsed)));
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
        value = _blocks[blockNumber].transactions[txIndex].logHashes[logIndex];
        proven = value != 0;
    }

    function transactionHash(uint256 blockNumber, uint32 txIndex) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryTransactionHash(blockNumber, txIndex);
        if (!proven) revert TransactionNotProven(blockNumber, txIndex);
        return value;
    }

    function tryTransactionHash(uint256 blockNumber, uint32 txIndex) public view returns (bool proven, bytes32 value) {
        value = _blocks[blockNumber].transactions[txIndex].hash;
        proven = value != 0;
    }
}
