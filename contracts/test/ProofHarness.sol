// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {MerklePatriciaProof} from "../src/MerklePatriciaProof.sol";
import {RLP} from "../src/RLP.sol";

/// @title For tests only: the libraries' functions, callable from outside.
contract ProofHarness {
    function verify(bytes32 root, bytes32 key, bytes[] calldata nodes)
        external
        pure
        returns (bool valid, bytes memory value)
    {
        return MerklePatriciaProof.verify(root, key, nodes);
    }

    function decode(bytes calldata data) external pure returns (RLP.Kind kind, bytes memory content, uint256 size) {
        return RLP.decode(data);
    }

    function takeInteger(bytes calldata data) external pure returns (bool valid, uint256 value, bytes memory rest) {
        return RLP.takeInteger(data);
    }
}
