// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title Proven facts about the transactions of one source chain, their receipts and logs: storage and reads.
/// @notice A transaction is named by its block and its index there, from 0; a log by its index in its own receipt.
/// @dev The caller of a write has checked a proof. Storing a fact again changes nothing, and is no error.
/// Indexes have 32 bits. That also decides the selectors, which each function names: with others the compiler would look for
/// `accountField` (0x7177899b) later, and reading the commonest facts would cost more.
abstract contract TransactionFacts {
    enum ReceiptField {
        STATUS,
        TYPE,
        CUMULATIVE_GAS_USED,
        LOG_COUNT,
        EXISTS
    }

    struct Transaction {
        // From the top: presence (8 bits), cumulative gas (64), number of logs (32), type (8), status (8).
        uint256 receipt;
        // No hash is zero: zero is "not proven".
        bytes32 hash;
        mapping(uint256 logIndex => bytes32) logHashes;
    }

    uint256 private constant PRESENCE_SHIFT = 248;
    uint256 internal constant GAS_SHIFT = 184;
    uint256 private constant LOG_COUNT_SHIFT = 152;
    uint256 internal constant TYPE_SHIFT = 144;
    uint256 internal constant STATUS_SHIFT = 136;

    // Presence. Zero: nothing of the receipt's fields is proven.
    uint256 internal constant WITH_STATUS = 1 << PRESENCE_SHIFT;
    // Before Byzantium a receipt had a state root instead.
    uint256 internal constant WITHOUT_STATUS = 2 << PRESENCE_SHIFT;
    // The block has no transaction of this index.
    uint256 private constant ABSENT = 3 << PRESENCE_SHIFT;

    mapping(uint256 blockNumber => mapping(uint256 txIndex => Transaction)) private _transactions;

    /// @notice The fields of a receipt became readable; or that there is none.
    event ReceiptProven(uint256 indexed blockNumber, uint256 indexed txIndex);

    /// @notice The hash of a log became readable.
    event LogProven(uint256 indexed blockNumber, uint256 indexed txIndex, uint256 indexed logIndex);

    /// @notice The hash of a transaction became readable.
    event TransactionProven(uint256 indexed blockNumber, uint256 indexed txIndex);

    /// @notice Nobody has proven this field here, or the receipt doesn't have it.
    error ReceiptNotProven(uint256 blockNumber, uint256 txIndex, ReceiptField field);

    /// @notice Nobody has proven this log of this transaction here.
    error LogNotProven(uint256 blockNumber, uint256 txIndex, uint256 logIndex);

    /// @notice Nobody has proven the hash of this transaction here.
    error TransactionNotProven(uint256 blockNumber, uint256 txIndex);

    // --- Reading ----------------------------------------------------------------------------------------------------

    /// @notice One field of a transaction's receipt, as a number. EXISTS is 1; or 0 where the trie of receipts has none at this
    /// index, which then has no other field. That is about the trie: what Polygon's bridge did in a block before its
    /// Madhugiri fork has a receipt in nodes' answers, but none in the trie. STATUS is 1 (success) or 0; receipts before
    /// Byzantium have none.
    /// @dev Its selector is 0xd63c3da8, by `uint32`. Reverts with ReceiptNotProven where nothing is proven, and without a reason where there is no such field.
    function receiptField(uint256 blockNumber, uint32 txIndex, ReceiptField field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryReceiptField(blockNumber, txIndex, field);
        if (!proven) revert ReceiptNotProven(blockNumber, txIndex, field);
        return value;
    }

    /// @notice As `receiptField`, but answers (false, 0) where nothing is proven.
    /// @dev Its selector is 0x4c857e44, by `uint32`.
    function tryReceiptField(uint256 blockNumber, uint32 txIndex, ReceiptField field)
        public
        view
        returns (bool proven, bytes32 value)
    {
        uint256 receipt = _transactions[blockNumber][txIndex].receipt;
        uint256 presence = receipt >> PRESENCE_SHIFT << PRESENCE_SHIFT;
        if (field == ReceiptField.EXISTS) {
            proven = presence != 0;
            if (proven && presence != ABSENT) value = bytes32(uint256(1));
        } else if (presence == WITH_STATUS || (presence == WITHOUT_STATUS && field != ReceiptField.STATUS)) {
            proven = true;
            if (field == ReceiptField.STATUS) value = bytes32(uint256(uint8(receipt >> STATUS_SHIFT)));
            else if (field == ReceiptField.TYPE) value = bytes32(_typeOf(receipt));
            else if (field == ReceiptField.LOG_COUNT) value = bytes32(uint256(uint32(receipt >> LOG_COUNT_SHIFT)));
            else value = bytes32(uint256(uint64(receipt >> GAS_SHIFT)));
        }
    }

    /// @notice The keccak256 of a log: `keccak256(abi.encodePacked(uint256(uint160(emitter)), topics, keccak256(data)))`,
    /// where `topics` is a `bytes32[]`. These are words, so that their number tells how many topics there are.
    /// @param logIndex Counted from 0 within the receipt, not within the block.
    /// @dev Its selector is 0x7b698d42, by `uint32`. Reverts with LogNotProven where nothing is proven.
    function logHash(uint256 blockNumber, uint32 txIndex, uint32 logIndex) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryLogHash(blockNumber, txIndex, logIndex);
        if (!proven) revert LogNotProven(blockNumber, txIndex, logIndex);
        return value;
    }

    /// @notice As `logHash`, but answers (false, 0) where nothing is proven. LOG_COUNT tells that there is no such log.
    /// @dev Its selector is 0x76bfc0f8, by `uint32`.
    function tryLogHash(uint256 blockNumber, uint32 txIndex, uint32 logIndex)
        public
        view
        returns (bool proven, bytes32 value)
    {
        value = _transactions[blockNumber][txIndex].logHashes[logIndex];
        proven = value != 0;
    }

    /// @notice The hash of what the trie of transactions holds at an index. It is the transaction's hash, but for those of
    /// Arbitrum's blocks before Nitro (type 0x78), of which nodes tell another one.
    /// @dev Its selector is 0x7acbe84a, by `uint32`. Reverts with TransactionNotProven where nothing is proven.
    function transactionHash(uint256 blockNumber, uint32 txIndex) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryTransactionHash(blockNumber, txIndex);
        if (!proven) revert TransactionNotProven(blockNumber, txIndex);
        return value;
    }

    /// @notice As `transactionHash`, but answers (false, 0) where nothing is proven.
    /// @dev Its selector is 0xe57e2574, by `uint32`.
    function tryTransactionHash(uint256 blockNumber, uint32 txIndex) public view returns (bool proven, bytes32 value) {
        value = _transactions[blockNumber][txIndex].hash;
        proven = value != 0;
    }

    // --- Writing ----------------------------------------------------------------------------------------------------

    function _typeOf(uint256 fields) internal pure returns (uint256) {
        return uint8(fields >> TYPE_SHIFT);
    }

    /// @param fields The receipt's word without the number of its logs.
    /// @param logCount At most 32 bits.
    function _storeReceipt(uint256 blockNumber, uint256 txIndex, uint256 fields, uint256 logCount) internal {
        _storeSummary(blockNumber, txIndex, fields | logCount << LOG_COUNT_SHIFT);
    }

    function _storeAbsentTransaction(uint256 blockNumber, uint256 txIndex) internal {
        _storeSummary(blockNumber, txIndex, ABSENT);
    }

    function _storeLog(uint256 blockNumber, uint256 txIndex, uint256 logIndex, bytes32 hash) internal {
        mapping(uint256 => bytes32) storage hashes = _transactions[blockNumber][txIndex].logHashes;
        if (hashes[logIndex] != 0) return;
        hashes[logIndex] = hash;
        emit LogProven(blockNumber, txIndex, logIndex);
    }

    function _storeTransactionHash(uint256 blockNumber, uint256 txIndex, bytes32 hash) internal {
        Transaction storage facts = _transactions[blockNumber][txIndex];
        if (facts.hash != 0) return;
        facts.hash = hash;
        emit TransactionProven(blockNumber, txIndex);
    }

    function _storeSummary(uint256 blockNumber, uint256 txIndex, uint256 fields) private {
        Transaction storage facts = _transactions[blockNumber][txIndex];
        if (facts.receipt != 0) return;
        facts.receipt = fields;
        emit ReceiptProven(blockNumber, txIndex);
    }
}
