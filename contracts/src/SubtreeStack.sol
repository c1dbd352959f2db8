// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {MemoryZones} from "./MemoryZones.sol";

/// @dev A place in memory that holds a node of a trie, with its known position and the keys below it.
type Subtree is uint256;

using SubtreeStack for Subtree global;

/// @dev The stack that is open: its subtrees lie from `bottom` to before `top`.
struct Stack {
    uint256 bottom;
    uint256 top;
}

/// @title A stack of subtrees, in its own zone of memory.
/// @dev Each function that pushes, pops or finds a subtree checks that it lies in the open stack, and the stack in the
/// zone. A `Subtree` is got in no other way. A popped subtree can be read until the next push.
///
/// A subtree is these words:
///     ref         the node's hash; or the node itself, left-aligned, where its RLP has less than 32 bytes
///     size        bytes of a node that is its own reference; zero for a hash
///     key         a key below the node, or any that agrees with those in their first `depth` nibbles
///     depth       nibbles of the key above the node
///     reach       as many nibbles as keys that are absent here may not agree with `key` in; zero for a branch
///     last        the greatest key that was proven absent at this very node
library SubtreeStack {
    // The same as in `MemoryZones`, whose constants assembly can't name.
    uint256 private constant STACK = 0x640;
    uint256 private constant STACK_END = 0x60640;

    uint256 private constant SUBTREE = 0xc0;

    // Keys are Keccak-256 hashes. A node at depth 63 needs two of them that agree in 62 nibbles, which would have to be
    // searched for in 2^124 steps: deeper nodes, which would need forms of their own, don't exist.
    uint256 internal constant MAX_DEPTH = 62;

    /// @dev An empty stack, and none below it.
    function begin(Stack memory stack) internal pure {
        stack.bottom = MemoryZones.STACK;
        stack.top = MemoryZones.STACK;
    }

    /// @dev Opens an empty stack above the present one, which can't be reached until the new one is closed.
    function open(Stack memory stack) internal pure {
        stack.bottom = stack.top;
    }

    /// @dev Forgets the stack that is open. The one below it, which is the first, is open again.
    function close(Stack memory stack) internal pure {
        stack.top = stack.bottom;
        stack.bottom = MemoryZones.STACK;
    }

    /// @dev Puts a subtree on top.
    function push(
        Stack memory stack,
        bytes32 ref_,
        uint256 size_,
        uint256 key_,
        uint256 depth_,
        uint256 reach_,
        uint256 last_
    ) internal pure returns (Subtree item) {
        unchecked {
            uint256 top = stack.top;
            _checkZone(top);
            if (size_ > 31 || depth_ > MAX_DEPTH) revert InvalidProof();
            assembly ("memory-safe") {
                mstore(top, ref_)
                mstore(add(top, 0x20), size_)
                mstore(add(top, 0x40), key_)
                mstore(add(top, 0x60), depth_)
                mstore(add(top, 0x80), reach_)
                mstore(add(top, 0xa0), last_)
            }
            stack.top = top + SUBTREE;
            return Subtree.wrap(top);
        }
    }

    /// @dev The subtree on top, which stays there.
    function peek(Stack memory stack) internal pure returns (Subtree) {
        return _topmost(stack, 1);
    }

    /// @dev Takes the topmost subtree off. It can be read until the next is pushed.
    function pop(Stack memory stack) internal pure returns (Subtree item) {
        item = _topmost(stack, 1);
        stack.top = Subtree.unwrap(item);
    }

    /// @dev Takes the topmost `count` subtrees off, 1 to 16, but for the lowest, which becomes that of the node above them.
    /// All can be read until then.
    function fold(Stack memory stack, uint256 count) internal pure returns (Subtree lowest) {
        unchecked {
            lowest = _topmost(stack, count);
            stack.top = Subtree.unwrap(lowest) + SUBTREE;
        }
    }

    /// @dev Makes a subtree that of the branch above it, whose key it has.
    function setBranch(Subtree item, bytes32 ref_, uint256 size_, uint256 depth_) internal pure {
        _checkZone(Subtree.unwrap(item));
        if (depth_ > MAX_DEPTH || size_ > 31) revert InvalidProof();
        assembly ("memory-safe") {
            mstore(item, ref_)
            mstore(add(item, 0x20), size_)
            mstore(add(item, 0x60), depth_)
            mstore(add(item, 0x80), 0)
            mstore(add(item, 0xa0), 0)
        }
    }

    /// @dev The only subtree of the open stack.
    function only(Stack memory stack) internal pure returns (Subtree lowest) {
        lowest = _topmost(stack, 1);
        if (Subtree.unwrap(lowest) != stack.bottom) revert InvalidProof();
    }

    function ref(Subtree item) internal pure returns (bytes32 value) {
        assembly ("memory-safe") {
            value := mload(item)
        }
    }

    function size(Subtree item) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := mload(add(item, 0x20))
        }
    }

    function key(Subtree item) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := mload(add(item, 0x40))
        }
    }

    function depth(Subtree item) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := mload(add(item, 0x60))
        }
    }

    function reach(Subtree item) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := mload(add(item, 0x80))
        }
    }

    function last(Subtree item) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := mload(add(item, 0xa0))
        }
    }

    function setLast(Subtree item, uint256 value) internal pure {
        assembly ("memory-safe") {
            mstore(add(item, 0xa0), value)
        }
    }

    /// @dev A subtree is written only within the zone, whatever else should fail.
    function _checkZone(uint256 top) private pure {
        unchecked {
            // Below the zone the difference is huge.
            if (top - MemoryZones.STACK > MemoryZones.STACK_END - MemoryZones.STACK - SUBTREE) revert InvalidProof();
        }
    }

    /// @dev Returns the lowest of the topmost `count` subtrees, and checks that they are in the open stack.
    function _topmost(Stack memory stack, uint256 count) private pure returns (Subtree) {
        unchecked {
            assert(STACK == MemoryZones.STACK && STACK_END == MemoryZones.STACK_END);
            (uint256 bottom, uint256 top) = (stack.bottom, stack.top);
            uint256 lowest = top - count * SUBTREE;
            bool outside;
            assembly ("memory-safe") {
                // One to sixteen; none below the bottom, which is in the zone; and none beyond the zone's end.
                outside := or(gt(sub(count, 1), 15), or(lt(lowest, bottom), or(lt(bottom, STACK), gt(top, STACK_END))))
                // A difference that overflowed would be above the number that it is subtracted from.
                outside := or(outside, gt(lowest, top))
            }
            if (outside) revert InvalidProof();
            return Subtree.wrap(lowest);
        }
    }
}
