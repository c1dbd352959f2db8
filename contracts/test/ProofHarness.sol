// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title For tests only: tries many proofs in one call, each as if it were the only one.
contract ProofHarness {
    /// @notice Which of the proofs a registry would take.
    /// @return answers A byte for each proof: 1 if it would.
    function accepted(address registry, bytes[] calldata proofs) external returns (bytes memory answers) {
        answers = new bytes(proofs.length);
        for (uint256 i = 0; i < proofs.length; ++i) {
            bytes calldata proof = proofs[i];
            bool taken;
            assembly ("memory-safe") {
                let buffer := mload(0x40)
                mstore(buffer, shl(96, registry))
                calldatacopy(add(buffer, 20), proof.offset, proof.length)
                pop(call(gas(), address(), 0, buffer, add(proof.length, 20), 0, 32))
                taken := mload(0)
            }
            if (taken) answers[i] = 0x01;
        }
    }

    /// @notice How many of the proofs a registry would take that differ from `proof` in one bit, from `first` to before
    /// `end`; bit 0 is the highest of the first byte.
    function acceptedFlips(address registry, bytes calldata proof, uint256 first, uint256 end)
        external
        returns (uint256 count)
    {
        assembly ("memory-safe") {
            let buffer := mload(0x40)
            mstore(buffer, shl(96, registry))
            calldatacopy(add(buffer, 20), proof.offset, proof.length)
            for { let bit := first } lt(bit, end) { bit := add(bit, 1) } {
                let place := add(add(buffer, 20), shr(3, bit))
                let mask := shl(248, shr(and(bit, 7), 0x80))
                mstore(place, xor(mload(place), mask))
                pop(call(gas(), address(), 0, buffer, add(proof.length, 20), 0, 32))
                count := add(count, mload(0))
                mstore(place, xor(mload(place), mask))
            }
        }
    }

    /// @notice How many of the proofs a registry would take that differ from `proof` in one byte, from `first` to before
    /// `end`, in all 255 ways.
    function acceptedBytes(address registry, bytes calldata proof, uint256 first, uint256 end)
        external
        returns (uint256 count)
    {
        assembly ("memory-safe") {
            let buffer := mload(0x40)
            mstore(buffer, shl(96, registry))
            calldatacopy(add(buffer, 20), proof.offset, proof.length)
            for { let index := first } lt(index, end) { index := add(index, 1) } {
                let place := add(add(buffer, 20), index)
                let value := byte(0, mload(place))
                for { let change := 1 } lt(change, 256) { change := add(change, 1) } {
                    mstore8(place, xor(value, change))
                    pop(call(gas(), address(), 0, buffer, add(proof.length, 20), 0, 32))
                    count := add(count, mload(0))
                }
                mstore8(place, value)
            }
        }
    }

    /// @dev One try: an address and what to call it with. Always reverts, with whether the call succeeded, so that
    /// nothing that it wrote stays.
    fallback() external {
        assembly {
            let registry := shr(96, calldataload(0))
            calldatacopy(0, 20, sub(calldatasize(), 20))
            // All that a transaction can have (EIP-7825).
            mstore(0, call(16777216, registry, 0, 0, sub(calldatasize(), 20), 0, 0))
            revert(0, 32)
        }
    }
}
