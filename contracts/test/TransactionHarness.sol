// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Calldata} from "../src/Calldata.sol";
import {StateProof} from "../src/StateProof.sol";
import {TransactionProof} from "../src/TransactionProof.sol";

/// @title For tests only: runs operations on a trie of receipts or transactions, whatever its root is.
contract TransactionHarness is TransactionProof {
    constructor() StateProof(0) {}

    /// @notice Takes a word each: the block number, and the byte that names the trie. Then the operations.
    /// @dev Answers the root.
    fallback() external {
        uint256 blockNumber;
        uint256 trie;
        assembly ("memory-safe") {
            blockNumber := calldataload(0)
            trie := calldataload(32)
        }
        bytes32 root = _proveTransactions(blockNumber, 64, trie);
        assembly ("memory-safe") {
            mstore(0, root)
            return(0, 32)
        }
    }
}
