// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @dev Of halmos: makes values that stand for all values.
interface Svm {
    function enableSymbolicStorage(address target) external;
    function createUint(uint256 bits, string memory name) external pure returns (uint256 value);
    function createBytes(uint256 size, string memory name) external pure returns (bytes memory value);
    function createCalldata(string memory contractName) external pure returns (bytes memory data);
}

/// @dev Of Foundry, as halmos has them.
interface Vm {
    /// @dev Leaves only the cases in which the condition holds.
    function assume(bool condition) external pure;
    function store(address target, bytes32 slot, bytes32 value) external;
    function etch(address target, bytes calldata code) external;
}

/// @dev The base of the proofs. halmos answers calls at these two addresses.
abstract contract Symbolic {
    Svm internal constant svm = Svm(0xF3993A62377BCd56AE39D773740A5390411E8BC9);
    Vm internal constant vm = Vm(0x7109709ECfa91a80626fF3989D68f67F5b1DD12D);

    /// @dev Calls what mustn't revert. To halmos a property that reverts isn't false.
    function _returned(address target, bytes memory data) internal view returns (bytes memory answer) {
        bool isAnswered;
        (isAnswered, answer) = target.staticcall(data);
        assert(isAnswered);
    }

    /// @dev As `&&`, without a path of its own for each.
    function _both(bool one, bool other) internal pure returns (bool both) {
        assembly {
            both := and(one, other)
        }
    }

    /// @dev As `||`, likewise.
    function _either(bool one, bool other) internal pure returns (bool either) {
        assembly {
            either := or(one, other)
        }
    }

    /// @dev A path of its own for each value from `first` to `last`. There are no others.
    function _each(uint256 value, uint256 first, uint256 last) internal pure returns (uint256) {
        for (uint256 each = first; each <= last; ++each) {
            if (value == each) return each;
        }
        vm.assume(false);
        return 0;
    }
}
