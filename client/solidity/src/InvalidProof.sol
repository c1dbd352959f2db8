// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @notice A proof isn't exactly what shows a fact under its root: something is missing, is there for nothing, or has
/// another encoding than the only valid one.
error InvalidProof();
