// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IFactsReader} from "../src/IFactsReader.sol";
import {IFactsRegistry} from "../src/IFactsRegistry.sol";
import {ProvenFacts} from "../src/ProvenFacts.sol";

/// @title Pays what an event of another chain says, once for each event.
/// @notice Either a batch has proven the log, whose hash the registry holds; or the claimant shows the log, where only the
/// block's RECEIPTS_ROOT is proven.
contract PayoutByEvent {
    using ProvenFacts for IFactsReader;
    using ProvenFacts for IFactsRegistry;

    /// @notice The event of `emitter` on the source chain: `Deposited(address indexed recipient, uint256 amount)`.
    bytes32 public constant DEPOSITED = keccak256("Deposited(address,uint256)");

    IFactsReader public immutable reader;
    IFactsRegistry public immutable registry;
    uint256 public immutable sourceChainId;
    address public immutable emitter;

    /// @notice By the keccak-256 of block, transaction and log: an event has one place, so it is paid once. Its hash
    /// wouldn't do, because two events may say the same.
    mapping(bytes32 place => bool) public isPaid;

    event Paid(address indexed recipient, uint256 amount, uint256 blockNumber, uint256 txIndex, uint256 logIndex);

    error PaidBefore();
    error NotSent();

    constructor(IFactsReader reader_, uint256 sourceChainId_, address emitter_) {
        reader_.requireSourceChain(sourceChainId_);
        reader = reader_;
        registry = IFactsRegistry(reader_.registryOf(sourceChainId_));
        sourceChainId = sourceChainId_;
        emitter = emitter_;
    }

    receive() external payable {}

    /// @notice Anyone may: whom the event pays is not the caller's choice.
    /// @param logIndex Counted within the receipt.
    function claim(uint256 blockNumber, uint32 txIndex, uint32 logIndex, address payable recipient, uint256 amount)
        external
    {
        bytes32[] memory topics = new bytes32[](2);
        topics[0] = DEPOSITED;
        topics[1] = bytes32(uint256(uint160(address(recipient))));
        registry.requireLog(blockNumber, txIndex, logIndex, emitter, topics, abi.encode(amount));
        _pay(blockNumber, txIndex, logIndex, recipient, amount);
    }

    /// @param proof The nodes of the receipt. The reader looks up the root that they must have.
    function claimByProof(uint256 blockNumber, uint256 txIndex, uint256 logIndex, bytes calldata proof) external {
        (bytes32[] memory topics, bytes memory data) = reader.requireLogByProof(
            ProvenFacts.LogPlace(sourceChainId, blockNumber, txIndex, logIndex), emitter, DEPOSITED, proof
        );
        address payable recipient = payable(address(uint160(uint256(topics[1]))));
        _pay(blockNumber, txIndex, logIndex, recipient, abi.decode(data, (uint256)));
    }

    function _pay(uint256 blockNumber, uint256 txIndex, uint256 logIndex, address payable recipient, uint256 amount)
        private
    {
        bytes32 place = keccak256(abi.encode(blockNumber, txIndex, logIndex));
        if (isPaid[place]) revert PaidBefore();
        // All is written before the recipient's own code runs.
        isPaid[place] = true;
        emit Paid(recipient, amount, blockNumber, txIndex, logIndex);
        (bool sent,) = recipient.call{value: amount}("");
        if (!sent) revert NotSent();
    }
}
