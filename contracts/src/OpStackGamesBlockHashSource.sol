// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {RecordedBlocks} from "./RecordedBlocks.sol";

/// @title The chain below an OP Stack chain vouches for the blocks that dispute games have settled there.
/// @notice A dispute game claims an output root of the OP Stack chain. The chain's AnchorStateRegistry calls the claim
/// valid once the game is over, in favour of the claim, and for long enough. The output root binds the hash of a block.
/// Trusted are the chain's proofs, its guardian, who may set games aside in time, and the parties that can upgrade its
/// contracts.
/// @dev What is recorded stays, also where the AnchorStateRegistry calls the game invalid later. Claims of super roots,
/// which bind outputs of several chains, aren't read.
contract OpStackGamesBlockHashSource is RecordedBlocks {
    // Functions of the AnchorStateRegistry and of a game.
    bytes4 private constant IS_GAME_CLAIM_VALID = bytes4(keccak256("isGameClaimValid(address)"));
    bytes4 private constant ROOT_CLAIM = bytes4(keccak256("rootClaim()"));
    // Version of output roots; there is no other. Source: OP Stack specification, "Proposals".
    bytes32 private constant OUTPUT_VERSION = 0;

    /// @notice The OP Stack chain's AnchorStateRegistry, on the chain below.
    address public immutable anchorStateRegistry;

    /// @notice The AnchorStateRegistry doesn't call this game's claim valid, or not at present.
    error ClaimNotValid(address game);

    /// @notice The game claims something else than the output of this block.
    error NotClaimed(address game, uint256 blockNumber);

    constructor(uint256 sourceChainId_, address anchorStateRegistry_) RecordedBlocks(sourceChainId_) {
        anchorStateRegistry = anchorStateRegistry_;
    }

    /// @notice Stores the hash of a block whose output a game has claimed. Storing it again changes nothing.
    /// @param game Its address. The AnchorStateRegistry knows the games of its own factory alone.
    /// @param messagePasserStorageRoot Root of L2ToL1MessagePasser's storage at the block, which the output root binds
    /// besides the header's state root and hash.
    /// @param header RLP of the block's header.
    /// @return blockNumber Its number, read from the header and not from the game.
    /// @dev Reverts with InvalidHeader, ClaimNotValid, NotClaimed or Conflict.
    function record(address game, bytes32 messagePasserStorageRoot, bytes calldata header)
        external
        returns (uint256 blockNumber)
    {
        bytes32 stateRoot;
        (stateRoot, blockNumber,,) = _open(header);
        bytes32 valid = _answer(anchorStateRegistry, abi.encodeWithSelector(IS_GAME_CLAIM_VALID, game));
        if (valid != bytes32(uint256(1))) revert ClaimNotValid(game);

        bytes32 hash = keccak256(header);
        bytes32 outputRoot = keccak256(abi.encode(OUTPUT_VERSION, stateRoot, messagePasserStorageRoot, hash));
        bytes32 claim = _answer(game, abi.encodeWithSelector(ROOT_CLAIM));
        if (claim != outputRoot) revert NotClaimed(game, blockNumber);
        _store(blockNumber, hash);
    }
}
