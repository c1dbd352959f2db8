"""Names of a storage slot that compilers and libraries may have given it, from the arguments of a call.

Sources: the Solidity documentation, "Layout of State Variables in Storage"; what Vyper's compilers do; ERC-7201; and
Solady's `ERC20`. `queries.storage_layout` computes the slot of each name: nothing is a name that leads to another slot.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, product
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from batch_query_client.namespaces import first_slot
from batch_query_client.stated_words import ALLOWANCE_SEED, BALANCE_SEED
from proving.slots.signatures import FunctionCall
from queries.storage_layout import ALL, ArrayElement, NamedSlot, Part, SlotKey, StructMember, slot_after

Compiler = Literal["solidity", "vyper", "vyper-0.2.12"]


# Members of a struct, from the first.
_MEMBERS = 16
_NAMESPACES = [first_slot(f"openzeppelin.storage.{name}") for name in ("ERC20", "Votes", "ERC721")]
_SOLADY_SUPPLY = 0x05345CDF77EB68F44C
# Variables whose mappings are looked into for mappings of structs, and for a third mapping.
_FIRST_BASES, _LAST_BASES = range(64), range(64, 256)
_MOST_SEED = 1 << 96
MOST_INDEX = 1 << 64


@dataclass(frozen=True)
class Key:
    """A mapping's key: an argument by its place. None: the contract's own address."""

    argument: int | None


@dataclass(frozen=True)
class Member:
    place: int


@dataclass(frozen=True)
class Element:
    """An element of an array: by an argument's place. None: the last one."""

    argument: int | None
    size: int
    """In bytes."""


