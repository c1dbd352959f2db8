// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {FactsReader} from "../src/FactsReader.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Has the id of a source chain, as a registry has, and nothing else of one.
contract ChainId {
    uint256 public sourceChainId;

    function set(uint256 chainId) external {
        sourceChainId = chainId;
    }
}

/// @title The reader's registry of a chain is the one that it was deployed with for that chain.
contract FactsReaderProofs is Symbolic {
    uint256 private constant MOST = 16;

    ChainId[MOST] private registries;

    function setUp() external {
        for (uint256 place = 0; place < MOST; ++place) {
            registries[place] = new ChainId();
        }
    }

    /// @dev There are sixteen registries of chains with any ids. There is a reader if and only if the ids rise, from 1 on, and
    /// have 96 bits at most: so none has two registries. Fewer are left to tests: in a constructor halmos takes the code for
    /// calldata, so that copying from behind empty calldata clears no memory.
    function check_the_registry_of_a_chain_is_the_one_given(uint256[MOST] memory chainIds, uint256 asked) external {
        address[] memory given = new address[](MOST);
        uint256 expected = 0;
        bool areRight = true;
        uint256 former = 0;
        for (uint256 place = 0; place < MOST; ++place) {
            uint256 chainId = chainIds[place];
            registries[place].set(chainId);
            given[place] = address(registries[place]);
            areRight = _both(areRight, _both(chainId > former, chainId <= type(uint96).max));
            former = chainId;
            expected |= _ifSame(chainId, asked, uint160(given[place]));
        }
        try new FactsReader(given) returns (FactsReader reader) {
            assert(areRight);
            assert(uint160(reader.registryOf(asked)) == expected);
        } catch {
            assert(!areRight);
        }
    }

    /// @dev Nor is there a reader of no registries, of more than sixteen, or of sixteen of which one has no code.
    function check_other_registries_are_refused(uint256 count, uint256 hole) external {
        count = _each(count, 0, MOST + 1);
        hole = count == MOST ? _each(hole, 0, MOST) : MOST;
        address[] memory given = new address[](count);
        for (uint256 place = 0; place < count; ++place) {
            if (place == MOST) break;
            registries[place].set(place + 1);
            given[place] = place == hole ? address(uint160(0xbad)) : address(registries[place]);
        }
        try new FactsReader(given) {
            assert(count != 0 && count <= MOST && hole >= count);
        } catch {
            assert(count == 0 || count > MOST || hole < count);
        }
    }

    /// @dev The value if both are the same, without a path of its own, and else zero.
    function _ifSame(uint256 one, uint256 other, uint256 value) private pure returns (uint256 result) {
        assembly {
            result := mul(eq(one, other), value)
        }
    }
}
