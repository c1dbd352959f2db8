// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IFactsRegistry} from "../src/IFactsRegistry.sol";
import {ProvenFacts} from "../src/ProvenFacts.sol";

/// @title A vote by token balances that another chain had at one block.
/// @notice Anybody may have a voter's balance proven first. Who votes before that gets the registry's SlotNotProven.
contract SnapshotVote {
    using ProvenFacts for IFactsRegistry;

    IFactsRegistry public immutable registry;
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
        IFactsRegistry registry_,
        uint256 sourceChainId,
        address token_,
        uint256 balancesSlot_,
        uint256 snapshotBlock_
    ) {
        registry_.requireSourceChain(sourceChainId);
        registry = registry_;
        token = token_;
        balancesSlot = balancesSlot_;
        snapshotBlock = snapshotBlock_;
    }

    function vote(bool support) external {
        if (hasVoted[msg.sender]) revert HasVoted(msg.sender);
        bytes32 slot = ProvenFacts.mappingSlot(balancesSlot, msg.sender);
        uint256 weight = uint256(registry.slotAt(token, snapshotBlock, slot));
        if (weight == 0) revert HoldsNothing(msg.sender);
        hasVoted[msg.sender] = true;
        if (support) votesFor += weight;
        else votesAgainst += weight;
        emit Voted(msg.sender, support, weight);
    }
}
