// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Facts} from "./Facts.sol";
import {IBlockHashSource} from "./IBlockHashSource.sol";
import {PackedHeader} from "./PackedHeader.sol";
import {InvalidProof, PackedTrie} from "./PackedTrie.sol";

/// @title Proven facts about the blocks of one source chain, readable on the destination chain this is deployed on.
/// @notice Anyone may submit a proof; nobody can write a fact without one. There is no owner, upgrade or pause: all
/// trust is in the block hash source, which can't be exchanged, and in the source chain's own history (EIP-2935).
/// @dev The source chain must have the contract of EIP-2935 at that address, written by its protocol only, or nothing.
/// Proofs come as packed calldata, which FORMAT.md specifies, to `fallback`: calldata is what proving costs.
contract FactsRegistry is Facts {
    bytes32 private constant EMPTY_CODE_HASH = 0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470;

    // Operations, by their first byte. What is below OPEN_STORAGE is a branch.
    uint256 private constant OPEN_STORAGE = 0x30;
    uint256 private constant HEADER_FACTS = 0x31;
    uint256 private constant ZERO_SLOT = 0x32; // to 0x35
    uint256 private constant EXTENSION = 0x36;
    uint256 private constant HEADER_ALONE = 0x37;
    uint256 private constant PARENT = 0x38;
    uint256 private constant PARENT_HASH_ALONE = 0x39;
    uint256 private constant SLOT = 0x40; // to 0x60, by its number's size
    uint256 private constant BLOCK_HASH = 0x61;
    uint256 private constant ABSENT_ACCOUNT = 0x70; // to 0x7f
    uint256 private constant ACCOUNT = 0x80; // to 0xff

    // How something is absent: low bits of ABSENT_ACCOUNT, offset of ZERO_SLOT.
    uint256 private constant AT_EMPTY = 0;
    uint256 private constant AT_EXTENSION = 1;
    uint256 private constant AT_SAME = 2;
    uint256 private constant AT_LEAF = 3; // of an account: 4 to 7, by what follows
    uint256 private constant ABSENT_CLOSES_STORAGE = 0x08;

    // Bits of ACCOUNT. The lowest makes the number of ones below 0x80 even: what to store is all that the root doesn't
    // bind, and no flip of one bit may change that either.
    uint256 private constant CLOSES_STORAGE = 0x08;
    uint256 private constant STORE_CODE_HASH = 0x10;
    uint256 private constant STORE_STORAGE_ROOT = 0x20;
    uint256 private constant STORE_NONCE_AND_BALANCE = 0x40;
    // One bit up in ACCOUNT.
    uint256 private constant CODE_HASH_FOLLOWS = 0x01;
    uint256 private constant STORAGE_ROOT_FOLLOWS = 0x02;

    uint256 private constant KEY_NIBBLES = 64;

    // Of EIP-2935. Its storage holds hashes of the blocks before, and nothing else.
    address private constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    /// @notice The chain whose accounts are proven here, by its EIP-155 chain id.
    uint256 public immutable sourceChainId;

    /// @notice Who vouches for the block hashes of the source chain.
    IBlockHashSource public immutable blockHashSource;

    /// @notice How many slots the source chain's history contract (EIP-2935) writes: the hash of block n goes to slot
    /// n modulo this, and no other slot holds a hash. 8,191 on Ethereum, 393,168 on Arbitrum.
    uint256 public immutable historyWindow;

    /// @notice The block hash source vouches for another chain, that of this id.
    error SourceOfAnotherChain(uint256 itsSourceChainId);

    /// @notice Neither does the block hash source vouch for this block, nor is the header's hash proven; or no header was
    /// sent, and none is accumulated.
    error UnknownBlock(uint256 blockNumber);

    /// @notice The header isn't that of the block: its hash, or its state root, is another one.
    error HeaderMismatch(uint256 blockNumber);

    /// @notice What was sent as a header isn't one.
    error InvalidHeader();

    /// @notice These two aren't the headers of the blocks before and after that time.
    error TimestampMismatch(uint256 timestamp);

    constructor(uint256 sourceChainId_, IBlockHashSource blockHashSource_, uint256 historyWindow_) {
        uint256 itsSourceChainId = blockHashSource_.sourceChainId();
        if (itsSourceChainId != sourceChainId_) revert SourceOfAnotherChain(itsSourceChainId);
        sourceChainId = sourceChainId_;
        blockHashSource = blockHashSource_;
        historyWindow = historyWindow_;
    }

    /// @notice Stores what the packed calldata proves of one block, all or nothing. Facts that are stored already stay
    /// as they are, at no error; their proofs must be valid all the same.
    /// @dev No selector of a function here begins as packed calldata does, by 0x01 to 0x08 or 0xf9.
    fallback() external {
        uint256 blockNumber;
        bytes32 root;
        uint256 cursor;
        if (PackedTrie.read(0, 1) < 0x80) {
            (blockNumber, cursor) = _readBlockNumber();
            root = stateRoot[blockNumber];
            if (root == 0) revert UnknownBlock(blockNumber);
        } else {
            uint256 start = 0;
            bytes32 parentHash;
            (blockNumber, parentHash, root,, cursor) = _readHeader(0);
            _checkHash(blockNumber, PackedHeader.hash(0, cursor));
            uint256 op = PackedTrie.read(cursor, 1);
            // Mostly an account follows: one comparison each tells it from 0x38 to 0x3f, and from 0x30 to 0x37 below.
            if (op >> 3 == PARENT >> 3) {
                while (op == PARENT) {
                    start = cursor + 1;
                    bytes32 expected = parentHash;
                    (blockNumber, parentHash, root,, cursor) = _readHeader(start);
                    if (PackedHeader.hash(start, cursor) != expected) revert HeaderMismatch(blockNumber);
                    op = PackedTrie.read(cursor, 1);
                }
                if (op == PARENT_HASH_ALONE) {
                    // The first block of all has no parent.
                    if (cursor + 1 != msg.data.length || parentHash == 0) revert InvalidProof();
                    _storeBlockHash(parentHash);
                    return;
                }
            }
            _accumulate(blockNumber, root);
            if (op >> 3 == HEADER_FACTS >> 3) {
                if (op == HEADER_FACTS) {
                    _storeHeaderFields(blockNumber, PackedTrie.read(cursor + 1, 4), start, cursor);
                    cursor += 5;
                    op = PackedTrie.read(cursor, 1);
                }
                if (op == HEADER_ALONE && cursor + 1 == msg.data.length) return;
            }
        }
        if (_prove(blockNumber, cursor) != root) revert InvalidProof();
    }

    /// @notice Stores which block of the source chain was the latest at a time, and accumulates its header.
    /// @param header RLP of the header of the latest block whose timestamp isn't after `timestamp`.
    /// @param next RLP of the header after it. It is this one whose hash must be trusted: it binds the other's, as parent
    /// hash, and not the reverse.
    /// @param timestamp In seconds since 1970.
    function proveTimestamp(bytes calldata header, bytes calldata next, uint256 timestamp) external {
        (uint256 nextNumber, uint256 nextTime, bytes32 parentHash,) = _readWhole(next);
        _checkHash(nextNumber, keccak256(next));
        (uint256 blockNumber, uint256 time,, bytes32 root) = _readWhole(header);
        if (keccak256(header) != parentHash) revert HeaderMismatch(blockNumber);
        if (time > timestamp || timestamp >= nextTime) revert TimestampMismatch(timestamp);

        _accumulate(blockNumber, root);
        _storeTimestamp(timestamp, blockNumber);
    }

    /// @notice Whether the header of this number and hash would be accepted now: the block hash source vouches for it, or
    /// the hash is proven to be that of a block.
    /// @dev A proven hash is accepted whatever the number: it is the header's own number that counts, which its hash binds.
    function vouches(uint256 blockNumber, bytes32 blockHash) external view returns (bool) {
        return blockHash != 0 && (_vouchedHash(blockNumber) == blockHash || _isBlockHash(blockHash));
    }

    // --- Blocks -----------------------------------------------------------------------------------------------------

    /// @dev The number that packed calldata begins with, instead of a header: its size, then its bytes.
    function _readBlockNumber() private pure returns (uint256 blockNumber, uint256 cursor) {
        uint256 size = PackedTrie.read(0, 1);
        if (size == 0 || size > 8) revert InvalidProof();
        blockNumber = PackedTrie.read(1, size);
        // Zero takes one byte.
        if (size > 1 && blockNumber >> (8 * size - 8) == 0) revert InvalidProof();
        cursor = 1 + size;
    }

    /// @dev Reads a header in calldata up to its number. Fields 3 (state root) and 8 (number) have kept their places
    /// through all forks. `rest` is where the field after the number begins.
    function _readHeader(uint256 start)
        private
        pure
        returns (uint256 blockNumber, bytes32 parentHash, bytes32 root, uint256 rest, uint256 end)
    {
        (rest, end) = PackedHeader.open(start);
        (parentHash, root, blockNumber, rest) = PackedHeader.takeFirst(rest);
        // A root of zero would read as "not accumulated".
        if (rest > end || root == 0) revert InvalidHeader();
    }

    /// @dev Reads a header up to its timestamp.
    function _readWhole(bytes calldata header)
        private
        pure
        returns (uint256 blockNumber, uint256 time, bytes32 parentHash, bytes32 root)
    {
        uint256 start;
        assembly ("memory-safe") {
            start := header.offset
        }
        uint256 rest;
        uint256 end;
        (blockNumber, parentHash, root, rest, end) = _readHeader(start);
        rest = PackedHeader.skip(rest, 2);
        (time, rest) = PackedHeader.takeInteger(rest);
        if (rest > end || end - start != header.length) revert InvalidHeader();
    }

    function _checkHash(uint256 blockNumber, bytes32 headerHash) private view {
        bytes32 hash = _vouchedHash(blockNumber);
        if (headerHash == hash || _isBlockHash(headerHash)) return;
        if (hash == 0) revert UnknownBlock(blockNumber);
        revert HeaderMismatch(blockNumber);
    }

    /// @dev What the block hash source answers; zero where it doesn't.
    function _vouchedHash(uint256 blockNumber) private view returns (bytes32 hash) {
        address source = address(blockHashSource);
        bytes4 selector = IBlockHashSource.blockHash.selector;
        assembly ("memory-safe") {
            mstore(0, selector)
            mstore(4, blockNumber)
            // A source that fails doesn't vouch. (Arguments are evaluated from the right: the call comes first.)
            if and(eq(returndatasize(), 32), staticcall(gas(), source, 0, 36, 0, 32)) { hash := mload(0) }
        }
    }

    function _accumulate(uint256 blockNumber, bytes32 root) private {
        bytes32 known = stateRoot[blockNumber];
        if (known == 0) _storeStateRoot(blockNumber, root);
        else if (known != root) revert HeaderMismatch(blockNumber);
    }

    /// @param fields A mask of `1 << place`, without those that can be read of every accumulated header. Its highest bit
    /// makes the number of ones even.
    /// @param start Where the header begins.
    /// @param end Where it ends.
    function _storeHeaderFields(uint256 blockNumber, uint256 fields, uint256 start, uint256 end) private {
        bool even = PackedTrie.isEven((fields ^ fields >> 8 ^ fields >> 16 ^ fields >> 24) & 0xff);
        fields &= (1 << HEADER_FIELDS) - 1;
        if (!even || fields == 0 || fields & (1 << PackedHeader.STATE_ROOT | 1 << PackedHeader.NUMBER) != 0) {
            revert InvalidProof();
        }
        uint256 added;
        (uint256 cursor,) = PackedHeader.open(start);
        for (uint256 place = 0; fields >> place != 0; ++place) {
            (uint256 content, uint256 size, uint256 next) = PackedHeader.take(cursor);
            // The header has no such field, or one that is none.
            if (next > end) revert InvalidProof();
            cursor = next;
            if (fields >> place & 1 == 0) continue;

            bytes32 value;
            if (place == PackedHeader.LOGS_BLOOM || place == PackedHeader.EXTRA_DATA) {
                value = PackedHeader.hash(content, content + size);
            } else {
                if (size > 32) revert InvalidProof();
                value = bytes32(PackedTrie.read(content, size));
            }
            if (_storeHeaderField(blockNumber, place, value)) added |= 1 << place;
        }
        if (added != 0) emit HeaderFieldsProven(blockNumber, added);
    }

    // --- State ------------------------------------------------------------------------------------------------------

    /// @dev Runs the operations from `cursor` to the end of calldata, stores what they prove, and answers the root of
    /// the state in which it all holds. Nothing may be kept unless that root is trusted.
    function _prove(uint256 blockNumber, uint256 cursor) private returns (bytes32) {
        uint256 top = PackedTrie.BOTTOM;
        // While the storage of an account is open: the bottom of its own stack, and whose it is.
        uint256 storageBottom = 0;
        address owner;
        PackedTrie.begin();
        unchecked {
            while (cursor < msg.data.length) {
                uint256 op = PackedTrie.read(cursor, 1);
                if (op == 0) {
                    uint256 next = PackedTrie.fullBranches(cursor, top);
                    if (next != cursor) {
                        cursor = next;
                        continue;
                    }
                }
                ++cursor;
                if (op < OPEN_STORAGE) {
                    (cursor, top) = PackedTrie.branch(op, cursor, top);
                } else if (op >= ABSENT_ACCOUNT) {
                    bytes32 storageRoot;
                    if (op & (op < ACCOUNT ? ABSENT_CLOSES_STORAGE : CLOSES_STORAGE) == 0) {
                        if (storageBottom != 0) revert InvalidProof();
                    } else {
                        if (storageBottom == 0) revert InvalidProof();
                        storageRoot = PackedTrie.root(top, storageBottom);
                        top = storageBottom - PackedTrie.ITEM;
                        storageBottom = 0;
                    }
                    if (op < ACCOUNT) (cursor, top) = _absentAccount(op, blockNumber, cursor, top, owner, storageRoot);
                    else (cursor, top) = _account(op, blockNumber, cursor, top, owner, storageRoot);
                } else if (op == EXTENSION) {
                    PackedTrie.extend(PackedTrie.read(cursor, 1), top);
                    ++cursor;
                } else if (op == OPEN_STORAGE) {
                    if (storageBottom != 0) revert InvalidProof();
                    owner = address(uint160(PackedTrie.read(cursor, 20)));
                    cursor += 20;
                    top += PackedTrie.ITEM;
                    storageBottom = top;
                    PackedTrie.clear(top);
                } else {
                    if (storageBottom == 0) revert InvalidProof();
                    if (op >= SLOT) (cursor, top) = _slot(op - SLOT, blockNumber, cursor, top, owner);
                    else (cursor, top) = _zeroSlot(op - ZERO_SLOT, blockNumber, cursor, top, owner);
                }
            }
        }
        if (cursor != msg.data.length || storageBottom != 0) revert InvalidProof();
        return PackedTrie.root(top, PackedTrie.BOTTOM);
    }

    /// @param owner Whose account it is, if it closes a storage, of which `storageRoot` is then the root.
    function _account(
        uint256 op,
        uint256 blockNumber,
        uint256 cursor,
        uint256 top,
        address owner,
        bytes32 storageRoot
    ) private returns (uint256, uint256) {
        unchecked {
            if (!PackedTrie.isEven(op & 0x7f)) revert InvalidProof();
            uint256 head = PackedTrie.read(cursor, 2);
            cursor += 2;
            uint256 follows = op >> 1 & 3;
            if (op & CLOSES_STORAGE == 0) {
                owner = address(uint160(PackedTrie.read(cursor, 20)));
                cursor += 20;
                if (op < ACCOUNT + STORE_CODE_HASH) revert InvalidProof(); // It would store nothing.
            } else if (follows & STORAGE_ROOT_FOLLOWS != 0) {
                revert InvalidProof();
            }
            uint256 nonce;
            uint256 balance;
            bytes32 codeHash;
            (cursor, nonce, balance, storageRoot, codeHash) = _readAccount(follows, head, cursor, storageRoot);
            top = PackedTrie.pushAccount(
                top, _key(owner), head >> 10, nonce, head >> 6 & 0x0f, balance, head & 0x3f, storageRoot, codeHash
            );
            uint256 fields = op & STORE_NONCE_AND_BALANCE == 0 ? 0 : NONCE_AND_BALANCE;
            if (op & STORE_STORAGE_ROOT != 0) fields |= STORAGE_ROOT;
            if (op & STORE_CODE_HASH != 0) fields |= CODE_HASH;
            _storeAccount(blockNumber, owner, uint8(fields), nonce, balance, storageRoot, codeHash);
            return (cursor, top);
        }
    }

    function _absentAccount(
        uint256 op,
        uint256 blockNumber,
        uint256 cursor,
        uint256 top,
        address owner,
        bytes32 storageRoot
    ) private returns (uint256, uint256) {
        unchecked {
            if (op & ABSENT_CLOSES_STORAGE == 0) {
                owner = address(uint160(PackedTrie.read(cursor, 20)));
                cursor += 20;
            } else if (storageRoot != PackedTrie.EMPTY_TRIE_ROOT) {
                revert InvalidProof();
            }
            uint256 key = _key(owner);
            uint256 how = op & 7;
            if (how > AT_LEAF) {
                uint256 head = PackedTrie.read(cursor, 2);
                uint256 depth = head >> 10;
                uint256 other;
                (cursor, other) = PackedTrie.readOtherKey(cursor + 2, key, depth, KEY_NIBBLES - depth);
                uint256 nonce;
                uint256 balance;
                bytes32 codeHash;
                (cursor, nonce, balance, storageRoot, codeHash) = _readAccount(op & 3, head, cursor, 0);
                top = PackedTrie.pushAccount(
                    top, other, depth, nonce, head >> 6 & 0x0f, balance, head & 0x3f, storageRoot, codeHash
                );
                PackedTrie.attach(top, key);
            } else {
                if (how == AT_LEAF) revert InvalidProof();
                (cursor, top) = _absentKey(how, cursor, top, key);
            }
            _storeAbsentAccount(blockNumber, owner);
            return (cursor, top);
        }
    }

    /// @dev What follows the address: nonce and balance, then the storage root and the code hash where they do.
    function _readAccount(uint256 follows, uint256 head, uint256 cursor, bytes32 storageRoot)
        private
        pure
        returns (uint256, uint256 nonce, uint256 balance, bytes32, bytes32 codeHash)
    {
        unchecked {
            uint256 size = head >> 6 & 0x0f;
            // Nonces have 64 bits (EIP-2681).
            if (size > 8) revert InvalidProof();
            nonce = PackedTrie.readShortest(cursor, size);
            cursor += size;
            size = head & 0x3f;
            balance = PackedTrie.readShortest(cursor, size);
            cursor += size;
            if (follows & STORAGE_ROOT_FOLLOWS != 0) {
                storageRoot = bytes32(PackedTrie.read(cursor, 32));
                cursor += 32;
                if (storageRoot == 0 || storageRoot == PackedTrie.EMPTY_TRIE_ROOT) revert InvalidProof();
            } else if (storageRoot == 0) {
                storageRoot = PackedTrie.EMPTY_TRIE_ROOT;
            }
            codeHash = EMPTY_CODE_HASH;
            if (follows & CODE_HASH_FOLLOWS != 0) {
                codeHash = bytes32(PackedTrie.read(cursor, 32));
                cursor += 32;
                if (codeHash == 0 || codeHash == EMPTY_CODE_HASH) revert InvalidProof();
            }
            return (cursor, nonce, balance, storageRoot, codeHash);
        }
    }

    /// @param size Bytes of the slot's number; or BLOCK_HASH - SLOT, and they are told next.
    function _slot(uint256 size, uint256 blockNumber, uint256 cursor, uint256 top, address owner)
        private
        returns (uint256, uint256)
    {
        unchecked {
            bool isBlockHash = size > 32;
            if (isBlockHash) {
                // Whose storage it is shows when it is closed, as for any slot.
                if (size != BLOCK_HASH - SLOT || owner != HISTORY) revert InvalidProof();
                size = PackedTrie.read(cursor, 1);
                ++cursor;
            }
            uint256 slot = PackedTrie.readShortest(cursor, size);
            // The protocol writes no slot beyond: what is there, an allocation at genesis say, is no block's hash.
            if (isBlockHash && slot >= historyWindow) revert InvalidProof();
            cursor += size;
            uint256 depth = PackedTrie.read(cursor, 1);
            uint256 value;
            (cursor, value, size) = _readValue(cursor + 1);
            top = PackedTrie.pushSlot(top, _key(slot), depth, value, size);
            if (isBlockHash) _storeBlockHash(bytes32(value));
            else _storeSlot(blockNumber, owner, slot, value);
            return (cursor, top);
        }
    }

    function _zeroSlot(uint256 how, uint256 blockNumber, uint256 cursor, uint256 top, address owner)
        private
        returns (uint256, uint256)
    {
        unchecked {
            uint256 size = PackedTrie.read(cursor, 1);
            uint256 slot = PackedTrie.readShortest(cursor + 1, size);
            cursor += 1 + size;
            uint256 key = _key(slot);
            if (how == AT_LEAF) {
                uint256 depth = PackedTrie.read(cursor, 1);
                if (depth > KEY_NIBBLES) revert InvalidProof();
                uint256 other;
                (cursor, other) = PackedTrie.readOtherKey(cursor + 1, key, depth, KEY_NIBBLES - depth);
                uint256 value;
                (cursor, value, size) = _readValue(cursor);
                top = PackedTrie.pushSlot(top, other, depth, value, size);
                PackedTrie.attach(top, key);
            } else {
                (cursor, top) = _absentKey(how, cursor, top, key);
            }
            _storeSlot(blockNumber, owner, slot, 0);
            return (cursor, top);
        }
    }

    /// @dev The value of a slot that isn't empty: its size, then its bytes.
    function _readValue(uint256 cursor) private pure returns (uint256, uint256 value, uint256 size) {
        unchecked {
            size = PackedTrie.read(cursor, 1);
            if (size == 0) revert InvalidProof();
            value = PackedTrie.readShortest(cursor + 1, size);
            return (cursor + 1 + size, value, size);
        }
    }

    /// @dev A key that is absent elsewhere than at a leaf of its own.
    function _absentKey(uint256 how, uint256 cursor, uint256 top, uint256 key)
        private
        pure
        returns (uint256, uint256)
    {
        unchecked {
            if (how == AT_EMPTY) return (cursor + 1, PackedTrie.pushEmpty(top, key, PackedTrie.read(cursor, 1)));
            if (how == AT_EXTENSION) return PackedTrie.pushOtherExtension(cursor, top, key);
            if (how != AT_SAME) revert InvalidProof();
            PackedTrie.attach(top, key);
            return (cursor, top);
        }
    }

    /// @dev Where an account is in the state trie.
    function _key(address account) private pure returns (uint256 key) {
        assembly ("memory-safe") {
            mstore(0, shl(96, account))
            key := keccak256(0, 20)
        }
    }

    /// @dev Where a slot is in its account's storage trie.
    function _key(uint256 slot) private pure returns (uint256 key) {
        assembly ("memory-safe") {
            mstore(0, slot)
            key := keccak256(0, 32)
        }
    }
}
