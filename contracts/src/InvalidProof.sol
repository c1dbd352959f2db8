// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @notice The packed calldata isn't the only valid encoding of a proof of these facts under the block's state root.
error InvalidProof();
