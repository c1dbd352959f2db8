// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Headers} from "@batch-query-service/contracts/src/Headers.sol";
import {TrieWalk} from "@batch-query-service/contracts/src/TrieWalk.sol";
import {IStateProver} from "@batch-query-service/contracts/src/erc7888/IStateProver.sol";

/// @title For tests only: somebody else's prover, which reads hashes of blocks out of a buffer, and wants a header first.
contract BufferStateProver is IStateProver {
    uint256 public constant version = 2;

    uint256 private immutable _homeChainId;
    address private immutable _buffer;
    uint256 private immutable _mappingSlot;

    error WrongChain();
    error WrongHeader();
    error NoHash();

    constructor(uint256 homeChainId, address buffer, uint256 mappingSlot) {
        (_homeChainId, _buffer, _mappingSlot) = (homeChainId, buffer, mappingSlot);
    }

    function getTargetStateCommitment(bytes calldata input) external view returns (bytes32 blockHash) {
        if (block.chainid != _homeChainId) revert WrongChain();
        (bool isAnswered, bytes memory answer) =
            _buffer.staticcall(abi.encodeWithSignature("parentChainBlockHash(uint256)", abi.decode(input, (uint256))));
        if (!isAnswered) revert NoHash();
        blockHash = bytes32(answer);
    }

    function verifyTargetStateCommitment(bytes32 homeStateCommitment, bytes calldata input)
        external
        view
        returns (bytes32 blockHash)
    {
        if (block.chainid == _homeChainId) revert WrongChain();
        (bytes memory header, uint256 number, bytes memory accountProof, bytes memory storageProof) =
            abi.decode(input, (bytes, uint256, bytes, bytes));
        uint256 slot = uint256(keccak256(abi.encode(number, _mappingSlot)));
        blockHash = this.shownSlot(homeStateCommitment, header, _buffer, slot, accountProof, storageProof);
        if (blockHash == 0) revert NoHash();
    }

    function verifyStorageSlot(bytes32 targetStateCommitment, bytes calldata input)
        external
        view
        returns (address account, uint256 slot, bytes32 value)
    {
        bytes memory header;
        bytes memory accountProof;
        bytes memory storageProof;
        (header, account, slot, accountProof, storageProof) =
            abi.decode(input, (bytes, address, uint256, bytes, bytes));
        value = this.shownSlot(targetStateCommitment, header, account, slot, accountProof, storageProof);
    }

    /// @dev External, because walks are in calldata.
    function shownSlot(
        bytes32 blockHash,
        bytes calldata header,
        address account,
        uint256 slot,
        bytes calldata accountProof,
        bytes calldata storageProof
    ) external pure returns (bytes32) {
        if (keccak256(header) != blockHash) revert WrongHeader();
        (,, bytes32 storageRoot,) = TrieWalk.accountItems(accountProof, Headers.stateRoot(header), account);
        return bytes32(TrieWalk.slotValue(storageProof, storageRoot, bytes32(slot)));
    }
}
