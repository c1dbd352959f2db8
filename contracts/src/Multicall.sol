// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title Several calls in one transaction, all or nothing, for a proof that needs facts of an earlier one.
/// @notice Anyone may use it, for any calls, so it must never hold a right or a token.
contract Multicall {
    struct Call {
        address to;
        bytes data;
    }

    /// @notice There is no contract at this address, so that calling it would do nothing.
    error NoContract(address to);

    /// @notice Makes the calls in order. Reverts with the first error as it is, which undoes those before.
    function run(Call[] calldata calls) external {
        for (uint256 i = 0; i < calls.length; ++i) {
            address to = calls[i].to;
            bytes calldata data = calls[i].data;
            if (to.code.length == 0) revert NoContract(to);
            assembly ("memory-safe") {
                // Nothing is kept from call to call, so all use the same memory.
                let buffer := mload(0x40)
                calldatacopy(buffer, data.offset, data.length)
                if iszero(call(gas(), to, 0, buffer, data.length, 0, 0)) {
                    returndatacopy(buffer, 0, returndatasize())
                    revert(buffer, returndatasize())
                }
            }
        }
    }
}
