// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @notice The bytes aren't the only valid encoding of a proof under this root.
error InvalidProof();
