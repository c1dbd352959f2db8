// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {ArbitrumBlocks} from "../src/ArbitrumBlocks.sol";
import {Rlp} from "./Rlp.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Properties of the source that hold for any content of the Outbox.
contract AnyOutbox is ArbitrumBlocks {
    constructor() ArbitrumBlocks(1, address(2)) {}

    function record(uint256 blockNumber, bytes32 hash, bytes32 confirmed) external {
        _record(blockNumber, hash, confirmed);
    }

    function read(bytes calldata header) external pure returns (uint256, bytes32) {
        return _read(header);
    }
}

/// @title Blocks of an Arbitrum chain are recorded if they are the confirmed ones, and stay.
contract ArbitrumBlocksProofs is Symbolic {
    AnyOutbox private source;

    function setUp() external {
        source = new AnyOutbox();
    }

    /// @dev From any state; a question stands for all questions.
    function check_a_hash_is_stored_if_and_only_if_it_is_the_confirmed_one(
        uint256 blockNumber,
        bytes32 hash,
        bytes32 confirmed,
        uint256 asked
    ) external {
        svm.enableSymbolicStorage(address(source));
        bytes32 known = source.blockHash(blockNumber);
        bytes32 before = source.blockHash(asked);
        bool expected = hash == confirmed && (known == 0 || known == hash);
        try source.record(blockNumber, hash, confirmed) {
            assert(expected);
            assert(source.blockHash(asked) == (asked == blockNumber ? hash : before));
        } catch {
            assert(!expected);
        }
    }

    /// @dev Of any contents: extra data of these sizes, and as many bytes after the header.
    /// @custom:halmos --array-lengths extraData={0,2,31,32,33,56},behind={0,1}
    function check_the_send_root_is_the_whole_extra_data(
        bytes32[5] memory hashes,
        bytes20 coinbase,
        uint8 number,
        bytes memory extraData,
        bytes memory behind
    ) external view {
        vm.assume(number >= 0x80);
        bytes memory first = abi.encodePacked(
            abi.encodePacked(hex"a0", hashes[0], hex"a0", hashes[1], hex"94", coinbase),
            abi.encodePacked(hex"a0", hashes[2], hex"a0", hashes[3], hex"a0", hashes[4]),
            abi.encodePacked(hex"b90100", new bytes(256), hex"80", hex"81", number)
        );
        // Gas limit, gas used, timestamp; behind the extra data the mix hash.
        bytes memory rest = abi.encodePacked(hex"820102", hex"80", hex"8301", hex"0203", Rlp.string_(extraData));
        bytes memory header = abi.encodePacked(Rlp.list(abi.encodePacked(first, rest, hex"a0", hashes[0])), behind);
        try source.read(header) returns (uint256 blockNumber, bytes32 sendRoot) {
            assert(extraData.length == 32 && behind.length == 0);
            assert(blockNumber == number && sendRoot == bytes32(extraData));
        } catch {
            assert(extraData.length != 32 || behind.length != 0);
        }
    }
}
