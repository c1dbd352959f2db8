"""Memory before operations, and the memory that the model requires after them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from campaigns.fuzzing.ledger import Ledger, word
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import AT_SAME, FULL_BRANCH, HASH_BYTES, NIBBLES
from tests.contracts.decoder import EMPTY, _Decoder, _Reader, _Subtree

# These numbers are those of contracts/src/MemoryZones.sol.
NODE, STACK, STACK_END = 0x400, 0x640, 0x60640
NODE_BYTES = STACK - NODE
SUBTREE = 0xC0


def harness_calldata(
    bottom: int, top: int, owner: bytes, image: bytes, operations: bytes, *, is_open: bool = True, block: int = 9
) -> bytes:
    """Return StepHarness's arguments: whether a storage is open, its owner, memory from NODE on, and the operations."""
    words = (bottom, top, int(is_open), int.from_bytes(owner), block, len(image))
    return b"".join(map(word, words)) + image + operations


@dataclass
class Scene:
    """The memory before operations. Its undefined parts can have any content, such as bytes that look like subtrees."""

    block: int
    state: list[_Subtree]
    storage: list[_Subtree] | None
    owner: bytes
    """The owner of the open storage; otherwise a leftover."""
    node: bytes
    """The whole zone of nodes."""
    above: bytes
    """The memory behind the top of the stack."""

    def stacks(self) -> bytes:
        return b"".join(map(raw, self.state + (self.storage or [])))

    def image(self) -> bytes:
        """Return the content of memory from NODE on."""
        return self.node + self.stacks() + self.above

    def calldata(self, operations: bytes) -> bytes:
        """Return calldata for StepHarness."""
        bottom = top = STACK + SUBTREE * len(self.state)
        if self.storage is None:
            bottom = STACK
        else:
            top += SUBTREE * len(self.storage)
        is_open = self.storage is not None
        return harness_calldata(bottom, top, self.owner, self.image(), operations, is_open=is_open, block=self.block)


@dataclass
class Spoilt(_Subtree):
    """A subtree with leftover bytes after a reference that is shorter than a word. No code may read these bytes."""

    rest: bytes = b""


def raw(subtree: _Subtree) -> bytes:
    """Return the words of a subtree (contracts/src/SubtreeStack.sol)."""
    reference, size = subtree.reference, len(subtree.reference)
    if size == 1 + HASH_BYTES:
        reference, size = reference[1:], 0
    elif isinstance(subtree, Spoilt):
        reference += subtree.rest[: HASH_BYTES - size]
    return (
        reference.ljust(HASH_BYTES, b"\0")
        + word(size)
        + word(subtree.key)
        + word(subtree.depth)
        + word(subtree.reach)
        + word(subtree.last)
    )


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Told(dict[_Key, _Value]):
    """A dict that reports each assignment, including repeated ones."""

    def __init__(self, tell: Callable[[_Key, _Value], None]) -> None:
        super().__init__()
        self._tell = tell

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        self._tell(key, value)


class WatchedReader(_Reader):
    """A reader that reports the next operation before each one, and the end."""

    def __init__(self, data: bytes, tell: Callable[[int | None], None]) -> None:
        super().__init__(data)
        self._tell = tell

    def at_end(self) -> bool:
        ended = super().at_end()
        self._tell(None if ended else self._data[self.cursor])
        return ended


class Model(_Decoder):
    """The Python verifier, started in a scene. It runs operations one after another and models memory.

    It uses and changes the scene's stacks.
    """

    def __init__(self, scene: Scene, ledger: Ledger) -> None:
        super().__init__(_Reader(b""), HISTORY_WINDOW)
        self.memory = bytearray(scene.stacks() + scene.above)
        """The required content of the zone of stacks."""
        self.forms: list[str] = []
        """The operations so far, each with its form if it has several."""
        self.count = 0
        """Number of begun operations."""
        self._block = scene.block
        self._ledger = ledger
        self.facts = _Told(lambda address, facts: ledger.store_account(scene.block, address, facts))
        self._state, self._storage, self._owner = scene.state, scene.storage, scene.owner
        self._begin_storage()

    def feed(self, operations: bytes) -> None:
        """Run more operations. Raise `InvalidPacked`."""
        self._reader = WatchedReader(operations, self._between_operations)
        self.run()

    @property
    def state(self) -> list[_Subtree]:
        return self._state

    @property
    def storage(self) -> list[_Subtree] | None:
        return self._storage

    @property
    def owner(self) -> bytes:
        return self._owner

    @property
    def open_stack(self) -> list[_Subtree]:
        return self._stack

    @property
    def bottom(self) -> int:
        """Return the address of the open stack's bottom."""
        return STACK if self._storage is None else STACK + SUBTREE * len(self._state)

    @property
    def top(self) -> int:
        return self.bottom + SUBTREE * len(self._stack)

    def _between_operations(self, operation: int | None) -> None:
        # An operation can only have pushed or changed the top of the open stack.
        if stack := self._stack:
            end = self.top - STACK
            self.memory[end - SUBTREE : end] = raw(stack[-1])
        if operation is not None:
            self.count += 1
            again = operation == FULL_BRANCH and self.forms[-1:] in (["00"], ["00 again"])
            self.forms.append(f"{operation:02x} again" if again else f"{operation:02x}")

    def _open_storage(self) -> None:
        super()._open_storage()
        self._begin_storage()

    def _begin_storage(self) -> None:
        block, owner, ledger = self._block, self._owner, self._ledger
        self._slots = _Told(lambda slot, value: ledger.store_slot(block, owner, slot, value))
        self._history = _Told(lambda _, digest: ledger.store_block_hash(digest))

    def _absent_key(self, how: int, key: int) -> None:
        super()._absent_key(how, key)
        if how == AT_SAME:
            node = self._stack[-1]
            kind = "empty place" if node.reference == EMPTY else "leaf" if node.reach == NIBBLES else "extension"
            self.forms.append(f"same {kind}")

    def _node_child(self) -> bytes:
        self.forms.append("node child")
        return super()._node_child()
