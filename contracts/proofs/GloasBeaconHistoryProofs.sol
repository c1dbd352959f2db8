// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {GloasBeaconHistory} from "../src/GloasBeaconHistory.sol";
import {BeaconHistoryProofs} from "./BeaconHistoryProofs.sol";

/// @title The properties of `BeaconHistory`, of the contract that knows Gloas.
contract GloasBeaconHistoryProofs is BeaconHistoryProofs {
    // From a state's root.
    uint256 private constant BLOCK_ROOTS_UNTIL_DENEB = 37;
    uint256 private constant BLOCK_ROOTS_SINCE_ELECTRA = 69;
    uint256 private constant BLOCK_ROOTS_SINCE_GLOAS = 352;

    function _create() internal override {
        gloas = 11;
        history = new GloasBeaconHistory(
            GloasBeaconHistory.Chain(
                1,
                PERIOD_DEPTH,
                BELLATRIX,
                CAPELLA,
                DENEB,
                ELECTRA,
                gloas,
                END,
                CONSTANT,
                BLOCKS_BEFORE_MERGE,
                CONSTANT
            )
        );
    }

    function check_block_roots_by_slot(uint256 slot, bytes32 root) external view {
        _checkBlockRoots(_each(slot, 0, LAST_SLOT), ELECTRA, root);
    }

    function check_block_roots_by_anchor(uint256 slot, bytes32 root) external view {
        _checkBlockRoots(CAPELLA + 2, _each(slot, 0, LAST_SLOT), root);
    }

    /// @dev A count of 0, without a root of state roots, leads through the anchor's own block roots.
    function _checkBlockRoots(uint256 slot, uint256 anchor, bytes32 root) private view {
        Climb memory climb;
        bytes32 blockHash = _block(climb, slot);
        _climb(climb, slot % (1 << PERIOD_DEPTH), PERIOD_DEPTH);
        uint256 stateRoots = svm.createUint(256, "state roots");
        climb.beyond |= stateRoots;
        climb.branch = abi.encodePacked(climb.branch, stateRoots, uint24(0));
        _anchor(climb, anchor, BLOCK_ROOTS_UNTIL_DENEB, BLOCK_ROOTS_SINCE_ELECTRA, BLOCK_ROOTS_SINCE_GLOAS);
        _check(climb, root, blockHash, abi.encodeCall(history.oldBlockHash, (root, climb.branch)));
    }
}
