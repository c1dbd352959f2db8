// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IFactsRegistry} from "../src/IFactsRegistry.sol";

/// Pays to each account once what a contract of the source chain owed to it at one block.
contract CautiousPayout {
    /// In seconds: longer than the guardian needs to compare the block's state root, and to stop.
    uint256 public constant DELAY = 2 days;
    uint256 public constant WINDOW = 1 days;

    IFactsRegistry public immutable registry;
    uint256 public immutable blockNumber;
    /// On the source chain, with a `mapping(address => uint256)` at `owedSlot`: wei, by the account of this chain.
    address public immutable ledger;
    uint256 public immutable owedSlot;
    /// In wei, for each window. No single account can be paid more.
    uint256 public immutable cap;
    /// May stop all claims for good. The rest is then the guardian's, so it should be who funds this.
    address payable public immutable guardian;

    struct Claim {
        uint256 amount; // in wei; 0 once it is paid
        uint256 readyAt; // 0 until it is queued
    }

    mapping(address account => Claim) public claims;
    mapping(uint256 window => uint256 amount) public paidIn;
    bool public stopped;

    event Queued(address indexed account, uint256 amount, uint256 readyAt);

    error QueuedBefore();
    error NothingOwed();
    error NothingToPay();
    error TooEarly(uint256 readyAt);
    error AboveCap();
    error Stopped();
    error NotStopped();
    error NotTheGuardian();
    error NotSent();

    constructor(
        IFactsRegistry registry_,
        uint256 blockNumber_,
        address ledger_,
        uint256 owedSlot_,
        uint256 cap_,
        address payable guardian_
    ) {
        registry = registry_;
        blockNumber = blockNumber_;
        ledger = ledger_;
        owedSlot = owedSlot_;
        cap = cap_;
        guardian = guardian_;
    }

    receive() external payable {}

    /// Anyone may: whose claim it is, and what of, is not the caller's choice.
    function queue(address account) external {
        if (claims[account].readyAt != 0) revert QueuedBefore();
        bytes32 slot = keccak256(abi.encode(account, owedSlot));
        uint256 amount = uint256(registry.accountStorageSlotValues(ledger, blockNumber, slot));
        // Proven to be zero. What isn't proven has reverted, and can be queued once it is.
        if (amount == 0) revert NothingOwed();
        claims[account] = Claim(amount, block.timestamp + DELAY);
        emit Queued(account, amount, block.timestamp + DELAY);
    }

    function execute(address payable account) external {
        if (stopped) revert Stopped();
        Claim storage claim = claims[account];
        uint256 amount = claim.amount;
        if (amount == 0) revert NothingToPay();
        if (block.timestamp < claim.readyAt) revert TooEarly(claim.readyAt);
        // Windows follow each other, so up to twice the cap passes around the end of one.
        uint256 window = block.timestamp / WINDOW;
        uint256 paid = paidIn[window] + amount;
        if (paid > cap) revert AboveCap();

        // All is written before the account's own code runs.
        claim.amount = 0;
        paidIn[window] = paid;
        _send(account, amount);
    }

    function stop() external {
        if (msg.sender != guardian) revert NotTheGuardian();
        stopped = true;
    }

    /// Apart from `stop`, which nothing may hinder.
    function withdraw() external {
        if (!stopped) revert NotStopped();
        _send(guardian, address(this).balance);
    }

    function _send(address payable to, uint256 amount) private {
        (bool sent,) = to.call{value: amount}("");
        if (!sent) revert NotSent();
    }
}
