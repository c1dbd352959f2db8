// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IBlockHashSource} from "../IBlockHashSource.sol";
import {IFactsRegistry} from "../IFactsRegistry.sol";
import {ProvenFacts} from "../ProvenFacts.sol";

/// @title The oracle of block hashes and state roots that Curve's storage proofs ask. It reverts where it knows nothing.
interface IBlockHashOracle {
    function get_block_hash(uint256 _number) external view returns (bytes32);
    function get_state_root(uint256 _number) external view returns (bytes32);
    function find_known_block_number(uint256 _before) external view returns (uint256);
}

/// @title Answers Curve's storage proofs by a facts registry.
/// @notice A state root is known once a header is accumulated, at any age of the block. A block hash is known as long as the
/// registry's source vouches for it. Whoever reads here trusts that source, and nobody else.
contract CurveBlockHashOracle is IBlockHashOracle {
    using ProvenFacts for IFactsRegistry;

    IFactsRegistry public immutable registry;
    IBlockHashSource public immutable blockHashSource;

    /// @notice No header of this block is accumulated, or the source doesn't vouch for its hash.
    error UnknownBlock(uint256 blockNumber);

    /// @notice A registry keeps no list of its blocks: the block must be named.
    error SearchUnsupported();

    /// @param sourceChainId The chain whose blocks are asked for. A registry of another one is refused.
    constructor(IFactsRegistry registry_, uint256 sourceChainId) {
        registry_.requireSourceChain(sourceChainId);
        registry = registry_;
        blockHashSource = IBlockHashSource(registry_.blockHashSource());
    }

    function get_block_hash(uint256 _number) external view returns (bytes32 blockHash) {
        blockHash = blockHashSource.blockHash(_number);
        if (blockHash == 0) revert UnknownBlock(_number);
    }

    function get_state_root(uint256 _number) external view returns (bytes32 stateRoot) {
        stateRoot = registry.stateRoot(_number);
        if (stateRoot == 0) revert UnknownBlock(_number);
    }

    function find_known_block_number(uint256) external pure returns (uint256) {
        revert SearchUnsupported();
    }
}
