// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {BeaconHistory} from "../src/BeaconHistory.sol";
import {IBeaconHistory} from "../src/IBeaconHistory.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Answers any call with sha256 of two zero words, which the history's constructor expects.
contract ZerosHash {
    fallback() external {
        assembly {
            mstore(0, 0xf5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b)
            return(0, 32)
        }
    }
}

/// @title Stands in for sha256, which halmos can't compute; `contracts.prove` has the history call this address. It is
/// any function of two words to 160 bits, as ecrecover is to halmos.
contract AnyHash {
    fallback() external {
        (bytes32 left, bytes32 right) = abi.decode(msg.data, (bytes32, bytes32));
        uint256 digest = uint160(ecrecover(left, 27, right, 0));
        assembly {
            mstore(0, digest)
            return(0, 32)
        }
    }
}

/// @title A branch proves only the hash at one generalized index, which follows from the layouts of its slots.
/// @dev Generalized indices are copied from the consensus specifications, and joined by their rule. Hashed words are
/// symbolic. Slots, counts and numbers are fixed, because each makes another tree. Periods have two slots, and each
/// fork begins within one.
contract BeaconHistoryProofs is Symbolic {
    address private constant SHA256 = address(0x5a256);

    uint256 internal constant PERIOD_DEPTH = 1;
    uint256 internal constant BELLATRIX = 3;
    uint256 internal constant CAPELLA = 5;
    uint256 internal constant DENEB = 7;
    uint256 internal constant ELECTRA = 9;
    uint256 internal constant END = 13;
    uint256 internal constant LAST_SLOT = 14;
    uint256 internal constant BLOCKS_BEFORE_MERGE = 8192 + 3;
    // A symbolic hash may be equal to it.
    bytes32 internal constant CONSTANT = bytes32(uint256(0x6f6f74));

    // From a block's root to its state, and to the hash of its execution block.
    uint256 private constant STATE = 11;
    uint256 private constant HASH_UNTIL_CAPELLA = 3228;
    uint256 private constant HASH_SINCE_DENEB = 6444;
    uint256 private constant HASH_SINCE_GLOAS = 25384;
    // From a state's root.
    uint256 private constant SUMMARIES_UNTIL_DENEB = 59;
    uint256 private constant SUMMARIES_SINCE_ELECTRA = 91;
    uint256 private constant SUMMARIES_SINCE_GLOAS = 2950;
    uint256 private constant ROOTS_UNTIL_DENEB = 39;
    uint256 private constant ROOTS_SINCE_ELECTRA = 71;
    uint256 private constant ROOTS_SINCE_GLOAS = 354;

    uint256 private constant HISTORY_DEPTH = 24;

    // Roots of trees of zeros, by height.
    bytes private constant ZEROS =
        hex"0000000000000000000000000000000000000000000000000000000000000000"
        hex"f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b"
        hex"db56114e00fdd4c1f85c892bf35ac9a89289aaecb1ebd0a96cde606a748b5d71"
        hex"c78009fdf07fc56a11f122370658a353aaa542ed63e44c4bc15ff4cd105ab33c"
        hex"536d98837f2dd165a55d5eeae91485954472d56f246df256bf3cae19352a123c"
        hex"9efde052aa15429fae05bad4d0b1d7c64da64d03d7a1854a588c2cb8430c0d30"
        hex"d88ddfeed400a8755596b21942c1497e114c302e6118290f91e6772976041fa1"
        hex"87eb0ddba57e35f6d286673802a4af5975e22506c7cf4c64bb6be5ee11527f2c"
        hex"26846476fd5fc54a5d43385167c95144f2643f533cc85bb9d16b782f8d7db193"
        hex"506d86582d252405b840018792cad2bf1259f1ef5aa5f887e13cb2f0094f51e1"
        hex"ffff0ad7e659772f9534c195c815efc4014ef1e1daed4404c06385d11192e92b"
        hex"6cf04127db05441cd833107a52be852868890e4317e6a02ab47683aa75964220"
        hex"b7d05f875f140027ef5118a2247bbb84ce8f2f0f1123623085daf7960c329f5f"
        hex"df6af5f5bbdb6be9ef8aa618e4bf8073960867171e29676f8b284dea6a08a85e"
        hex"b58d900f5e182e3c50ef74969ea16c7726c549757cc23523c369587da7293784"
        hex"d49a7502ffcfb0340b1d7885688500ca308161a7f96b62df9d083b71fcc8f2bb"
        hex"8fe6b1689256c0d385f42f5bbe2027a22c1996e110ba97c171d3e5948de92beb"
        hex"8d0d63c39ebade8509e0ae3c9c3876fb5fa112be18f905ecacfecb92057603ab"
        hex"95eec8b2e541cad4e91de38385f2e046619f54496c2382cb6cacd5b98c26f5a4"
        hex"f893e908917775b62bff23294dbbe3a1cd8e6cc1c35b4801887b646a6f81f17f"
        hex"cddba7b592e3133393c16194fac7431abf2f5485ed711db282183c819e08ebaa"
        hex"8a8d7fe3af8caa085a7639a832001457dfb9128a8061142ad0335629ff23ff9c"
        hex"feb3c337d7a51a6fbf00b9e34c52e1c9195c969bd4e7a0bfd51d5c5bed9c1167"
        hex"e71f0aa83cc32edfbefa9f4d3e0174ca85182eec9f3a09f6a6c0df6377a510d7";

    IBeaconHistory internal history;
    // The first slot of Gloas. To the earlier contract the slots from END on have the layout before.
    uint256 internal gloas = LAST_SLOT + 1;

    /// @dev A branch, and how far it leads.
    struct Climb {
        bytes branch;
        bytes32 node;
        // True if the contract must refuse it with any root.
        bool isNone;
        // Bits that must be zero: the last ones of leaves of active fields, and a root of state roots.
        uint256 beyond;
    }

    function setUp() external {
        vm.etch(SHA256, type(ZerosHash).runtimeCode);
        _create();
        vm.etch(SHA256, type(AnyHash).runtimeCode);
    }

    function _create() internal virtual {
        history = new BeaconHistory(
            BeaconHistory.Chain(
                1, PERIOD_DEPTH, BELLATRIX, CAPELLA, DENEB, ELECTRA, END, CONSTANT, BLOCKS_BEFORE_MERGE, CONSTANT
            )
        );
    }

    function check_own(uint256 slot, bytes32 root) external view {
        Climb memory climb;
        bytes32 blockHash = _block(climb, _each(slot, 0, LAST_SLOT));
        _check(climb, root, blockHash, abi.encodeCall(history.ownBlockHash, (root, climb.branch)));
    }

    function check_old_by_slot(uint256 slot, bytes32 root) external view {
        _checkOld(_each(slot, 0, LAST_SLOT), 4, ELECTRA, root);
    }

    function check_old_by_anchor(uint256 slot, bytes32 root) external view {
        _checkOld(CAPELLA + 2, 3, _each(slot, 0, LAST_SLOT), root);
    }

    function check_old_by_count(uint256 count, bytes32 root) external view {
        _checkOld(ELECTRA + 1, _each(count, 0, 9), ELECTRA - 1, root);
    }

    function check_before_capella(uint256 slot) external view {
        slot = _each(slot, 0, LAST_SLOT);
        Climb memory climb;
        bytes32 blockHash = _beforeCapella(climb, slot);
        _check(climb, CONSTANT, blockHash, abi.encodeCall(history.blockHashBeforeCapella, (climb.branch)));
    }

    /// @dev The first and the last block of both epochs, and the first block after them.
    function check_before_merge(uint256 choice) external view {
        uint256 blockNumber = [uint256(0), 8191, 8192, BLOCKS_BEFORE_MERGE - 1, BLOCKS_BEFORE_MERGE, 5000, type(uint32).max][_each(
            choice, 0, 6
        )];
        Climb memory climb;
        bytes32 blockHash = _beforeMerge(climb, blockNumber);
        _check(climb, CONSTANT, blockHash, abi.encodeCall(history.blockHashBeforeMerge, (climb.branch)));
    }

    function check_historical_roots(uint256 slot, bytes32 root) external view {
        Climb memory climb;
        climb.node = CONSTANT;
        _anchor(climb, _each(slot, 0, LAST_SLOT), ROOTS_UNTIL_DENEB, ROOTS_SINCE_ELECTRA, ROOTS_SINCE_GLOAS);
        bytes memory call = abi.encodeCall(BeaconHistory.provesHistoricalRoots, (root, climb.branch));
        _check(climb, root, bytes32(uint256(1)), call);
    }

    /// @dev The branch is shorter or longer by 1 or 32 bytes.
    function check_a_branch_has_its_size(uint256 kind, uint256 form, bytes32 root) external view {
        kind = _each(kind, 0, 4);
        form = _each(form, 0, 3);
        Climb memory climb;
        climb.node = CONSTANT;
        if (kind == 0) _block(climb, CAPELLA);
        else if (kind == 1) _old(climb, CAPELLA, 2, CAPELLA + 1);
        else if (kind == 2) _beforeCapella(climb, BELLATRIX);
        else if (kind == 3) _beforeMerge(climb, 8192);
        else _anchor(climb, CAPELLA, ROOTS_UNTIL_DENEB, ROOTS_SINCE_ELECTRA, ROOTS_SINCE_GLOAS);
        climb.isNone = true;
        bytes memory branch = climb.branch;
        uint256 by = form & 1 == 0 ? 1 : 32;
        if (form < 2) branch = abi.encodePacked(branch, svm.createBytes(by, "more"));
        else assembly {
            mstore(branch, sub(mload(branch), by))
        }
        bytes memory call = kind == 0
            ? abi.encodeCall(history.ownBlockHash, (root, branch))
            : kind == 1
                ? abi.encodeCall(history.oldBlockHash, (root, branch))
                : kind == 2
                    ? abi.encodeCall(history.blockHashBeforeCapella, (branch))
                    : kind == 3
                        ? abi.encodeCall(history.blockHashBeforeMerge, (branch))
                        : abi.encodeCall(BeaconHistory.provesHistoricalRoots, (root, branch));
        _check(climb, root, 0, call);
    }

    // --- Parts ------------------------------------------------------------------------------------------------------

    function _check(Climb memory climb, bytes32 root, bytes32 blockHash, bytes memory call) internal view {
        (bool accepted, bytes memory answer) = address(history).staticcall(call);
        if (accepted) {
            assert(!climb.isNone);
            assert(_both(_both(climb.node == root, blockHash != 0), climb.beyond == 0));
            assert(answer.length == 32 && bytes32(answer) == blockHash);
        } else {
            assert(climb.isNone || _either(_either(climb.node != root, blockHash == 0), climb.beyond != 0));
        }
    }

    function _checkOld(uint256 slot, uint256 count, uint256 anchor, bytes32 root) private view {
        // A count of 0 is another kind of branch since Gloas.
        if (count == 0 && gloas <= LAST_SLOT) return;
        Climb memory climb;
        bytes32 blockHash = _old(climb, slot, count, anchor);
        _check(climb, root, blockHash, abi.encodeCall(history.oldBlockHash, (root, climb.branch)));
    }

    function _old(Climb memory climb, uint256 slot, uint256 count, uint256 anchor)
        private
        view
        returns (bytes32 blockHash)
    {
        blockHash = _block(climb, slot);
        _period(climb, slot);
        climb.branch = abi.encodePacked(climb.branch, uint24(count));
        uint256 before = CAPELLA >> PERIOD_DEPTH;
        if (slot >> PERIOD_DEPTH < before) climb.isNone = true;
        else _list(climb, (slot >> PERIOD_DEPTH) - before, count, HISTORY_DEPTH);
        _anchor(climb, anchor, SUMMARIES_UNTIL_DENEB, SUMMARIES_SINCE_ELECTRA, SUMMARIES_SINCE_GLOAS);
    }

    function _beforeCapella(Climb memory climb, uint256 slot) private view returns (bytes32 blockHash) {
        blockHash = _block(climb, slot);
        _period(climb, slot);
        _list(climb, slot >> PERIOD_DEPTH, CAPELLA >> PERIOD_DEPTH, HISTORY_DEPTH);
    }

    function _beforeMerge(Climb memory climb, uint256 blockNumber) private view returns (bytes32 blockHash) {
        climb.branch = abi.encodePacked(uint32(blockNumber));
        blockHash = _take(climb, "hash");
        climb.node = blockHash;
        // The difficulty.
        _climb(climb, 0, 1);
        uint256 epoch = blockNumber / 8192;
        // A chain with two epochs.
        _list(climb, blockNumber % 8192, epoch == 0 ? 8192 : epoch == 1 ? BLOCKS_BEFORE_MERGE - 8192 : 0, 13);
        _list(climb, epoch, 2, 17);
    }

    /// @dev Up to the root of a period: its block roots are the first half.
    function _period(Climb memory climb, uint256 slot) private pure {
        _climb(climb, slot % (1 << PERIOD_DEPTH), PERIOD_DEPTH + 1);
    }

    /// @dev Siblings beyond the end are zeros and aren't sent; the length is hashed in.
    function _list(Climb memory climb, uint256 place, uint256 count, uint256 depth) private pure {
        if (place >= count) climb.isNone = true;
        for (uint256 height = 0; height < depth; ++height) {
            uint256 sibling = (place >> height) ^ 1;
            _step(climb, place >> height, sibling << height < count ? _take(climb, "sibling") : _zeros(height));
        }
        _step(climb, 0, _little(count));
    }

    function _anchor(Climb memory climb, uint256 slot, uint256 untilDeneb, uint256 sinceElectra, uint256 sinceGloas)
        internal
        view
    {
        uint256 index = slot < ELECTRA ? untilDeneb : slot < gloas ? sinceElectra : sinceGloas;
        bytes32 first = _slot(climb, slot);
        if (slot < CAPELLA) climb.isNone = true;
        bytes32 parent = _take(climb, "parent");
        if (slot < gloas) _climb(climb, index, _depth(index));
        else _climbFields(climb, index, _depth(index));
        _step(climb, STATE, parent);
        _step(climb, STATE >> 1, first);
        _climb(climb, STATE >> 2, 1);
    }

    function _block(Climb memory climb, uint256 slot) internal view returns (bytes32 blockHash) {
        uint256 index = slot < DENEB ? HASH_UNTIL_CAPELLA : slot < gloas ? HASH_SINCE_DENEB : HASH_SINCE_GLOAS;
        bytes32 first = _slot(climb, slot);
        if (slot < BELLATRIX) climb.isNone = true;
        bytes32 second = _take(climb, "second");
        blockHash = _take(climb, "hash");
        climb.node = blockHash;
        // The three nodes above the body are known or given.
        if (slot < gloas) index = _climb(climb, index, _depth(index) - 3);
        else index = _climbFields(climb, index, _depth(index) - 3);
        _step(climb, index, 0);
        _step(climb, index >> 1, _zeros(1));
        _step(climb, index >> 2, _hash(first, second));
    }

    /// @dev The node above slot and proposer.
    function _slot(Climb memory climb, uint256 slot) private view returns (bytes32) {
        uint256 proposer = svm.createUint(64, "proposer");
        climb.branch = abi.encodePacked(climb.branch, uint64(slot), uint64(proposer));
        if (slot >= END) climb.isNone = true;
        return _hash(_little(slot), _little(proposer));
    }

    /// @dev As `_climb`. The last sibling tells which fields there are, at most 128.
    function _climbFields(Climb memory climb, uint256 index, uint256 depth) private pure returns (uint256) {
        index = _climb(climb, index, depth - 1);
        bytes32 fields = _take(climb, "fields");
        climb.beyond |= uint128(uint256(fields));
        _step(climb, index, fields);
        return index >> 1;
    }

    function _climb(Climb memory climb, uint256 index, uint256 depth) internal pure returns (uint256) {
        for (; depth != 0; --depth) {
            _step(climb, index, _take(climb, "node"));
            index >>= 1;
        }
        return index;
    }

    function _step(Climb memory climb, uint256 index, bytes32 sibling) private pure {
        (bytes32 left, bytes32 right) = index & 1 == 0 ? (climb.node, sibling) : (sibling, climb.node);
        climb.node = _hash(left, right);
    }

    function _take(Climb memory climb, string memory name) internal pure returns (bytes32 node) {
        node = bytes32(svm.createUint(256, name));
        climb.branch = abi.encodePacked(climb.branch, node);
    }

    /// @dev As `AnyHash`.
    function _hash(bytes32 left, bytes32 right) private pure returns (bytes32) {
        return bytes32(uint256(uint160(ecrecover(left, 27, right, 0))));
    }

    function _zeros(uint256 height) private pure returns (bytes32 root) {
        bytes memory zeros = ZEROS;
        assembly {
            root := mload(add(zeros, mul(32, add(height, 1))))
        }
    }

    function _depth(uint256 index) private pure returns (uint256 depth) {
        while (index >> (depth + 1) != 0) ++depth;
    }

    function _little(uint256 value) private pure returns (bytes32 leaf) {
        bytes memory written = new bytes(32);
        for (uint256 place = 0; place < 8; ++place) {
            written[place] = bytes1(uint8(value >> (8 * place)));
        }
        return bytes32(written);
    }
}
