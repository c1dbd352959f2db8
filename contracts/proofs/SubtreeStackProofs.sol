// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {MemoryZones} from "../src/MemoryZones.sol";
import {Stack, Subtree, SubtreeStack} from "../src/SubtreeStack.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Calls on the stack of subtrees, each in memory of its own.
contract StackUser {
    using SubtreeStack for Stack;

    function push(Stack memory stack, bytes32[6] memory words) external pure {
        stack.push(
            words[0], uint256(words[1]), uint256(words[2]), uint256(words[3]), uint256(words[4]), uint256(words[5])
        );
    }

    /// @dev Also returns the pushed words with the word of memory before and after them. Those two are `around` before.
    function pushBetween(Stack memory stack, bytes32[6] memory words, bytes32 around)
        external
        pure
        returns (uint256, Stack memory, bytes32[8] memory found)
    {
        uint256 top = stack.top;
        assembly {
            mstore(sub(top, 0x20), around)
            mstore(add(top, 0xc0), around)
        }
        Subtree item = stack.push(
            words[0], uint256(words[1]), uint256(words[2]), uint256(words[3]), uint256(words[4]), uint256(words[5])
        );
        assembly {
            mcopy(found, sub(top, 0x20), 0x100)
        }
        return (Subtree.unwrap(item), stack, found);
    }

    function peek(Stack memory stack) external pure returns (uint256, Stack memory) {
        return (Subtree.unwrap(stack.peek()), stack);
    }

    function fold(Stack memory stack, uint256 count) external pure returns (uint256, Stack memory) {
        return (Subtree.unwrap(stack.fold(count)), stack);
    }

    function only(Stack memory stack) external pure returns (uint256, Stack memory) {
        return (Subtree.unwrap(stack.only()), stack);
    }

    function openAndClose(Stack memory stack, uint256 top) external pure returns (Stack memory, Stack memory) {
        stack.open();
        Stack memory opened = Stack(stack.bottom, stack.top);
        stack.top = top;
        stack.close();
        return (opened, stack);
    }
}

/// @title The stack hands out and writes nothing but what lies in the stack that is open, wherever that claims to be.
contract SubtreeStackProofs is Symbolic {
    uint256 private constant SUBTREE = 0xc0;

    StackUser private user;

    function setUp() external {
        user = new StackUser();
    }

    /// @dev Bottom and top are any words, also outside of the zone or in the wrong order.
    function check_fold_takes_what_is_in_the_open_stack_and_nothing_else(Stack memory stack, uint256 count)
        external
        view
    {
        bool isThere = _isInZone(stack) && count >= 1 && count <= 16 && stack.top - stack.bottom >= count * SUBTREE;
        try user.fold(stack, count) returns (uint256 lowest, Stack memory left) {
            assert(isThere);
            assert(lowest >= stack.bottom && lowest + count * SUBTREE == stack.top);
            assert(left.bottom == stack.bottom && left.top == lowest + SUBTREE);
        } catch {
            assert(!isThere);
        }
    }

    function check_peek_shows_what_is_in_the_open_stack_and_nothing_else(Stack memory stack) external view {
        bool isThere = _isInZone(stack) && stack.top - stack.bottom >= SUBTREE;
        try user.peek(stack) returns (uint256 item, Stack memory left) {
            assert(isThere);
            assert(item >= stack.bottom && item + SUBTREE == stack.top);
            assert(left.bottom == stack.bottom && left.top == stack.top);
        } catch {
            assert(!isThere);
        }
    }

    function check_only_shows_the_one_subtree_of_the_open_stack(Stack memory stack) external view {
        bool isThere = _isInZone(stack) && stack.top - stack.bottom == SUBTREE;
        try user.only(stack) returns (uint256 item, Stack memory left) {
            assert(isThere && item == stack.bottom);
            assert(left.bottom == stack.bottom && left.top == stack.top);
        } catch {
            assert(!isThere);
        }
    }

    /// @dev The other half of it is below: where there is room, at places that halmos knows.
    function check_push_refuses_what_has_no_room_in_the_zone(Stack memory stack, bytes32[6] memory words)
        external
        view
    {
        bool hasRoom = stack.top >= MemoryZones.STACK && stack.top <= MemoryZones.STACK_END - SUBTREE;
        vm.assume(!hasRoom || uint256(words[1]) > 31 || uint256(words[3]) > 62);
        // Halmos gets the concrete place if one byte of room is missing, and if there is room: then it can follow a write,
        // and find that it is wrong.
        if (stack.top == MemoryZones.STACK_END - SUBTREE + 1) stack.top = MemoryZones.STACK_END - SUBTREE + 1;
        if (stack.top == MemoryZones.STACK) stack.top = MemoryZones.STACK;
        try user.push(stack, words) {
            assert(false);
        } catch {}
    }

    /// @dev At the lowest eight places of subtrees in the zone, and at the highest.
    function check_push_writes_the_subtree_and_nothing_else(bytes32[6] memory words, bytes32 around, uint256 bottom)
        external
        view
    {
        vm.assume(uint256(words[1]) <= 31 && uint256(words[3]) <= 62);
        for (uint256 place = 0; place < 2048; place = place == 7 ? 2040 : place + 1) {
            uint256 top = MemoryZones.STACK + place * SUBTREE;
            bytes memory call = abi.encodeCall(user.pushBetween, (Stack(bottom, top), words, around));
            (uint256 item, Stack memory left, bytes32[8] memory found) =
                abi.decode(_returned(address(user), call), (uint256, Stack, bytes32[8]));
            assert(item == top && left.top == top + SUBTREE && left.bottom == bottom);
            assert(found[0] == around && found[7] == around);
            for (uint256 i = 0; i < 6; ++i) {
                assert(found[i + 1] == words[i]);
            }
        }
    }

    /// @dev Between opening and closing the top may be anywhere.
    function check_a_stack_is_opened_above_what_there_is_and_closed_to_it(Stack memory stack, uint256 top)
        external
        view
    {
        bytes memory answer = _returned(address(user), abi.encodeCall(user.openAndClose, (stack, top)));
        (Stack memory opened, Stack memory closed) = abi.decode(answer, (Stack, Stack));
        assert(opened.bottom == stack.top && opened.top == stack.top);
        assert(closed.bottom == MemoryZones.STACK && closed.top == stack.top);
    }

    function _isInZone(Stack memory stack) private pure returns (bool) {
        return MemoryZones.STACK <= stack.bottom && stack.bottom <= stack.top && stack.top <= MemoryZones.STACK_END;
    }
}
