// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {PackedHeader} from "./PackedHeader.sol";
import {PackedTrie} from "./PackedTrie.sol";

/// @title Proven facts of one source chain: their storage, and their reads, which are open to all.
/// @notice Every fact is read as one word of 32 bytes. Zero is a value like others, told apart from "not proven".
/// @dev The caller of a write has checked a proof. Storing a fact again changes nothing, and is no error.
abstract contract Facts {
    enum AccountField {
        NONCE,
        BALANCE,
        STORAGE_ROOT,
        CODE_HASH
    }

    /// @dev No account has a storage root or a code hash of zero: zero is "not proven", unless the account is absent.
    struct AccountFacts {
        // Presence, nonce and balance: 8, 64 and 184 bits, from the top. The compiler would pack a struct of three into
        // this word just so, and take 200 gas more for each read.
        uint256 summary;
        uint256 largeBalance;
        bytes32 storageRoot;
        bytes32 codeHash;
        mapping(uint256 slot => uint256) slots;
        // A bit for each slot proven to be zero, 256 neighbours in a word.
        mapping(uint256 slotsBy256 => uint256) zeroSlots;
    }

    struct HeaderFacts {
        // A bit for each field proven to be zero.
        uint256 zeroFields;
        bytes32[31] fields;
    }

    /// @dev More than any fork has defined. Fields are numbered by their place in the header's RLP.
    uint256 internal constant HEADER_FIELDS = 31;

    uint256 private constant PRESENCE_SHIFT = 248;
    uint256 private constant NONCE_SHIFT = 184;

    // Presence. Zero: neither nonce nor balance are proven.
    uint256 private constant EXISTS = 1;
    // The balance doesn't fit beside the nonce and has a word of its own.
    uint256 private constant EXISTS_WITH_LARGE_BALANCE = 2;
    // Proven not to exist: this one word tells all four fields.
    uint256 private constant ABSENT = 3;

    uint8 internal constant NONCE_AND_BALANCE =
        uint8(1 << uint8(AccountField.NONCE) | 1 << uint8(AccountField.BALANCE));
    uint8 internal constant STORAGE_ROOT = uint8(1 << uint8(AccountField.STORAGE_ROOT));
    uint8 internal constant CODE_HASH = uint8(1 << uint8(AccountField.CODE_HASH));
    uint8 private constant ALL_FIELDS = NONCE_AND_BALANCE | STORAGE_ROOT | CODE_HASH;

    uint256 private constant TIMESTAMP_PROVEN = 1 << 255;

    /// @notice The trusted state root of a block of the source chain; zero where its header isn't accumulated.
    mapping(uint256 blockNumber => bytes32) public stateRoot;

    mapping(address account => mapping(uint256 blockNumber => AccountFacts)) private _accounts;
    mapping(uint256 blockNumber => HeaderFacts) private _headers;
    mapping(uint256 timestamp => uint256) private _blocksAtTimestamps;
    // The hashes of blocks of the chain. A hash binds its header, and so the number; nothing else needs to be stored.
    mapping(bytes32 blockHash => bool) private _blockHashes;

    /// @notice A header was accumulated: accounts of this block can be proven from now on, at any age of the block.
    event HeaderAccumulated(uint256 indexed blockNumber, bytes32 stateRoot);

    /// @notice Facts about an account became readable.
    /// @param fields Newly readable fields, a mask of `1 << AccountField`. It can hold more than was asked for: nonce and
    /// balance come together, and an account that doesn't exist has all four.
    event AccountProven(address indexed account, uint256 indexed blockNumber, uint8 fields);

    /// @notice The value of a storage slot became readable.
    event StorageSlotProven(address indexed account, uint256 indexed blockNumber, bytes32 indexed slot);

    /// @notice Fields of a header became readable.
    /// @param fields Newly readable fields, a mask of `1 << place`.
    event HeaderFieldsProven(uint256 indexed blockNumber, uint256 fields);

    /// @notice It became readable which block was the latest at a time.
    event TimestampProven(uint256 indexed timestamp, uint256 indexed blockNumber);

    /// @notice A header of this hash can be accumulated from now on, whether or not the block hash source vouches for it.
    event BlockHashProven(bytes32 indexed blockHash);

    /// @notice Nobody has proven this field of this account at this block here.
    error NotProven(address account, uint256 blockNumber, AccountField field);

    /// @notice Nobody has proven this storage slot of this account at this block here.
    error SlotNotProven(address account, uint256 blockNumber, bytes32 slot);

    /// @notice Nobody has proven this field of this block's header here.
    error HeaderFieldNotProven(uint256 blockNumber, uint8 field);

    /// @notice Nobody has proven here which block was the latest at this time.
    error TimestampNotProven(uint256 timestamp);

    // --- Reading ----------------------------------------------------------------------------------------------------

    /// @notice One field of an account, left-padded to 32 bytes. Of an account that doesn't exist: nonce 0, balance 0,
    /// storage root of the empty trie, code hash 0 (as EXTCODEHASH, EIP-1052).
    /// @dev Reverts with NotProven where nothing is proven, and without a reason where there is no such field.
    function accountField(address account, uint256 blockNumber, AccountField field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryAccountField(account, blockNumber, field);
        if (!proven) revert NotProven(account, blockNumber, field);
        return value;
    }

    /// @notice The value of a storage slot of an account, as `accountStorageSlotValues`.
    function accountField(address account, uint256 blockNumber, bytes32 slot) external view returns (bytes32) {
        return accountStorageSlotValues(account, blockNumber, slot);
    }

    /// @notice As `accountField` of a field, but answers (false, 0) where nothing is proven.
    function tryAccountField(address account, uint256 blockNumber, AccountField field)
        public
        view
        returns (bool proven, bytes32 value)
    {
        AccountFacts storage facts = _accounts[account][blockNumber];
        uint256 place;
        // Solidity would check the enumeration's value again, which arguments have been checked for already.
        assembly ("memory-safe") {
            place := field
        }
        if (place > uint256(AccountField.BALANCE)) {
            assembly ("memory-safe") {
                // Storage root and code hash are at the places in the struct that they have in the enumeration.
                value := sload(add(facts.slot, place))
            }
            proven = value != 0;
            if (!proven && facts.summary >> PRESENCE_SHIFT == ABSENT) {
                proven = true;
                if (place == uint256(AccountField.STORAGE_ROOT)) value = PackedTrie.EMPTY_TRIE_ROOT;
            }
        } else {
            uint256 summary = facts.summary;
            uint256 presence = summary >> PRESENCE_SHIFT;
            proven = presence != 0;
            if (place != uint256(AccountField.BALANCE)) value = bytes32(uint256(uint64(summary >> NONCE_SHIFT)));
            else if (presence == EXISTS_WITH_LARGE_BALANCE) value = bytes32(facts.largeBalance);
            else value = bytes32(uint256(uint184(summary)));
        }
    }

    /// @notice The value of a storage slot of an account; zero if the slot, or the account, doesn't exist.
    /// @dev Reverts with SlotNotProven where nothing is proven.
    function accountStorageSlotValues(address account, uint256 blockNumber, bytes32 slot)
        public
        view
        returns (bytes32)
    {
        (bool proven, bytes32 value) = tryAccountStorageSlotValues(account, blockNumber, slot);
        if (!proven) revert SlotNotProven(account, blockNumber, slot);
        return value;
    }

    /// @notice As `accountStorageSlotValues`, but answers (false, 0) where nothing is proven.
    function tryAccountStorageSlotValues(address account, uint256 blockNumber, bytes32 slot)
        public
        view
        returns (bool proven, bytes32 value)
    {
        AccountFacts storage facts = _accounts[account][blockNumber];
        value = bytes32(facts.slots[uint256(slot)]);
        proven = value != 0 || facts.zeroSlots[uint256(slot) >> 8] >> uint8(uint256(slot)) & 1 != 0;
    }

    /// @notice One field of a block's header, left-padded to 32 bytes; of LOGS_BLOOM (6) and EXTRA_DATA (12) the
    /// keccak256. Places 3 (state root) and 8 (number) can be read of every accumulated header.
    /// @param field Its place in the header's RLP, from 0 (parent hash) on.
    /// @dev Reverts with HeaderFieldNotProven where nothing is proven.
    function headerField(uint256 blockNumber, uint8 field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryHeaderField(blockNumber, field);
        if (!proven) revert HeaderFieldNotProven(blockNumber, field);
        return value;
    }

    /// @notice As `headerField`, but answers (false, 0) where nothing is proven.
    function tryHeaderField(uint256 blockNumber, uint8 field) public view returns (bool proven, bytes32 value) {
        if (field == PackedHeader.STATE_ROOT || field == PackedHeader.NUMBER) {
            value = stateRoot[blockNumber];
            proven = value != 0;
            if (proven && field == PackedHeader.NUMBER) value = bytes32(blockNumber);
        } else if (field < HEADER_FIELDS) {
            value = _headerField(blockNumber, field);
            proven = value != 0 || _headers[blockNumber].zeroFields >> field & 1 != 0;
        }
    }

    /// @dev A field that isn't of every accumulated header; zero where it is zero or not proven.
    function _headerField(uint256 blockNumber, uint256 field) internal view returns (bytes32) {
        return _headers[blockNumber].fields[field];
    }

    /// @notice The latest block whose timestamp isn't after `timestamp` (seconds since 1970).
    /// @dev Reverts with TimestampNotProven where nothing is proven.
    function blockAtTimestamp(uint256 timestamp) external view returns (uint256) {
        (bool proven, uint256 blockNumber) = tryBlockAtTimestamp(timestamp);
        if (!proven) revert TimestampNotProven(timestamp);
        return blockNumber;
    }

    /// @notice As `blockAtTimestamp`, but answers (false, 0) where nothing is proven.
    function tryBlockAtTimestamp(uint256 timestamp) public view returns (bool proven, uint256 blockNumber) {
        uint256 stored = _blocksAtTimestamps[timestamp];
        proven = stored != 0;
        blockNumber = uint64(stored);
    }

    // --- Writing ----------------------------------------------------------------------------------------------------

    /// @dev `root` isn't zero.
    function _storeStateRoot(uint256 blockNumber, bytes32 root) internal {
        if (stateRoot[blockNumber] != 0) return;
        stateRoot[blockNumber] = root;
        emit HeaderAccumulated(blockNumber, root);
    }

    /// @param fields A mask of `1 << AccountField`.
    function _storeAccount(
        uint256 blockNumber,
        address account,
        uint8 fields,
        uint256 nonce,
        uint256 balance,
        bytes32 storageRoot,
        bytes32 codeHash
    ) internal {
        AccountFacts storage facts = _accounts[account][blockNumber];
        uint8 added;
        if (fields & NONCE_AND_BALANCE != 0 && facts.summary == 0) {
            uint256 packedNonce = nonce << NONCE_SHIFT;
            if (balance <= type(uint184).max) {
                facts.summary = EXISTS << PRESENCE_SHIFT | packedNonce | balance;
            } else {
                facts.summary = EXISTS_WITH_LARGE_BALANCE << PRESENCE_SHIFT | packedNonce;
                facts.largeBalance = balance;
            }
            added = NONCE_AND_BALANCE;
        }
        if (fields & STORAGE_ROOT != 0 && facts.storageRoot == 0) {
            facts.storageRoot = storageRoot;
            added |= STORAGE_ROOT;
        }
        if (fields & CODE_HASH != 0 && facts.codeHash == 0) {
            facts.codeHash = codeHash;
            added |= CODE_HASH;
        }
        if (added != 0) emit AccountProven(account, blockNumber, added);
    }

    function _storeAbsentAccount(uint256 blockNumber, address account) internal {
        AccountFacts storage facts = _accounts[account][blockNumber];
        if (facts.summary == 0) {
            facts.summary = ABSENT << PRESENCE_SHIFT;
            emit AccountProven(account, blockNumber, ALL_FIELDS);
        }
    }

    function _storeSlot(uint256 blockNumber, address account, uint256 slot, uint256 value) internal {
        AccountFacts storage facts = _accounts[account][blockNumber];
        if (value != 0) {
            if (facts.slots[slot] != 0) return;
            facts.slots[slot] = value;
        } else {
            uint256 neighbours = facts.zeroSlots[slot >> 8];
            uint256 bit = 1 << (slot & 0xff);
            if (neighbours & bit != 0) return;
            facts.zeroSlots[slot >> 8] = neighbours | bit;
        }
        emit StorageSlotProven(account, blockNumber, bytes32(slot));
    }

    /// @dev Whether it wasn't stored before.
    function _storeHeaderField(uint256 blockNumber, uint256 field, bytes32 value) internal returns (bool) {
        HeaderFacts storage facts = _headers[blockNumber];
        if (value != 0) {
            if (facts.fields[field] != 0) return false;
            facts.fields[field] = value;
        } else {
            uint256 zeroFields = facts.zeroFields;
            if (zeroFields >> field & 1 != 0) return false;
            facts.zeroFields = zeroFields | 1 << field;
        }
        return true;
    }

    function _storeTimestamp(uint256 timestamp, uint256 blockNumber) internal {
        if (_blocksAtTimestamps[timestamp] != 0) return;
        _blocksAtTimestamps[timestamp] = TIMESTAMP_PROVEN | blockNumber;
        emit TimestampProven(timestamp, blockNumber);
    }

    /// @param blockHash Not zero.
    function _storeBlockHash(bytes32 blockHash) internal {
        if (_blockHashes[blockHash]) return;
        _blockHashes[blockHash] = true;
        emit BlockHashProven(blockHash);
    }

    /// @dev Whether it is proven to be the hash of a block of the source chain.
    function _isBlockHash(bytes32 blockHash) internal view returns (bool) {
        return _blockHashes[blockHash];
    }
}
