// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Calldata, CalldataReader} from "./Calldata.sol";
import {IBlockHashSource} from "./IBlockHashSource.sol";
import {InvalidProof} from "./InvalidProof.sol";
import {InvalidHeader, PackedHeader} from "./PackedHeader.sol";
import {StateProof} from "./StateProof.sol";

/// @title Proven facts about the blocks of one source chain, readable on the destination chain this is deployed on.
/// @notice Anyone may submit a proof; nobody can write a fact without one. There is no owner, upgrade or pause: all
/// trust is in the block hash source, which can't be exchanged, and in the source chain's own history (EIP-2935).
/// @dev The source chain must have the contract of EIP-2935 at that address, written by its protocol only, or nothing.
/// Proofs come as packed calldata, which docs/developing/proof-format.md specifies, to `fallback`: calldata is what proving costs.
contract FactsRegistry is StateProof {
    using CalldataReader for Calldata;

    // Operations on headers, by their first byte.
    uint256 private constant HEADER_FACTS = 0x31;
    uint256 private constant HEADER_ALONE = 0x37;
    uint256 private constant PARENT = 0x38;
    uint256 private constant PARENT_HASH_ALONE = 0x39;

    /// @notice The chain whose accounts are proven here, by its EIP-155 chain id.
    uint256 public immutable sourceChainId;

    /// @notice Who vouches for the block hashes of the source chain.
    IBlockHashSource public immutable blockHashSource;

    /// @notice Neither does the block hash source vouch for this block, nor is the header's hash proven; or no header was
    /// sent, and none is accumulated.
    error UnknownBlock(uint256 blockNumber);

    /// @notice The header isn't that of the block: its hash, its number or its state root is another one.
    error HeaderMismatch(uint256 blockNumber);

    /// @notice These two aren't the headers of the blocks before and after that time.
    error TimestampMismatch(uint256 timestamp);

    /// @notice The block hash source vouches for blocks of another chain.
    error SourceOfAnotherChain(uint256 itsSourceChainId);

    /// @dev Reverts with SourceOfAnotherChain.
    /// @param historyWindow_ How many slots the source chain's history contract (EIP-2935) writes to.
    constructor(uint256 sourceChainId_, IBlockHashSource blockHashSource_, uint256 historyWindow_)
        StateProof(historyWindow_)
    {
        uint256 itsSourceChainId = blockHashSource_.sourceChainId();
        if (itsSourceChainId != sourceChainId_) revert SourceOfAnotherChain(itsSourceChainId);
        sourceChainId = sourceChainId_;
        blockHashSource = blockHashSource_;
    }

    /// @notice Stores what the packed calldata proves of one block, all or nothing. Facts that are stored already stay
    /// as they are, at no error; their proofs must be valid all the same.
    /// @dev No selector of a function here begins as packed calldata does, by 0x01 to 0x08 or 0xf9.
    fallback() external {
        Calldata memory input;
        uint256 blockNumber;
        bytes32 root;
        if (input.peek() < 0x80) {
            blockNumber = _takeBlockNumber(input);
            root = stateRoot[blockNumber];
            if (root == 0) revert UnknownBlock(blockNumber);
        } else {
            bytes32 parentHash;
            uint256 start = input.cursor;
            bytes32 headerHash;
            (blockNumber, parentHash, root, headerHash) = _takeHeader(input);
            _checkHash(blockNumber, headerHash);
            while (input.peek() == PARENT) {
                input.skip(1);
                (uint256 child, bytes32 expected) = (blockNumber, parentHash);
                start = input.cursor;
                (blockNumber, parentHash, root, headerHash) = _takeHeader(input);
                if (headerHash != expected || blockNumber + 1 != child) revert HeaderMismatch(blockNumber);
            }
            if (input.peek() == PARENT_HASH_ALONE) {
                input.skip(1);
                // The first block of a chain has no parent there, whatever its header says.
                if (!input.atEnd() || parentHash == 0 || blockNumber == 0) revert InvalidProof();
                _storeBlockHash(parentHash);
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

    /// @notice Whether the header of this number and hash would be accepted now: the block hash source vouches for it, or
    /// the hash is proven to be that of a block.
    /// @dev A proven hash is accepted whatever the number: it is the header's own number that counts, which its hash binds.
    function vouches(uint256 blockNumber, bytes32 blockHash) external view returns (bool) {
        return blockHash != 0 && (_vouchedHash(blockNumber) == blockHash || _isBlockHash(blockHash));
    }

    // --- Blocks -----------------------------------------------------------------------------------------------------

    /// @dev The number that packed calldata begins with, instead of a header: its size, then its bytes.
    function _takeBlockNumber(Calldata memory input) private pure returns (uint256 blockNumber) {
        uint256 size = input.take(1);
        if (size == 0 || size > 8) revert InvalidProof();
        blockNumber = input.take(size);
        // Zero takes one byte.
        if (size > 1 && blockNumber >> (8 * size - 8) == 0) revert InvalidProof();
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
