// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title For tests only: makes several calls in one, and tells how each ended.
contract Multicall {
    // All that a transaction can have (EIP-7825).
    uint256 private constant GAS_PER_CALL = 16777216;

    /// @notice Makes the calls in order, also after a call that fails.
    /// @param calls For each call the address (20 bytes), the size of the calldata (3), and the calldata.
    /// @return answers For each call a byte that is 1 if it succeeded, the size of its data (3), and the data that it
    /// returned or reverted with.
    function run(bytes calldata calls) external returns (bytes memory answers) {
        assembly {
            answers := mload(0x40)
            let end := add(answers, 32)
            let cursor := calls.offset
            for { let last := add(cursor, calls.length) } lt(cursor, last) {} {
                let head := calldataload(cursor)
                let size := and(shr(72, head), 0xffffff)
                calldatacopy(end, add(cursor, 23), size)
                let succeeded := call(GAS_PER_CALL, shr(96, head), 0, end, size, 0, 0)
                mstore(end, or(shl(248, succeeded), shl(224, returndatasize())))
                returndatacopy(add(end, 4), 0, returndatasize())
                end := add(add(end, 4), returndatasize())
                cursor := add(add(cursor, 23), size)
            }
            mstore(answers, sub(end, add(answers, 32)))
            mstore(0x40, and(add(end, 31), not(31)))
        }
    }
}
