// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";

/// @title Zones of memory in which a proof is checked. Code that isn't named here writes to no memory.
///
///     0x00 to NODE            the compiler: scratch space, free memory pointer, structs, data of events
///     NODE to NODE_END        `NodeWriter`, `BranchWriter`: one node's RLP. The longest, a branch of 16 hashes, has 532 bytes
///     STACK to STACK_END      `SubtreeStack`: subtrees of the state trie, then those of the storage that is open.
///                             Behind its top, `LeafWriter`: one receipt or transaction
///
/// Before a proof begins, `PackedHeader` hashes bytes of headers from NODE on, and `FactsRegistry` writes its call of
/// the beacon history. Both clear these bytes.
library MemoryZones {
    uint256 internal constant NODE = 0x400;
    uint256 internal constant NODE_END = 0x640;

    uint256 internal constant STACK = 0x640;
    // 2048 subtrees of 192 bytes. Proofs need fewer: at most 15 finished siblings for each of 62 nibbles, in each of the
    // two tries that can be open.
    uint256 internal constant STACK_END = STACK + 2048 * 0xc0;

    // Free memory that the compiler may still take, for the data of events. It doesn't keep it.
    uint256 private constant EVENTS = 0x80;

    /// @dev Zones don't overlap, and the compiler's ends before them. Nothing may be allocated after this.
    function check() internal pure {
        uint256 free;
        assembly ("memory-safe") {
            free := mload(0x40)
        }
        // All but the last comparison is of constants, and costs nothing.
        if (NODE >= NODE_END || NODE_END > STACK || STACK >= STACK_END || free > NODE - EVENTS) revert InvalidProof();
    }
}
