// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {FactsReader} from "../src/FactsReader.sol";

/// @title For tests only: pays what a slot of another chain says, once under a root of the caller's, once under a fact.
contract SlotVault {
    FactsReader private immutable _reader;
    uint256 private immutable _chainId;
    address private immutable _account;
    bytes32 private immutable _slot;

    constructor(FactsReader reader, uint256 chainId, address account, bytes32 slot) payable {
        (_reader, _chainId, _account, _slot) = (reader, chainId, account, slot);
    }

    receive() external payable {}

    /// @dev As nobody should: the proof is right, and the root is whatever the caller likes.
    function claimUnderAnyRoot(bytes32 root, bytes calldata proof) external {
        _pay(_reader.verifyOnlyStorage(_slot, root, proof));
    }

    function claim(uint256 blockNumber, bytes calldata proof) external {
        _pay(_reader.slotByProof(_chainId, blockNumber, _account, _slot, proof));
    }

    function _pay(bytes32 amount) private {
        (bool isPaid,) = msg.sender.call{value: uint256(amount)}("");
        require(isPaid);
    }
}
