// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {ArbitrumBufferBlockHashSource} from "../src/ArbitrumBufferBlockHashSource.sol";
import {AnswersAll} from "./AnswersAll.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title The source returns the buffer's answer.
contract ArbitrumBufferProofs is Symbolic {
    ArbitrumBufferBlockHashSource private source;
    AnswersAll private buffer;

    function setUp() external {
        source = new ArbitrumBufferBlockHashSource(1);
        buffer = AnswersAll(source.BUFFER());
    }

    /// @dev Also while there is no buffer.
    /// @custom:halmos --array-lengths said={0,31,32,33,64}
    function check_a_hash_is_the_one_word_that_the_buffer_answers(uint256 blockNumber, bytes memory said, bool reverts)
        external
    {
        assert(source.blockHash(blockNumber) == 0);
        vm.etch(address(buffer), address(new AnswersAll()).code);
        buffer.set(said, reverts);
        bytes32 expected = said.length == 32 && !reverts ? bytes32(said) : bytes32(0);
        assert(source.blockHash(blockNumber) == expected);
    }
}
