// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IFactsReader} from "../src/IFactsReader.sol";
import {ProvenFacts} from "../src/ProvenFacts.sol";

/// @title A vote by token balances that another chain had at one block, which each voter shows.
/// @notice The token's STORAGE_ROOT at the block is proven once. Each voter's wallet then makes the proof of the own slot
/// with `eth_getProof`. Nothing of it is stored.
contract SnapshotVoteByProof {
    using ProvenFacts for IFactsReader;

    IFactsReader public immutable reader;
    uint256 public immutable sourceChainId;
    /// @notice The token on the source chain, and the slot at which it declares `mapping(address => uint256) balances`.
    address public immutable token;
    uint256 public immutable balancesSlot;
    uint256 public immutable snapshotBlock;

    uint256 public votesFor;
    uint256 public votesAgainst;
    mapping(address voter => bool) public hasVoted;

    event Voted(address indexed voter, bool support, uint256 weight);

    error HasVoted(address voter);
    error HoldsNothing(address voter);

    constructor(
        IFactsReader reader_,
        uint256 sourceChainId_,
        address token_,
        uint256 balancesSlot_,
        uint256 snapshotBlock_
    ) {
        reader_.requireSourceChain(sourceChainId_);
        reader = reader_;
        sourceChainId = sourceChainId_;
        token = token_;
        balancesSlot = balancesSlot_;
        snapshotBlock = snapshotBlock_;
    }

    /// @param proof The nodes of the voter's slot. The reader looks up the root that they must have.
    function vote(bool support, bytes calldata proof) external {
        if (hasVoted[msg.sender]) revert HasVoted(msg.sender);
        uint256 weight =
            reader.mappingValueByProof(sourceChainId, snapshotBlock, token, balancesSlot, msg.sender, proof);
        if (weight == 0) revert HoldsNothing(msg.sender);
        hasVoted[msg.sender] = true;
        if (support) votesFor += weight;
        else votesAgainst += weight;
        emit Voted(msg.sender, support, weight);
    }
}
