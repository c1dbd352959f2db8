// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title For tests only: stands in for the L1Block predeploy of an OP Stack chain.
/// @dev State variables lie where the predeploy has them, because a proof of its storage depends on that, and all its
/// getters of L1 attributes are there.
contract L1BlockStandIn {
    /// @notice Whose transaction begins each block of the chain.
    address public constant DEPOSITOR_ACCOUNT = 0xDeaDDEaDDeAdDeAdDEAdDEaddeAddEAdDEAd0001;

    uint64 public number;
    uint64 public timestamp;
    uint256 public basefee;
    bytes32 public hash;
    uint64 public sequenceNumber;
    uint32 public blobBaseFeeScalar;
    uint32 public baseFeeScalar;
    bytes32 public batcherHash;
    uint256 public l1FeeOverhead;
    uint256 public l1FeeScalar;
    uint256 public blobBaseFee;

    error NotDepositor();

    /// @dev The setter of Bedrock, which still exists. Its successors take the same packed, and scalars of fees.
    function setL1BlockValues(
        uint64 number_,
        uint64 timestamp_,
        uint256 basefee_,
        bytes32 hash_,
        uint64 sequenceNumber_,
        bytes32 batcherHash_,
        uint256 l1FeeOverhead_,
        uint256 l1FeeScalar_
    ) external {
        if (msg.sender != DEPOSITOR_ACCOUNT) revert NotDepositor();
        (number, timestamp, basefee, hash) = (number_, timestamp_, basefee_, hash_);
        (sequenceNumber, batcherHash) = (sequenceNumber_, batcherHash_);
        (l1FeeOverhead, l1FeeScalar) = (l1FeeOverhead_, l1FeeScalar_);
    }
}
