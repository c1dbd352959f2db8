// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {TrieWalk} from "@batch-query-service/contracts/src/TrieWalk.sol";

/// @dev A withdrawal from the beacon chain (EIP-4895). All is zero where the block has none at this place.
/// @param exists Whether the block has the withdrawal.
/// @param index Counted over all blocks, from 0.
/// @param validatorIndex The validator's index.
/// @param recipient The account whose balance the withdrawal raised.
/// @param amount In Gwei, which is 10^9 wei. A chain may credit it in another currency, as Gnosis does with GNO.
struct Withdrawal {
    bool exists;
    uint64 index;
    uint64 validatorIndex;
    address recipient;
    uint64 amount;
}

/// @title Reads a withdrawal in calldata, as plain nodes of the trie of a block's withdrawals show it.
/// @notice All of a withdrawal must be the only encoding there is, also where another one shows that this one is absent.
library WithdrawalReader {
    uint256 private constant ADDRESS = 20;

    /// @dev The withdrawal at a place in the block's list. The trie is as that of receipts: its keys are the RLP of the
    /// places, and no node is embedded. A withdrawal of less than 29 bytes may be: those are refused, and so is what lies
    /// under the same branch. Only the first 128 of a chain with few validators may be so short, and small ones of a young chain.
    /// @param proof The RLP list of the nodes, each as a byte string, the root first.
    function read(bytes calldata proof, bytes32 root, uint256 place)
        internal
        pure
        returns (Withdrawal memory withdrawal)
    {
        unchecked {
            (uint256 cursor, uint256 end, bool isOwn) = TrieWalk.findPlace(proof, root, place);
            if (end == 0) return withdrawal;
            uint256 index;
            uint256 validator;
            uint256 amount;
            cursor = CalldataRlp.list(cursor, end);
            (index, cursor) = CalldataRlp.integer(cursor, end, 8);
            (validator, cursor) = CalldataRlp.integer(cursor, end, 8);
            (uint256 recipient, uint256 next, bool isList) = CalldataRlp.item(cursor, end);
            if (isList || next - recipient != ADDRESS) revert InvalidProof();
            (amount, cursor) = CalldataRlp.integer(next, end, 8);
            if (cursor != end) revert InvalidProof();
            // The withdrawal at another place was read as strictly.
            if (!isOwn) return withdrawal;
            withdrawal.exists = true;
            withdrawal.index = uint64(index);
            withdrawal.validatorIndex = uint64(validator);
            withdrawal.recipient = address(uint160(CalldataRlp.number(recipient, ADDRESS)));
            withdrawal.amount = uint64(amount);
        }
    }
}