@dataclass(frozen=True)
class Path:
    """The way from a variable to a slot."""

    base: int
    steps: tuple[Key | Member | Element, ...] = ()
    compiler: Compiler = "solidity"
    is_solady: bool = False
    """The base is a seed, which is hashed with the arguments."""

    @property
    def layout(self) -> str:
        """Return the name of the layout."""
        return "solady" if self.is_solady else self.compiler if self.steps else "fixed"

    @property
    def is_of_last(self) -> bool:
        """Return whether it leads to the last element of an array, which is another one once the array grows."""
        return Element(None, 32) in self.steps

    @property
    def arguments(self) -> set[int]:
        """Return the places of the arguments that lead to the slot."""
        return {step.argument for step in self.steps if not isinstance(step, Member) and step.argument is not None}

    @property
    def of_length(self) -> "Path | None":
        """Return the way to the length of the array that it leads through."""
        places = [place for place, step in enumerate(self.steps) if isinstance(step, Element)]
        return replace(self, steps=self.steps[: places[0]]) if places else None

    def part(self, call: FunctionCall, part: Part) -> Part:
        """Return the part of the word that answers another call, whose index may lead to another place in a word."""
        last = self.steps[-1] if self.steps else None
        if not isinstance(last, Element) or last.size >= 32 or last.argument is None:
            return part
        index = call.arguments[last.argument].number or 0
        return replace(part, offset=index % (256 // part.size) * part.size)

    def number(self, call: FunctionCall, contract: str, length: int = 0) -> int | None:
        """Return the slot. `length` is that of an array. None: there is none."""
        if not self.steps:
            return self.base
        name = self.name(call, contract, length)
        return int(name.number, 16) if name else None

    def name(self, call: FunctionCall, contract: str, length: int = 0) -> NamedSlot | None:
        """Return the name of the slot for a call of a contract. None: it has none."""
        try:
            if self.is_solady:
                return self._solady(call, contract)
            keys = [key for step in self.steps for key in _keys(step, call, contract, length)]
            return NamedSlot.model_validate({"slot": f"{self.base:x}", "keys": keys, "layout": self.compiler})
        except ValidationError:
            return None

    def _solady(self, call: FunctionCall, contract: str) -> NamedSlot:
        *others, last = [key for step in self.steps for key in _keys(step, call, contract, 0)]
        slot, keys = f"{last[2:]}{self.base:024x}", [*others, *([] if others else [{"index": "0"}])]
        if others and others[0].startswith("0x"):
            slot, keys = f"{self.base:024x}{last[2:]}", [{"key": others[0].lower(), "type": "bytes"}]
        return NamedSlot.model_validate({"slot": slot, "keys": keys})


def _keys(step: Key | Member | Element, call: FunctionCall, contract: str, length: int) -> Iterator[Any]:
    match step:
        case Key(argument):
            yield contract if argument is None else call.arguments[argument].key
        case Member(place):
            yield {"member": str(place)}
        case Element(argument, size):
            index = length - 1 if argument is None else call.arguments[argument].number or 0
            yield {"index": str(index)} | ({} if size == 32 else {"size": str(size)})


class Layouts:
    """The slots to which the arguments of a call lead."""

    def __init__(
        self, call: FunctionCall, contract: str, check_time: Callable[[], None], hint: int | None = None
    ) -> None:
        """`check_time` raises an error when the search takes too long. `hint` is a base or a seed."""
        self._call, self._contract, self._check_time = call, contract, check_time
        self._hints = [] if hint is None else [hint]
        keys = [*((Key(place), each.key) for place, each in enumerate(call.arguments)), (Key(None), contract)]
        self._keys = [(step, _AS_KEY.validate_python(key)) for step, key in keys]
        namespaces = [first + place & ALL for first in (*_NAMESPACES, *self._hints) for place in range(_MEMBERS)]
        bases = dict.fromkeys([*range(256), _SOLADY_SUPPLY, *namespaces])
        self._paths: dict[int, list[Path]] = defaultdict(list)
        self._add((base, Path(base)) for base in bases)
        self._deeper = self._deepen(
            [(base, Path(base, compiler=compiler)) for base in bases for compiler in _COMPILERS]
        )

    def of(self, slot: int, part: Part, read: Mapping[int, int]) -> list[Path]:
        """Return the ways to a slot. The answer of the call is `part` of its word.

        `read` has the words of the slots that the call reads of the same contract.
        """
        while True:
            found = [path for path in self._ways(slot, part, read) if self._leads_to(path, slot, read)]
            if found or not next(self._deeper, False):
                return list(dict.fromkeys(found))

    @cached_property
    def guesses(self) -> list[int]:
        """Return slots that the call may read: those to which all its arguments lead, and those to which none leads."""
        count = len(self._call.arguments)
        for _ in range(min(count, 2)):
            next(self._deeper, False)
        known = [(place, path) for place, paths in self._paths.items() for path in paths]
        usual = [(place, path) for place, path in known if path.base not in _LAST_BASES or self._is_first(path.base)]
        places = [place for place, path in usual if not path.steps or path.arguments == {*range(count)}]
        of_solady = [path.number(self._call, self._contract) for path in self._of_solady()]
        return list(dict.fromkeys([*places, *filter(None, of_solady)]))

    def length(self, path: Path, read: Mapping[int, int]) -> int:
        """Return the length of the array that a way leads through. 0: there is none."""
        number = path.of_length.number(self._call, self._contract) if path.of_length else None
        return 0 if number is None else read.get(number, 0)

    def known(self, slot: int) -> list[Path]:
        """Return the ways to a slot, without arrays, that are known so far."""
        return [
            replace(path, steps=(*path.steps, *([Member(place)] if place or path.compiler == _OLD else [])))
            for place in range(_MEMBERS)
            for path in self._paths.get(slot - place, ())
            if path.steps or not place
        ]

    def _leads_to(self, path: Path, slot: int, read: Mapping[int, int]) -> bool:
        return path.number(self._call, self._contract, self.length(path, read)) == slot

    def _ways(self, slot: int, part: Part, read: Mapping[int, int]) -> Iterator[Path]:
        yield from self.known(slot)
        yield from self._of_solady()
        for array, length in read.items():
            for path in self.known(array):
                for compiler in (path.compiler,) if path.steps else _COMPILERS:
                    distance = slot - slot_after(array, _FIRST_ELEMENT, compiler)
                    if 0 <= distance < MOST_INDEX:
                        yield from self._elements(replace(path, compiler=compiler), distance, length, part)

    def _elements(self, path: Path, distance: int, length: int, part: Part) -> Iterator[Path]:
        """Yield the ways from an array to the slot at this distance from its first element."""
        numbers = [(place, each.number) for place, each in enumerate(self._call.arguments)]
        indexes = [(place, number) for place, number in numbers if number is not None]
        for (place, index), words in product(indexes, range(1, _MEMBERS + 1)):
            if 0 <= (member := distance - index * words) < words:
                element = Element(place, 32 * words)
                yield replace(path, steps=(*path.steps, element, *([Member(member)] if member else [])))
        if not part.is_whole and part.size % 8 == 0:
            in_word = 256 // part.size
            for place, index in indexes:
                if (index // in_word, index % in_word * part.size) == (distance, part.offset):
                    yield replace(path, steps=(*path.steps, Element(place, part.size // 8)))
        if distance == length - 1:
            yield replace(path, steps=(*path.steps, Element(None, 32)))

    def _of_solady(self) -> list[Path]:
        arguments = [(Key(place), each) for place, each in enumerate(self._call.arguments)]
        holders = [*(step for step, each in arguments if each.type == "address"), Key(None)]
        identifiers = [step for step, each in arguments if each.number is not None]
        seeds = [hint for hint in self._hints if hint < _MOST_SEED]
        ways: list[tuple[int, tuple[Key, ...]]] = [*product((BALANCE_SEED, *seeds), product(holders))]
        ways += product((ALLOWANCE_SEED, *seeds), permutations(holders, 2))
        ways += product(seeds, product(identifiers, holders))
        return [Path(seed, steps, is_solady=True) for seed, steps in ways]

    def _deepen(self, newest: Sequence[tuple[int, Path]]) -> Iterator[bool]:
        """Find the places of mappings inside those that are known. Yield True after each depth."""
        of_arguments = self._keys[:-1]
        for depth in range(1, min(3, max(1, len(of_arguments))) + 1):
            # The contract's own address leads from a variable only.
            places = [(place, path) for place, path in newest if Key(None) not in path.steps]
            if depth == 3:
                places = [(place, path) for place, path in places if self._is_first(path.base)]
            newest = list(self._inside(places, self._keys if depth == 1 else of_arguments))
            if depth == 2:
                # Mappings in structs, after other members.
                structs = [
                    (place + member, replace(path, steps=(*path.steps, Member(member))))
                    for place, path in places
                    if self._is_first(path.base) and path.compiler == "solidity"
                    for member in range(1, _MEMBERS // 2)
                ]
                newest += self._inside(structs, of_arguments)
            self._add(newest)
            yield True
        self._add(list(self._old_structs()))
        yield True

    def _add(self, found: Iterable[tuple[int, Path]]) -> None:
        for place, path in found:
            self._paths[place].append(path)

    def _is_first(self, base: int) -> bool:
        return base in _FIRST_BASES or any(base - hint in range(_MEMBERS) for hint in self._hints)

    def _inside(
        self, places: Iterable[tuple[int, Path]], keys: Sequence[tuple[Key, SlotKey]]
    ) -> Iterator[tuple[int, Path]]:
        for place, path in places:
            self._check_time()
            for step, key in keys:
                if step not in path.steps:
                    yield slot_after(place, key, path.compiler), replace(path, steps=(*path.steps, step))

    def _old_structs(self) -> Iterator[tuple[int, Path]]:
        """Yield the ways to structs, which Vyper kept at the hash of their slot until 0.2.12."""
        for place, path in [(place, path) for place, paths in self._paths.items() for path in paths]:
            if path.compiler == "vyper" and path.steps:
                self._check_time()
                yield slot_after(place, _FIRST_MEMBER, _OLD), replace(path, compiler=_OLD)


_COMPILERS: tuple[Compiler, ...] = ("solidity", "vyper")
_OLD: Compiler = "vyper-0.2.12"
_AS_KEY = TypeAdapter[SlotKey](SlotKey)
_FIRST_MEMBER, _FIRST_ELEMENT = StructMember(member="0"), ArrayElement(index="0")
