// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {InvalidHeader, PackedHeader} from "./PackedHeader.sol";
import {RecordedBlocks} from "./RecordedBlocks.sol";

/// @title Blocks of an Arbitrum chain that its own rollup has confirmed, once each is recorded by its header.
/// @notice The chain's Outbox on the parent chain maps send roots to block hashes. The rollup writes there when it
/// confirms an assertion, which nobody has disputed in time or which won the dispute. An Arbitrum header holds its send
/// root as extra data, so the header alone says where its hash must be. Trusted are the rollup's fault proofs and the
/// parties that can upgrade its contracts.
/// @dev The Outbox holds one hash for a send root. A later block without new messages has the same send root and takes
/// the place: what isn't recorded by then can't be recorded any more.
abstract contract ArbitrumBlocks is RecordedBlocks {
    /// @notice The chain's Outbox, on its parent chain.
    address public immutable outbox;

    /// @notice The Outbox holds another hash, or none, for the header's send root.
    error NotConfirmed(uint256 blockNumber);

    constructor(uint256 sourceChainId_, address outbox_) RecordedBlocks(sourceChainId_) {
        outbox = outbox_;
    }

    /// @dev The header's number, and its send root.
    function _read(bytes calldata header) internal pure returns (uint256 blockNumber, bytes32 sendRoot) {
        uint256 cursor;
        uint256 end;
        (, blockNumber, cursor, end) = _open(header);
        // Past gas limit, gas used and timestamp.
        uint256 size;
        (cursor, size,) = PackedHeader.take(PackedHeader.skip(cursor, end, 3), end);
        if (size != 32) revert InvalidHeader();
        sendRoot = PackedHeader.word(cursor, size);
    }

    /// @dev Stores the header's hash if it is the confirmed one. Once more changes nothing, at no error.
    function _record(uint256 blockNumber, bytes32 hash, bytes32 confirmed) internal {
        if (hash != confirmed) revert NotConfirmed(blockNumber);
        _store(blockNumber, hash);
    }
}
