// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {OpStackGamesBlockHashSource} from "../src/OpStackGamesBlockHashSource.sol";
import {RecordedBlocks} from "../src/RecordedBlocks.sol";
import {AnswersAll} from "./AnswersAll.sol";
import {Rlp} from "./Rlp.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title What a source takes for a contract's answer.
contract AnyAsked is RecordedBlocks {
    constructor() RecordedBlocks(1) {}

    function answer(address asked, bytes memory data) external view returns (bytes32) {
        return _answer(asked, data);
    }
}

/// @title Blocks are recorded if a valid claim is their output, and stay.
contract OpStackGamesProofs is Symbolic {
    AnswersAll private registry;
    AnswersAll private game;
    AnyAsked private asking;
    OpStackGamesBlockHashSource private source;

    function setUp() external {
        (registry, game, asking) = (new AnswersAll(), new AnswersAll(), new AnyAsked());
        source = new OpStackGamesBlockHashSource(1, address(registry));
    }

    /// @dev From any state; a question stands for all questions.
    function check_a_block_is_recorded_if_and_only_if_a_valid_claim_is_its_output(
        bytes32 isValid,
        bytes32 claim,
        bytes32 passerRoot,
        bytes32[5] memory hashes,
        uint8 number,
        uint256 asked
    ) external {
        vm.assume(number >= 0x80);
        bytes memory first = abi.encodePacked(
            abi.encodePacked(hex"a0", hashes[0], hex"a0", hashes[1], hex"94", bytes20(0)),
            abi.encodePacked(hex"a0", hashes[2], hex"a0", hashes[3], hex"a0", hashes[4]),
            abi.encodePacked(hex"b90100", new bytes(256), hex"80", hex"81", number)
        );
        bytes memory header = Rlp.list(first);
        bytes32 hash = keccak256(header);
        registry.set(abi.encode(isValid), false);
        game.set(abi.encode(claim), false);
        svm.enableSymbolicStorage(address(source));
        bytes32 known = source.blockHash(number);
        bytes32 before = source.blockHash(asked);
        bool expected = isValid == bytes32(uint256(1))
            && claim == keccak256(abi.encode(bytes32(0), hashes[2], passerRoot, hash)) && (known == 0 || known == hash);
        try source.record(address(game), passerRoot, header) {
            assert(expected);
            assert(source.blockHash(asked) == (asked == number ? hash : before));
        } catch {
            assert(!expected);
        }
    }

    /// @dev Of an account without code, too.
    /// @custom:halmos --array-lengths said={0,31,32,33,64}
    function check_an_answer_is_one_word(bytes memory said, bool reverts, bytes32 argument) external {
        bytes memory data = abi.encodeWithSelector(0x01020304, argument);
        game.set(said, reverts);
        bytes32 expected = said.length == 32 && !reverts ? bytes32(said) : bytes32(0);
        assert(asking.answer(address(game), data) == expected);
        assert(asking.answer(address(0x1234), data) == 0);
    }
}
