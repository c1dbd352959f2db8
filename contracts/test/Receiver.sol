// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IStateProver} from "@batch-query-service/contracts/src/erc7888/IStateProver.sol";
import {IStateProverPointer} from "@batch-query-service/contracts/src/erc7888/IStateProverPointer.sol";

/// @title For tests only: takes messages that were broadcast on other chains (ERC-7888).
contract Receiver {
    struct RemoteReadArgs {
        address[] route;
        bytes[] scpInputs;
        bytes proof;
    }

    bytes32 private constant POINTER_SLOT = bytes32(uint256(keccak256("eip7888.pointer.slot")) - 1);

    /// @notice The copy on this chain of the prover that a pointer on another chain names; zero where there is none.
    mapping(bytes32 pointerId => IStateProver) public stateProverCopy;

    error InvalidRoute();
    error NoCopy(bytes32 pointerId);
    error NotTheMessage();
    error NotBroadcast();
    error NotThePointerSlot();
    error NotACopy(bytes32 codeHash);
    error VersionNotHigher(uint256 version);

    function verifyBroadcastMessage(RemoteReadArgs calldata broadcasterReadArgs, bytes32 message, address publisher)
        external
        view
        returns (bytes32 broadcasterId, uint256 timestamp)
    {
        uint256 slot;
        bytes32 value;
        (broadcasterId, slot, value) = _read(broadcasterReadArgs);
        if (slot != uint256(keccak256(abi.encode(message, publisher)))) revert NotTheMessage();
        if (value == 0) revert NotBroadcast();
        timestamp = uint256(value);
    }

    function updateStateProverCopy(RemoteReadArgs calldata scpPointerReadArgs, IStateProver scpCopy)
        external
        returns (bytes32 scpPointerId)
    {
        uint256 slot;
        bytes32 codeHash;
        (scpPointerId, slot, codeHash) = _read(scpPointerReadArgs);
        if (slot != uint256(POINTER_SLOT)) revert NotThePointerSlot();
        if (codeHash == 0 || address(scpCopy).codehash != codeHash) revert NotACopy(codeHash);
        IStateProver former = stateProverCopy[scpPointerId];
        uint256 version = scpCopy.version();
        if (address(former) != address(0) && version <= former.version()) revert VersionNotHigher(version);
        stateProverCopy[scpPointerId] = scpCopy;
    }

    /// @dev A slot of an account at the end of a route, and the account's id.
    function _read(RemoteReadArgs calldata args) private view returns (bytes32 id, uint256 slot, bytes32 value) {
        if (args.route.length == 0 || args.route.length != args.scpInputs.length) revert InvalidRoute();
        IStateProver prover = IStateProver(IStateProverPointer(args.route[0]).implementationAddress());
        bytes32 commitment = prover.getTargetStateCommitment(args.scpInputs[0]);
        id = _extended(0, args.route[0]);
        for (uint256 place = 1; place < args.route.length; ++place) {
            id = _extended(id, args.route[place]);
            prover = stateProverCopy[id];
            if (address(prover) == address(0)) revert NoCopy(id);
            commitment = prover.verifyTargetStateCommitment(commitment, args.scpInputs[place]);
        }
        address account;
        (account, slot, value) = prover.verifyStorageSlot(commitment, args.proof);
        id = _extended(id, account);
    }

    function _extended(bytes32 id, address account) private pure returns (bytes32) {
        return keccak256(abi.encode(id, account));
    }
}
