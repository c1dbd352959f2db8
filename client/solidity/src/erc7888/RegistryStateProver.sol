// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {Headers} from "../Headers.sol";
import {IFactsRegistry} from "../IFactsRegistry.sol";
import {ProvenFacts} from "../ProvenFacts.sol";
import {TrieWalk} from "../TrieWalk.sol";
import {IStateProver} from "./IStateProver.sol";

/// @title Proves the state of a facts registry's source chain by the registry (ERC-7888).
/// @notice The home chain is the registry's, and the target is the registry's source chain. What this proves is the word
/// of the registry's `blockHashSource()`, and of nobody else: whoever takes a message trusts that contract. A state root
/// that the registry holds stays there, so a message can be proven at any age.
/// @dev All that differs between provers is in the constructor's arguments, and none of them is about the chain that a copy
/// is deployed on: by the same compiler, copies have the same code hash on every chain.
contract RegistryStateProver is IStateProver {
    using ProvenFacts for IFactsRegistry;

    /// @dev Commitments to the target are state roots; or hashes of blocks, for routes that go on with provers that want a
    /// header.
    enum Kind {
        ROOT,
        HASH
    }

    // Where the registry's storage has `stateRoot`, by numbers of blocks, and the hashes that were proven alone.
    uint256 private constant STATE_ROOTS_SLOT = 0;
    uint256 private constant BLOCK_HASHES_SLOT = 4;

    /// @inheritdoc IStateProver
    uint256 public constant version = 1;

    uint256 public immutable homeChainId;

    /// @notice The chain that the registry's facts are about.
    uint256 public immutable targetChainId;

    /// @notice The facts registry on the home chain.
    address public immutable registry;

    Kind public immutable kind;

    /// @notice A proof of the home chain's state is no use there: `getTargetStateCommitment` asks the registry.
    error OnHomeChain();
    /// @notice Only the home chain has the registry.
    error NotOnHomeChain(uint256 homeChainId);
    /// @notice The registry doesn't know the block of this number, or of this hash.
    error BlockNotKnown(bytes32 numberOrHash);
    /// @notice The header isn't that of the block.
    error HeaderOfAnotherBlock(bytes32 blockHash);

    /// @notice There is no contract at the registry's address.
    error NoCode(address account);

    /// @dev A copy on another chain can't ask the registry: trust its code hash only if a prover on the home chain has it.
    constructor(uint256 homeChainId_, uint256 targetChainId_, address registry_, Kind kind_) {
        if (block.chainid == homeChainId_) {
            if (registry_.code.length == 0) revert NoCode(registry_);
            IFactsRegistry(registry_).requireSourceChain(targetChainId_);
        }
        (homeChainId, targetChainId, registry, kind) = (homeChainId_, targetChainId_, registry_, kind_);
    }

    /// @inheritdoc IStateProver
    /// @param input `abi.encode(uint256 blockNumber)`; where commitments are hashes,
    /// `abi.encode(uint256 blockNumber, bytes32 blockHash)`.
    function getTargetStateCommitment(bytes calldata input) external view returns (bytes32 commitment) {
        if (block.chainid != homeChainId) revert NotOnHomeChain(homeChainId);
        uint256 blockNumber;
        if (kind == Kind.ROOT) {
            blockNumber = abi.decode(input, (uint256));
            commitment = IFactsRegistry(registry).stateRoot(blockNumber);
            if (commitment == 0) revert BlockNotKnown(bytes32(blockNumber));
        } else {
            (blockNumber, commitment) = abi.decode(input, (uint256, bytes32));
            if (!IFactsRegistry(registry).vouches(blockNumber, commitment)) revert BlockNotKnown(commitment);
        }
    }

    /// @inheritdoc IStateProver
    /// @dev Proves the registry's own storage.
    /// @param input `abi.encode(bytes homeHeader, uint256 blockNumber, bytes accountProof, bytes storageProof)`. The header is
    /// empty where the home chain's commitment is a state root. Where commitments are hashes, the second is the block's
    /// hash, which must have been proven alone: what the source vouches for isn't in the registry's storage.
    function verifyTargetStateCommitment(bytes32 homeStateCommitment, bytes calldata input)
        external
        view
        returns (bytes32 commitment)
    {
        if (block.chainid == homeChainId) revert OnHomeChain();
        bytes calldata header = _bytesAt(input, 0);
        bytes32 root = header.length == 0 ? homeStateCommitment : _stateRoot(homeStateCommitment, header);
        bytes32 numberOrHash = bytes32(input[32:64]);
        bytes32 slot = keccak256(abi.encode(numberOrHash, kind == Kind.ROOT ? STATE_ROOTS_SLOT : BLOCK_HASHES_SLOT));
        bytes32 value = _slotValue(root, registry, slot, _bytesAt(input, 2), _bytesAt(input, 3));
        if (value == 0) revert BlockNotKnown(numberOrHash);
        commitment = kind == Kind.ROOT ? value : numberOrHash;
    }

    /// @inheritdoc IStateProver
    /// @dev The value is zero where the slot, or the account, is absent.
    /// @param input `abi.encode(address account, uint256 slot, bytes accountProof, bytes storageProof)`. Where commitments are
    /// hashes, `bytes header` is before these. Proofs are one RLP list of nodes each, as `TrieWalk` takes them.
    function verifyStorageSlot(bytes32 targetStateCommitment, bytes calldata input)
        external
        view
        returns (address account, uint256 slot, bytes32 value)
    {
        bytes32 root = targetStateCommitment;
        uint256 place = 0;
        if (kind == Kind.HASH) {
            root = _stateRoot(root, _bytesAt(input, 0));
            place = 1;
        }
        (account, slot) = abi.decode(input[32 * place:], (address, uint256));
        value = _slotValue(root, account, bytes32(slot), _bytesAt(input, place + 2), _bytesAt(input, place + 3));
    }

    /// @dev The state root of the block with this hash.
    function _stateRoot(bytes32 blockHash, bytes calldata header) private pure returns (bytes32) {
        if (Headers.hash(header) != blockHash) revert HeaderOfAnotherBlock(blockHash);
        return Headers.stateRoot(header);
    }

    function _slotValue(
        bytes32 root,
        address account,
        bytes32 slot,
        bytes calldata accountProof,
        bytes calldata storageProof
    ) private pure returns (bytes32) {
        (,, bytes32 storageRoot,) = TrieWalk.accountItems(accountProof, root, account);
        return bytes32(TrieWalk.slotValue(storageProof, storageRoot, slot));
    }

    /// @dev The `bytes` among the values that `abi.encode` has made, at their place. `abi.decode` would copy them.
    function _bytesAt(bytes calldata input, uint256 place) private pure returns (bytes calldata) {
        uint256 start = uint256(bytes32(input[32 * place:32 * place + 32])) + 32;
        uint256 size = uint256(bytes32(input[start - 32:start]));
        return input[start:start + size];
    }
}
