// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Calldata, CalldataReader} from "./Calldata.sol";
import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {IBeaconHistory} from "./IBeaconHistory.sol";
import {IBlockHashSource} from "./IBlockHashSource.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {MemoryZones} from "./MemoryZones.sol";
import {InvalidHeader, PackedHeader} from "./PackedHeader.sol";
import {StateProof} from "./StateProof.sol";
import {TransactionProof} from "./TransactionProof.sol";

/// @title Proven facts about the blocks of one source chain, readable on the destination chain this is deployed on.
/// @notice Anyone may submit a proof; nobody can write a fact without one. There is no owner, upgrade or pause: all
/// trust is in the block hash source, which can't be exchanged, and in the source chain's own history (EIP-2935).
/// @dev The source chain must have the contract of EIP-2935 at that address, written by its protocol only, or nothing.
/// Proofs come as packed calldata, which docs/developing/proof-format.md specifies, to `fallback`: calldata is what proving costs.
contract FactsRegistry is TransactionProof {
    using CalldataReader for Calldata;

    // Operations on headers, by their first byte.
    uint256 private constant HEADER_FACTS = 0x31;
    uint256 private constant HEADER_ALONE = 0x37;
    uint256 private constant PARENT = 0x38;
    uint256 private constant HASH_ALONE = 0x39;
    // Operations that make the hash of an older block known, by a branch.
    uint256 private constant OLD_BLOCK = 0x3a;
    uint256 private constant BLOCK_BEFORE_CAPELLA = 0x3b;
    uint256 private constant BLOCK_BEFORE_MERGE = 0x3c;
    // A header, by its RLP's first byte.
    uint256 private constant HEADER = 0xf9;

    /// @notice The chain whose accounts are proven here, by its EIP-155 chain id.
    uint256 public immutable sourceChainId;

    /// @notice Who vouches for the block hashes of the source chain.
    IBlockHashSource public immutable blockHashSource;

    /// @notice Who proves the hashes of older blocks by the source chain's beacon chain; zero where nobody does.
    IBeaconHistory public immutable beaconChainHistory;

    /// @notice Neither does the block hash source vouch for this block, nor is the header's hash proven; or no header was
    /// sent, and none is accumulated.
    error UnknownBlock(uint256 blockNumber);

    /// @notice The header isn't that of the block: its hash, its number or its state root is another one.
    error HeaderMismatch(uint256 blockNumber);

    /// @notice These two aren't the headers of the blocks before and after that time.
    error TimestampMismatch(uint256 timestamp);

    /// @notice The block hash source, or the beacon history, is one of another chain.
    error SourceOfAnotherChain(uint256 itsSourceChainId);

    /// @notice There is no such function here, and no proof begins like this.
    error UnknownFunction(bytes4 selector);

    /// @dev Reverts with SourceOfAnotherChain.
    /// @param historyWindow_ Number of slots to which the source chain's history contract (EIP-2935) writes.
    /// @param beaconChainHistory_ Zero, unless field 19 of the source chain's headers is the root of its own beacon chain.
    constructor(
        uint256 sourceChainId_,
        IBlockHashSource blockHashSource_,
        uint256 historyWindow_,
        IBeaconHistory beaconChainHistory_
    ) StateProof(historyWindow_) {
        _checkChain(blockHashSource_.sourceChainId(), sourceChainId_);
        if (address(beaconChainHistory_) != address(0)) _checkChain(beaconChainHistory_.sourceChainId(), sourceChainId_);
        sourceChainId = sourceChainId_;
        blockHashSource = blockHashSource_;
        beaconChainHistory = beaconChainHistory_;
    }

    /// @notice Stores what the packed calldata proves of one block, all or nothing. Facts that are stored already stay
    /// as they are, at no error; their proofs must be valid all the same.
    /// @dev No selector of a function here begins as packed calldata does, by 0x01 to 0x08, 0x3b, 0x3c or 0xf9. A call of a
    /// function that isn't here is refused as such, unless its selector does: then it is refused as a proof.
    fallback() external {
        Calldata memory input;
        uint256 blockNumber;
        bytes32 root;
        // Behind the end of calldata are zeros.
        uint256 first = CalldataRlp.number(0, 1);
        if (first < OLD_BLOCK) {
            blockNumber = _takeBlockNumber(input, first);
            uint256 trie = input.peek();
            if (_isTransactions(trie)) {
                uint8 place = _rootPlace(trie);
                root = _headerField(blockNumber, place);
                if (root == 0) revert HeaderFieldNotProven(blockNumber, place);
                _storeTransactions(input, blockNumber, trie, root);
                return;
            }
            root = stateRoot[blockNumber];
            if (root == 0) revert UnknownBlock(blockNumber);
        } else {
            bytes32 expected;
            if (first != HEADER) {
                expected = _takeConstantsBlock(input, first);
                if (_storeAlone(input, expected)) return;
            }
            uint256 start = input.cursor;
            bytes32 parentHash;
            bytes32 headerHash;
            (blockNumber, parentHash, root, headerHash) = _takeHeader(input);
            if (expected == 0) _checkHash(blockNumber, headerHash);
            else if (headerHash != expected) revert HeaderMismatch(blockNumber);
            uint256 op = input.peek();
            while (op == PARENT || op == OLD_BLOCK) {
                input.skip(1);
                uint256 child = blockNumber;
                expected = parentHash;
                if (op == OLD_BLOCK) {
                    expected = _provenHash(
                        input,
                        IBeaconHistory.oldBlockHash.selector,
                        _parentBeaconBlockRoot(start)
                    );
                    if (_storeAlone(input, expected)) return;
                }
                start = input.cursor;
                (blockNumber, parentHash, root, headerHash) = _takeHeader(input);
                if (headerHash != expected || (op == PARENT && blockNumber + 1 != child)) {
                    revert HeaderMismatch(blockNumber);
                }
                op = input.peek();
            }
            if (op == HASH_ALONE) {
                input.skip(1);
                // The first block of a chain has no parent there, even if its header names one.
                if (!input.atEnd() || parentHash == 0 || blockNumber == 0) revert InvalidProof();
                _storeBlockHash(parentHash);
                return;
            }
            if (_isTransactions(op)) {
                // The header is only used: storing its state root would cost as much as a log.
                _checkStateRoot(blockNumber, root);
                _storeTransactions(input, blockNumber, op, PackedHeader.rootAt(start, _rootPlace(op)));
                return;
            }
            _accumulate(blockNumber, root);
            if (input.peek() == HEADER_FACTS) {
                input.skip(1);
                _storeHeaderFields(blockNumber, input.take(4), start);
            }
            if (input.peek() == HEADER_ALONE) {
                input.skip(1);
                if (!input.atEnd()) revert InvalidProof();
                return;
            }
        }
        if (_proveState(blockNumber, input.cursor) != root) revert InvalidProof();
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
        if (keccak256(header) != parentHash || blockNumber + 1 != nextNumber) revert HeaderMismatch(blockNumber);
        if (time > timestamp || timestamp >= nextTime) revert TimestampMismatch(timestamp);

        _accumulate(blockNumber, root);
        _storeTimestamp(timestamp, blockNumber);
    }

    /// @notice Returns true if the header of this number and hash would be accepted now: the block hash source vouches
    /// for it, or the hash is proven to be that of a block.
    /// @dev A proven hash is accepted with any number, because the header's own number counts, which its hash binds.
    function vouches(uint256 blockNumber, bytes32 blockHash) external view returns (bool) {
        return blockHash != 0 && (_vouchedHash(blockNumber) == blockHash || _isBlockHash(blockHash));
    }

    /// @dev Checks that a contract which vouches for blocks or proves their hashes is about this chain.
    function _checkChain(uint256 itsSourceChainId, uint256 sourceChainId_) private pure {
        if (itsSourceChainId != sourceChainId_) revert SourceOfAnotherChain(itsSourceChainId);
    }

    // --- Blocks -----------------------------------------------------------------------------------------------------

    /// @dev The number that packed calldata begins with, instead of a header: its size, then its bytes. Whoever takes what
    /// follows checks that all of it was sent.
    function _takeBlockNumber(Calldata memory input, uint256 size) private pure returns (uint256 blockNumber) {
        unchecked {
            if (size == 0 || size > 8) _refuseCall();
            blockNumber = CalldataRlp.number(1, size);
            input.cursor = 1 + size;
            // Zero takes one byte.
            if (size > 1 && blockNumber >> (8 * size - 8) == 0) revert InvalidProof();
        }
    }

    /// @dev Refuses calldata that doesn't begin as a proof does.
    function _refuseCall() private pure {
        if (msg.data.length < 4) revert InvalidProof();
        revert UnknownFunction(msg.sig);
    }

    /// @dev Reads a header up to its number and passes it. Fields 3 (state root) and 8 (number) have kept their places
    /// through all forks.
    function _takeHeader(Calldata memory input)
        private
        pure
        returns (uint256 blockNumber, bytes32 parentHash, bytes32 root, bytes32 headerHash)
    {
        uint256 start = input.cursor;
        uint256 end;
        (blockNumber, parentHash, root,, end) = _readHeader(start);
        input.skip(end - start);
        headerHash = PackedHeader.hash(start, end - start);
    }

    /// @dev `rest` is where the field after the number begins.
    function _readHeader(uint256 start)
        private
        pure
        returns (uint256 blockNumber, bytes32 parentHash, bytes32 root, uint256 rest, uint256 end)
    {
        (rest, end) = PackedHeader.open(start);
        (parentHash, root, blockNumber, rest) = PackedHeader.takeFirst(rest, end);
        // A root of zero would read as "not accumulated".
        if (root == 0) revert InvalidHeader();
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
        if (end - start != header.length) revert InvalidHeader();
        // Past gas limit and gas used.
        (time,) = PackedHeader.takeInteger(PackedHeader.skip(rest, end, 2), end);
    }

    /// @dev Field 19 of a header whose first fields are read: the root of the beacon block before its own (EIP-4788).
    function _parentBeaconBlockRoot(uint256 start) private pure returns (bytes32 root) {
        (, uint256 end) = PackedHeader.open(start);
        (uint256 content, uint256 size,) = PackedHeader.take(PackedHeader.parentBeaconBlockRoot(start, end), end);
        root = PackedHeader.word(content, size);
        if (size != 32 || root == 0) revert InvalidHeader();
    }

    // --- Transactions -----------------------------------------------------------------------------------------------

    /// @dev Whether the operations that follow are about receipts or transactions, and not about the state.
    function _isTransactions(uint256 trie) private pure returns (bool) {
        return trie == RECEIPTS || trie == TRANSACTIONS;
    }

    /// @dev The place in a header of the root of receipts, or of transactions.
    function _rootPlace(uint256 trie) private pure returns (uint8) {
        return uint8(trie == RECEIPTS ? PackedHeader.RECEIPTS_ROOT : PackedHeader.TRANSACTIONS_ROOT);
    }

    /// @dev What is left of calldata: the trie, and operations under its root.
    function _storeTransactions(Calldata memory input, uint256 blockNumber, uint256 trie, bytes32 root) private {
        // This byte was looked at.
        if (_proveTransactions(blockNumber, input.cursor + 1, trie) != root) revert InvalidProof();
    }

    /// @dev The hash of a block that needs no header to start from: constants prove it.
    function _takeConstantsBlock(Calldata memory input, uint256 op) private view returns (bytes32) {
        input.cursor = 1;
        if (op == BLOCK_BEFORE_CAPELLA) return _provenHash(input, IBeaconHistory.blockHashBeforeCapella.selector, 0);
        if (op == BLOCK_BEFORE_MERGE) return _provenHash(input, IBeaconHistory.blockHashBeforeMerge.selector, 0);
        _refuseCall();
    }

    /// @dev What a function of the beacon history answers to the branch that comes next: its size, then its bytes. It isn't
    /// zero. Memory beyond the compiler's is as it was before: clear.
    /// @param beaconRoot The function's first argument; zero where the branch is the only one.
    function _provenHash(Calldata memory input, bytes4 selector, bytes32 beaconRoot)
        private
        view
        returns (bytes32 blockHash)
    {
        address history = address(beaconChainHistory);
        uint256 size = input.take(2);
        uint256 place = input.skip(size);
        uint256 head = beaconRoot == 0 ? 32 : 64;
        uint256 zone = MemoryZones.NODE;
        bool answered;
        assembly ("memory-safe") {
            mstore(zone, selector)
            mstore(add(zone, 4), beaconRoot)
            // Offset of the branch, counted from the first argument; then its size.
            mstore(add(zone, sub(head, 28)), head)
            mstore(add(zone, add(head, 4)), size)
            calldatacopy(add(zone, add(head, 36)), place, size)
            let whole := add(size, add(head, 36))
            // An address without code succeeds with an empty answer. (Arguments are evaluated from the right: the call
            // comes first.)
            answered := and(eq(returndatasize(), 32), staticcall(gas(), history, zone, whole, 0, 32))
            blockHash := mload(0)
            // Behind the end of calldata are zeros.
            calldatacopy(zone, calldatasize(), whole)
        }
        if (!answered || blockHash == 0) revert InvalidProof();
    }

    /// @dev Whether the hash that a branch proves is all that is wanted. Else a header follows, and it isn't kept.
    function _storeAlone(Calldata memory input, bytes32 blockHash) private returns (bool) {
        if (input.peek() != HASH_ALONE) return false;
        input.skip(1);
        if (!input.atEnd()) revert InvalidProof();
        _storeBlockHash(blockHash);
        return true;
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
        if (!_checkStateRoot(blockNumber, root)) _storeStateRoot(blockNumber, root);
    }

    /// @dev Whether the state root is stored. Another one for the same block is refused.
    function _checkStateRoot(uint256 blockNumber, bytes32 root) private view returns (bool) {
        bytes32 known = stateRoot[blockNumber];
        if (known != 0 && known != root) revert HeaderMismatch(blockNumber);
        return known != 0;
    }

    /// @param fields A mask of `1 << place`, without those that can be read of every accumulated header. Its highest bit
    /// makes the number of ones even.
    /// @param start Offset of the header.
    function _storeHeaderFields(uint256 blockNumber, uint256 fields, uint256 start) private {
        bool even = _isEven(fields);
        fields &= (1 << HEADER_FIELDS) - 1;
        if (!even || fields == 0 || fields & (1 << PackedHeader.STATE_ROOT | 1 << PackedHeader.NUMBER) != 0) {
            revert InvalidProof();
        }
        uint256 added;
        (uint256 cursor, uint256 end) = PackedHeader.open(start);
        for (uint256 place = 0; fields >> place != 0; ++place) {
            uint256 content;
            uint256 size;
            (content, size, cursor) = PackedHeader.take(cursor, end);
            if (fields >> place & 1 == 0) continue;

            bool hashed = place == PackedHeader.LOGS_BLOOM || place == PackedHeader.EXTRA_DATA;
            bytes32 value = hashed ? PackedHeader.hash(content, size) : PackedHeader.word(content, size);
            if (_storeHeaderField(blockNumber, place, value)) added |= 1 << place;
        }
        if (added != 0) emit HeaderFieldsProven(blockNumber, added);
    }
}
