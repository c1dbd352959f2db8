// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title Facts that were proven of one source chain, readable by anybody on the destination chain.
/// @notice Every fact is one word of 32 bytes. Zero is a value like others, told apart from "not proven". Block numbers
/// and times are those of the source chain; a fact that is stored never changes.
interface IFactsRegistry {
    enum AccountField {
        NONCE,
        BALANCE,
        STORAGE_ROOT,
        CODE_HASH
    }

    enum ReceiptField {
        STATUS,
        TYPE,
        CUMULATIVE_GAS_USED,
        LOG_COUNT,
        EXISTS
    }

    event HeaderAccumulated(uint256 indexed blockNumber, bytes32 stateRoot);
    event AccountProven(address indexed account, uint256 indexed blockNumber, uint8 fields);
    event StorageSlotProven(address indexed account, uint256 indexed blockNumber, bytes32 indexed slot);
    event HeaderFieldsProven(uint256 indexed blockNumber, uint256 fields);
    event TimestampProven(uint256 indexed timestamp, uint256 indexed blockNumber);
    event BlockHashProven(bytes32 indexed blockHash);
    event ReceiptProven(uint256 indexed blockNumber, uint256 indexed txIndex);
    event LogProven(uint256 indexed blockNumber, uint256 indexed txIndex, uint256 indexed logIndex);
    event TransactionProven(uint256 indexed blockNumber, uint256 indexed txIndex);

    /// @notice Nobody has proven this field of this account at this block.
    error NotProven(address account, uint256 blockNumber, AccountField field);
    /// @notice Nobody has proven this storage slot of this account at this block.
    error SlotNotProven(address account, uint256 blockNumber, bytes32 slot);
    /// @notice Nobody has proven this field of this block's header.
    error HeaderFieldNotProven(uint256 blockNumber, uint8 field);
    /// @notice Nobody has proven which block was the latest at this time.
    error TimestampNotProven(uint256 timestamp);
    /// @notice Nobody has proven this field here, or the receipt doesn't have it.
    error ReceiptNotProven(uint256 blockNumber, uint256 txIndex, ReceiptField field);
    /// @notice Nobody has proven this log of this transaction here.
    error LogNotProven(uint256 blockNumber, uint256 txIndex, uint256 logIndex);
    /// @notice Nobody has proven the hash of this transaction here.
    error TransactionNotProven(uint256 blockNumber, uint256 txIndex);
    /// @notice The registry has no such function.
    error UnknownFunction(bytes4 selector);

    // --- These revert, with the errors above, where nothing is proven --------------------------------------------------

    /// @notice One field of an account, left-padded to 32 bytes. Of an account that doesn't exist: nonce 0, balance 0,
    /// storage root of the empty trie, code hash 0 (as EXTCODEHASH, EIP-1052).
    /// @param field A number of `AccountField`: NONCE 0, BALANCE 1 (wei), STORAGE_ROOT 2, CODE_HASH 3.
    function accountField(address account, uint256 blockNumber, uint8 field) external view returns (bytes32);

    /// @notice The value of a storage slot; zero if the slot, or the account, doesn't exist.
    function accountStorageSlotValues(address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bytes32);

    /// @notice A field of a block's header, by its place in the header's RLP, from 0 on. Of fields that are longer than
    /// 32 bytes: keccak-256.
    function headerField(uint256 blockNumber, uint8 field) external view returns (bytes32);

    /// @notice The latest block whose timestamp, in seconds, is not after this one.
    function blockAtTimestamp(uint256 timestamp) external view returns (uint256);

    /// @notice One field of a receipt. EXISTS is 0 where the block has no transaction of this index, which has no other
    /// field. Receipts before Byzantium have no STATUS.
    function receiptField(uint256 blockNumber, uint32 txIndex, ReceiptField field) external view returns (bytes32);

    /// @notice `keccak256(abi.encodePacked(uint256(uint160(emitter)), topics, keccak256(data)))` of a log, where `topics` is
    /// a `bytes32[]`. `logIndex` counts within the receipt.
    function logHash(uint256 blockNumber, uint32 txIndex, uint32 logIndex) external view returns (bytes32);

    /// @notice The hash of a transaction.
    function transactionHash(uint256 blockNumber, uint32 txIndex) external view returns (bytes32);

    // --- The same, but these answer (false, 0) where nothing is proven -------------------------------------------------

    function tryAccountField(address account, uint256 blockNumber, uint8 field)
        external
        view
        returns (bool proven, bytes32 value);

    function tryAccountStorageSlotValues(address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bool proven, bytes32 value);

    function tryHeaderField(uint256 blockNumber, uint8 field) external view returns (bool proven, bytes32 value);

    function tryReceiptField(uint256 blockNumber, uint32 txIndex, ReceiptField field)
        external
        view
        returns (bool proven, bytes32 value);

    function tryLogHash(uint256 blockNumber, uint32 txIndex, uint32 logIndex)
        external
        view
        returns (bool proven, bytes32 value);

    function tryTransactionHash(uint256 blockNumber, uint32 txIndex) external view returns (bool proven, bytes32 value);

    function tryBlockAtTimestamp(uint256 timestamp) external view returns (bool proven, uint256 blockNumber);

    // --- Registry ------------------------------------------------------------------------------------------------------

    /// @notice The trusted state root of a block; zero where its header isn't accumulated.
    function stateRoot(uint256 blockNumber) external view returns (bytes32);

    /// @notice Whether the block hash source vouches for this hash of the block, or the hash is proven to be that of a block
    /// of the chain. A proven hash counts with any number: the header's own number counts, which its hash binds.
    function vouches(uint256 blockNumber, bytes32 blockHash) external view returns (bool);

    /// @notice The chain that the facts are about.
    function sourceChainId() external view returns (uint256);

    /// @notice The contract that vouches for block hashes of the source chain: whoever reads facts trusts it.
    function blockHashSource() external view returns (address);
}
