// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {FixedStateProverPointer} from "@batch-query-service/contracts/src/erc7888/FixedStateProverPointer.sol";
import {IStateProver} from "@batch-query-service/contracts/src/erc7888/IStateProver.sol";
import {RegistryStateProver} from "@batch-query-service/contracts/src/erc7888/RegistryStateProver.sol";
import {AnswersAll} from "./AnswersAll.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title A state prover asks its registry at home, and takes proofs elsewhere; its pointer never changes.
contract StateProverProofs is Symbolic {
    uint256 private constant TARGET = 10;

    AnswersAll private registry;

    function setUp() external {
        registry = new AnswersAll();
    }

    /// @custom:halmos --array-lengths input={0,128,192,256}
    function check_at_home_no_proof_is_taken(bytes32 commitment, bytes memory input, bool byHash) external {
        RegistryStateProver prover = _prover(block.chainid, byHash);
        bytes memory expected = abi.encodeWithSelector(RegistryStateProver.OnHomeChain.selector);
        _assertRefused(prover, abi.encodeCall(IStateProver.verifyTargetStateCommitment, (commitment, input)), expected);
    }

    /// @custom:halmos --array-lengths input={0,32,64,96}
    function check_elsewhere_no_registry_is_asked(bytes memory answer, bytes memory input, bool byHash) external {
        uint256 home = block.chainid + 1;
        RegistryStateProver prover = _prover(home, byHash);
        registry.set(answer, false);
        bytes memory expected = abi.encodeWithSelector(RegistryStateProver.NotOnHomeChain.selector, home);
        _assertRefused(prover, abi.encodeCall(IStateProver.getTargetStateCommitment, (input)), expected);
    }

    /// @dev Of both kinds: a state root as it is answered, and a hash if the answer is true.
    function check_a_commitment_is_what_the_registry_knows(
        bytes32 known,
        bool isVouched,
        uint256 blockNumber,
        bytes32 blockHash
    ) external {
        RegistryStateProver byRoot = _prover(block.chainid, false);
        registry.set(abi.encode(known), false);
        try byRoot.getTargetStateCommitment(abi.encode(blockNumber)) returns (bytes32 told) {
            assert(told == known);
            assert(told != 0);
        } catch {
            assert(known == 0);
        }
        RegistryStateProver byHash = _prover(block.chainid, true);
        registry.set(abi.encode(isVouched), false);
        bytes memory input = abi.encode(blockNumber, blockHash);
        try byHash.getTargetStateCommitment(input) returns (bytes32 told) {
            assert(told == blockHash);
            assert(isVouched);
        } catch {
            assert(!isVouched);
        }
    }

    /// @dev By any call of up to two arguments.
    /// @custom:halmos --array-lengths data={0,4,36,68}
    function check_a_pointer_never_changes(bytes memory data) external {
        RegistryStateProver prover = _prover(block.chainid, false);
        FixedStateProverPointer pointer = new FixedStateProverPointer(prover);
        (bool success,) = address(pointer).call(data);
        success;
        assert(pointer.implementationAddress() == address(prover));
        assert(pointer.implementationCodeHash() == address(prover).codehash);
    }

    function _prover(uint256 home, bool byHash) private returns (RegistryStateProver) {
        RegistryStateProver.Kind kind = byHash ? RegistryStateProver.Kind.HASH : RegistryStateProver.Kind.ROOT;
        registry.set(abi.encode(TARGET), false);
        return new RegistryStateProver(home, TARGET, address(registry), kind);
    }

    function _assertRefused(RegistryStateProver prover, bytes memory data, bytes memory expected) private view {
        (bool isAnswered, bytes memory reason) = address(prover).staticcall(data);
        assert(!isAnswered);
        assert(keccak256(reason) == keccak256(expected));
    }
}
