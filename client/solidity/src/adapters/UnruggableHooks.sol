// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {CalldataRlp} from "../CalldataRlp.sol";
import {InvalidProof} from "../InvalidProof.sol";
import {TrieWalk} from "../TrieWalk.sol";

/// @title How verifiers of Unruggable's gateways have proofs of a chain's state checked.
interface IVerifierHooks {
    /// @return storageRoot Zero where the account doesn't exist, or has no code.
    function verifyAccountState(bytes32 stateRoot, address target, bytes calldata proof)
        external
        view
        returns (bytes32 storageRoot);

    function verifyStorageValue(bytes32 storageRoot, address target, uint256 slot, bytes calldata proof)
        external
        view
        returns (bytes32);
}

/// @title Checks the proofs of Unruggable's gateways by the strict walk.
/// @notice A proof is `abi.encode(bytes[])` of the nodes that `eth_getProof` gives. Accounts of other chains' forms, with
/// more than four items, are refused. No registry is asked: the caller's root counts.
contract UnruggableHooks is IVerifierHooks {
    function verifyAccountState(bytes32 stateRoot, address target, bytes calldata proof)
        external
        pure
        returns (bytes32)
    {
        (,, bytes32 storageRoot, bytes32 codeHash) = TrieWalk.accountItems(_nodes(proof), stateRoot, target);
        // An absent account has the same code hash as one without code.
        return codeHash == TrieWalk.EMPTY_CODE_HASH ? bytes32(0) : storageRoot;
    }

    /// @param storageRoot What `verifyAccountState` has answered. Nothing is shown under the root of the empty trie, so that
    /// the proof isn't looked at there.
    function verifyStorageValue(bytes32 storageRoot, address, uint256 slot, bytes calldata proof)
        external
        pure
        returns (bytes32)
    {
        if (storageRoot == TrieWalk.EMPTY_TRIE_ROOT) return 0;
        return bytes32(TrieWalk.slotValue(_nodes(proof), storageRoot, bytes32(slot)));
    }

    /// @dev The array in its encoding. `abi.decode` would copy it into memory.
    function _nodes(bytes calldata proof) private pure returns (bytes[] calldata nodes) {
        unchecked {
            uint256 start;
            assembly ("memory-safe") {
                start := proof.offset
            }
            uint256 offset = CalldataRlp.number(start, 32);
            if (proof.length < 64 || offset > proof.length - 32) revert InvalidProof();
            uint256 count = CalldataRlp.number(start + offset, 32);
            if (count > (proof.length - offset - 32) / 32) revert InvalidProof();
            assembly ("memory-safe") {
                nodes.offset := add(add(start, offset), 32)
                nodes.length := count
            }
        }
    }
}
