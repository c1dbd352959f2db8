// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Calldata, CalldataReader} from "./Calldata.sol";
import {InvalidProof} from "./InvalidProof.sol";

/// @title Hashes of a chain's old blocks, proven by what its beacon chain keeps of itself for ever.
/// @notice Each function takes a branch, as docs/developing/proof-format.md specifies it, and answers the hash of an
/// execution block, which is never zero, or reverts. Nothing is stored, and there is no owner: forks and constants are
/// fixed when this is deployed.
/// @dev Leaves and nodes of a tree are alike, and some leaves are anybody's to choose. So the caller chooses no index:
/// they follow from slots, which are proven themselves, and from the table of forks. (Specifications: SSZ, "Merkleization";
/// `BeaconState`, `BeaconBlockBody` and `ExecutionPayload` from Bellatrix to Fulu.)
contract BeaconHistory {
    using CalldataReader for Calldata;

    // Places of fields: in a block's body, in an execution payload, and in a state.
    uint256 private constant EXECUTION_PAYLOAD = 9;
    uint256 private constant BLOCK_HASH = 12;
    uint256 private constant HISTORICAL_ROOTS = 7;
    uint256 private constant HISTORICAL_SUMMARIES = 27;

    // Depths of trees: of a body, of lists in a state, of the list of epochs before the Merge, of an epoch's records.
    uint256 private constant BODY_DEPTH = 4;
    uint256 private constant HISTORY_DEPTH = 24;
    uint256 private constant EPOCHS_DEPTH = 17;
    uint256 private constant RECORDS_DEPTH = 13;

    /// @notice When the chain's forks were, what its constants are, and how long its periods are.
    struct Chain {
        // By its EIP-155 chain id.
        uint256 id;
        // A state keeps the roots of the last `1 << periodDepth` slots: 13 on mainnet, 6 in the minimal preset.
        uint256 periodDepth;
        // The first slots of forks. Fulu has Electra's indices.
        uint256 bellatrix;
        uint256 capella;
        uint256 deneb;
        uint256 electra;
        // The first slot of a fork that this doesn't know. Nothing is proven by blocks from there on.
        uint256 end;
        // The root of the state's list `historical_roots`, which doesn't change any more; zero where it isn't known.
        bytes32 historicalRoots;
        // How many blocks there were before the Merge, and the root of the accumulator of their hashes.
        uint256 blocksBeforeMerge;
        bytes32 accumulator;
    }

    /// @notice The chain whose blocks are proven here, by its EIP-155 chain id.
    uint256 public immutable sourceChainId;

    uint256 public immutable periodDepth;

    /// @notice The first slots of forks, and the first one that this knows nothing of.
    uint256 public immutable bellatrix;
    uint256 public immutable capella;
    uint256 public immutable deneb;
    uint256 public immutable electra;
    uint256 public immutable end;

    /// @notice The root of the list of periods before Capella. `provesHistoricalRoots` tells whether it is right.
    bytes32 public immutable historicalRoots;

    /// @notice How many blocks there were before the Merge, and the root of the accumulator of their hashes.
    uint256 public immutable blocksBeforeMerge;
    bytes32 public immutable accumulator;

    /// @notice The layout of blocks at this slot is not known here.
    error UnknownFork(uint256 slot);

    /// @notice Forks don't follow each other in this order, or periods have no length.
    error InvalidChain();

    constructor(Chain memory chain) {
        if (
            chain.bellatrix > chain.capella || chain.capella > chain.deneb || chain.deneb > chain.electra
                || chain.electra > chain.end || chain.end > type(uint64).max || chain.periodDepth == 0
                || chain.periodDepth > HISTORY_DEPTH || chain.capella >> chain.periodDepth > 1 << HISTORY_DEPTH
                || chain.blocksBeforeMerge > 1 << (EPOCHS_DEPTH + RECORDS_DEPTH)
        ) revert InvalidChain();
        sourceChainId = chain.id;
        periodDepth = chain.periodDepth;
        bellatrix = chain.bellatrix;
        capella = chain.capella;
        deneb = chain.deneb;
        electra = chain.electra;
        end = chain.end;
        historicalRoots = chain.historicalRoots;
        blocksBeforeMerge = chain.blocksBeforeMerge;
        accumulator = chain.accumulator;
    }

    /// @notice The hash of the execution block in the beacon block of this root.
    function ownBlockHash(bytes32 beaconRoot, bytes calldata branch) external view returns (bytes32 blockHash) {
        Calldata memory input = _begin(branch);
        bytes32 root;
        (blockHash, root,) = _takeBlock(input);
        _finish(input, branch, root, beaconRoot);
    }

    /// @notice The hash of an older execution block, of a period from Capella on: below the beacon block of this root.
    function oldBlockHash(bytes32 beaconRoot, bytes calldata branch) external view returns (bytes32 blockHash) {
        Calldata memory input = _begin(branch);
        bytes32 node;
        uint256 slot;
        (blockHash, node, slot) = _takeBlock(input);
        node = _takePeriod(input, node, slot);
        uint256 period = slot >> periodDepth;
        uint256 first = _periodsBefore();
        if (period < first) revert InvalidProof();
        node = _takeList(input, node, period - first, input.take(3), HISTORY_DEPTH);
        _finish(input, branch, _takeAnchor(input, node, HISTORICAL_SUMMARIES), beaconRoot);
    }

    /// @notice The hash of an execution block of a period before Capella.
    function blockHashBeforeCapella(bytes calldata branch) external view returns (bytes32 blockHash) {
        Calldata memory input = _begin(branch);
        bytes32 node;
        uint256 slot;
        (blockHash, node, slot) = _takeBlock(input);
        node = _takePeriod(input, node, slot);
        node = _takeList(input, node, slot >> periodDepth, _periodsBefore(), HISTORY_DEPTH);
        _finish(input, branch, node, historicalRoots);
    }

    /// @notice The hash of a block before the Merge.
    function blockHashBeforeMerge(bytes calldata branch) external view returns (bytes32 blockHash) {
        Calldata memory input = _begin(branch);
        uint256 blockNumber = input.take(4);
        uint256 count = blocksBeforeMerge;
        if (blockNumber >= count) revert InvalidProof();
        blockHash = input.takeHash();
        if (blockHash == 0) revert InvalidProof();
        // A record is the block's hash and the total difficulty.
        bytes32 node = _hash(blockHash, input.takeHash());
        // All epochs but the last are full.
        uint256 epoch = blockNumber >> RECORDS_DEPTH;
        uint256 size = count - (epoch << RECORDS_DEPTH);
        if (size > 1 << RECORDS_DEPTH) size = 1 << RECORDS_DEPTH;
        node = _takeList(input, node, blockNumber - (epoch << RECORDS_DEPTH), size, RECORDS_DEPTH);
        node = _takeList(input, node, epoch, ((count - 1) >> RECORDS_DEPTH) + 1, EPOCHS_DEPTH);
        _finish(input, branch, node, accumulator);
    }

    /// @notice Reverts unless `historicalRoots` is what the state of the beacon block of this root says. So anybody can
    /// check that constant, by any block since Capella.
    function provesHistoricalRoots(bytes32 beaconRoot, bytes calldata branch) external view returns (bool) {
        Calldata memory input = _begin(branch);
        _finish(input, branch, _takeAnchor(input, historicalRoots, HISTORICAL_ROOTS), beaconRoot);
        return true;
    }

    // --- Parts of branches ------------------------------------------------------------------------------------------

    function _begin(bytes calldata branch) private pure returns (Calldata memory input) {
        uint256 place;
        assembly ("memory-safe") {
            place := branch.offset
        }
        input.cursor = place;
    }

    /// @dev The branch ends where it says, and in the root that is trusted.
    function _finish(Calldata memory input, bytes calldata branch, bytes32 root, bytes32 trusted) private pure {
        uint256 place;
        assembly ("memory-safe") {
            place := add(branch.offset, branch.length)
        }
        if (input.cursor != place || root != trusted) revert InvalidProof();
    }

    /// @dev A beacon block, from the hash of its execution block up to its root.
    function _takeBlock(Calldata memory input) private view returns (bytes32 blockHash, bytes32 root, uint256 slot) {
        (slot, root) = _takeSlot(input);
        if (slot < bellatrix) revert InvalidProof();
        root = _hash(root, input.takeHash());
        blockHash = input.takeHash();
        // A block before the Merge has an empty payload.
        if (blockHash == 0) revert InvalidProof();
        bytes32 body = _climb(input, blockHash, BLOCK_HASH, slot < deneb ? 4 : 5);
        body = _climb(input, body, EXECUTION_PAYLOAD, BODY_DEPTH);
        // The body's root is the last of five fields.
        root = _hash(root, _hash(_hash(body, 0), _hash(0, 0)));
    }

    /// @dev From a block's root to the root of its period, whose first half is the roots of blocks, by slot.
    function _takePeriod(Calldata memory input, bytes32 node, uint256 slot) private view returns (bytes32) {
        node = _climb(input, node, slot & ((1 << periodDepth) - 1), periodDepth);
        return _hash(node, input.takeHash());
    }

    /// @dev From a field of a beacon block's state, up to the root of that block.
    function _takeAnchor(Calldata memory input, bytes32 node, uint256 field) private view returns (bytes32) {
        (uint256 slot, bytes32 first) = _takeSlot(input);
        if (slot < capella) revert InvalidProof();
        bytes32 parent = input.takeHash();
        bytes32 state = _climb(input, node, field, slot < electra ? 5 : 6);
        return _hash(_hash(first, _hash(parent, state)), input.takeHash());
    }

    /// @dev A beacon block's slot; and the node above slot and proposer, which are little-endian in leaves of their own.
    function _takeSlot(Calldata memory input) private view returns (uint256 slot, bytes32 node) {
        slot = input.take(8);
        if (slot >= end) revert UnknownFork(slot);
        node = _hash(_leaf(slot), _leaf(input.take(8)));
    }

    /// @dev From an element of a list of `count`, at most `1 << depth`, up to the list's root. Where a sibling is beyond
    /// the last element it isn't sent.
    function _takeList(Calldata memory input, bytes32 node, uint256 index, uint256 count, uint256 depth)
        private
        view
        returns (bytes32)
    {
        if (index >= count) revert InvalidProof();
        // The root of a tree of zeros of this height.
        bytes32 zeros;
        for (uint256 height = 0; height != depth; ++height) {
            uint256 place = index >> height;
            if ((place ^ 1) << height >= count) node = _hash(node, zeros);
            else if (place & 1 == 0) node = _hash(node, input.takeHash());
            else node = _hash(input.takeHash(), node);
            zeros = _hash(zeros, zeros);
        }
        return _hash(node, _leaf(count));
    }

    /// @dev From a leaf, or a node, up to the root of its tree of that depth.
    function _climb(Calldata memory input, bytes32 node, uint256 index, uint256 depth) private view returns (bytes32) {
        uint256 place = input.skip(32 * depth);
        for (uint256 height = 0; height != depth; ++height) {
            bytes32 sibling = bytes32(CalldataReader.read(place + 32 * height, 32));
            node = index >> height & 1 == 0 ? _hash(node, sibling) : _hash(sibling, node);
        }
        return node;
    }

    /// @dev How many periods were over when Capella began: those are in the older list.
    function _periodsBefore() private view returns (uint256) {
        return capella >> periodDepth;
    }

    // --- Hashing ----------------------------------------------------------------------------------------------------

    /// @dev An integer of at most 64 bits as a leaf: little-endian, zeros after it.
    function _leaf(uint256 value) private pure returns (bytes32) {
        value = (value & 0x00ff00ff00ff00ff) << 8 | (value & 0xff00ff00ff00ff00) >> 8;
        value = (value & 0x0000ffff0000ffff) << 16 | (value & 0xffff0000ffff0000) >> 16;
        return bytes32((value & 0xffffffff) << 224 | (value >> 32) << 192);
    }

    /// @dev sha256 of two words.
    function _hash(bytes32 left, bytes32 right) private view returns (bytes32 digest) {
        bool answered;
        assembly ("memory-safe") {
            mstore(0, left)
            mstore(32, right)
            // The precompiled contract. (Arguments are evaluated from the right: the call comes first.)
            answered := and(eq(returndatasize(), 32), staticcall(gas(), 2, 0, 64, 0, 32))
            digest := mload(0)
        }
        // Out of gas, or a chain without it.
        if (!answered) revert InvalidProof();
    }
}
