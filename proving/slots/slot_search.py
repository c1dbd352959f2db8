"""The storage slot from which a view call answers, its layout, and how certain both are.

Words come by verified proofs. How an answer follows from a word is tried with other words in its place, and a layout
is tried with other arguments. So a node that lies may hide a slot, but its contradictions are found. The search never
tells more than nodes have shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from chains.encoding import checksummed
from chains.nodes import questions, view_calls
from chains.nodes.node_batches import ExchangeBudget, OutOfExchanges
from chains.nodes.node_errors import ChainError, InvalidReply, NodeUnavailable, Reverted, RpcRefused, plain, secrets_of
from chains.nodes.questions import ProofRequest
from chains.nodes.rpc import RpcClient, result
from chains.nodes.view_calls import ReadSlots, Storage, ViewCall
from chains.tries.header import Header
from config.error_answers import Refused
from proving.health import chain_watch
from proving.reading.asking import ChainUnavailable, ProofUnavailable
from proving.slots import trials
from proving.slots.layouts import Layouts, Path
from proving.slots.signatures import FunctionCall
from proving.slots.trials import Part
from queries.storage_layout import NamedSlot

MOST_GAS = 30_000_000
"""Maximum gas of one execution, and of the trials of an exchange together."""
# Maximum slots that a call may read.
_MOST_SLOTS = 48
# Maximum bytes of the call's answer.
_MOST_BYTES = 16 * 1024
# Maximum trials of an exchange.
_MOST_TRIALS = 48
# Maximum slots whose layouts are looked for, and layouts of each that are tried.
_MOST_NAMED, _MOST_TRIED = 6, 4
_WORD = 32
_ERROR_OF_TEXT = bytes.fromhex("08c379a0")

Certainty = Literal["is_value", "part_of_word", "one_of_several", "computed", "path_only"]
_PROXY_SLOTS = {
    0x360894A13BA1A3210667C828492DB98DCA3E2076CC3735A920A3CA505D382BBC: "eip1967_implementation",
    0xA3F0AD74E5423AEBFD80D3EF4346578335A9A72AEAEE59FF6CB3582B35133D50: "eip1967_beacon",
    0xB53127684A568B3173AE13B9F8A6016E243E63B6E8EE1178D6A717850B5D6103: "eip1967_admin",
}
# Numbers below are no addresses of proxies' code, but may be those of precompiled contracts.
_LEAST_ADDRESS = 1 << 64
Place = tuple[str, int]
"""A contract (EIP-55) and one of its slots."""


@dataclass(frozen=True)
class SlotQuestion:
    """A view call of a contract, and the word of its answer that a slot is looked for."""

    contract: str
    call: FunctionCall
    position: int | None = None
    """The place of the word. None: the answer is one word."""


@dataclass(frozen=True)
class FoundSlot:
    account: str
    slot: int
    word: int
    certainty: Certainty
    part: Part | None
    """The part of the word that is the answer."""
    layout: str
    """`layout_unknown`, or the name of a layout."""
    name: NamedSlot | None
    is_of_last: bool
    """The slot is that of an array's last element at the block."""


@dataclass(frozen=True)
class DependingSlot:
    """A slot of a proxy, or of the length of an array, that leads to the slot of the answer."""

    account: str
    slot: int
    word: int
    role: str
    name: NamedSlot | None = None


@dataclass(frozen=True)
class SlotFindings:
    header: Header
    method: str
    slots: Sequence[FoundSlot]
    depends_on: Sequence[DependingSlot]
    decimals: int | None
    """The answer of `decimals()`, a hint. None: there is none."""


class SlotsUnknown(Refused):
    """The nodes can't tell which slots a call reads, or how its answer follows from them."""

    def __init__(self, sentence: str) -> None:
        super().__init__("slots_unknown", sentence)


class CallFailed(Refused):
    """The call reverts, or doesn't answer one word."""

    def __init__(self, sentence: str) -> None:
        super().__init__("call_failed", sentence)


class NoCode(CallFailed):
    """The contract has no code at the block."""


class BlockNotYet(ChainUnavailable):
    """The chain has no such block yet."""


def find(rpc: RpcClient, asked: SlotQuestion, header: Header, budget: ExchangeBudget) -> SlotFindings:
    """Search for the slots behind a call, in the state of a block. The client has the budget, too.

    Raises `SlotsUnknown`, `CallFailed`, `ChainUnavailable` and `ChainError`.
    """
    return _Search(rpc, asked, header, budget).run()


def confirmed_header(rpc: RpcClient, number: int | Literal["latest", "finalized"]) -> Header:
    """Return a block's header by its number, or the newest confirmed or final one. Raises `ChainUnavailable`."""
    label = rpc.chain.label
    if number == "latest":
        head, confirmations = rpc.head(), rpc.chain.confirmations
        if confirmations == 1:
            return head
        number = "finalized" if confirmations == "finalized" else max(0, head.number - confirmations + 1)
    if (header := rpc.header(number)) is None:
        which = "a final block" if number == "finalized" else f"block {number}"
        raise BlockNotYet(f"{label} doesn't have {which} yet.")
    return header


class _Search:
    def __init__(self, rpc: RpcClient, asked: SlotQuestion, header: Header, budget: ExchangeBudget) -> None:
        self._rpc, self._asked, self._at = rpc, asked, header
        self._call, self._layouts = asked.call, Layouts(asked.call, asked.contract, budget.check_time)
        # Each node is asked the same, with the same caller: the call may read a slot of the caller.
        self._whole = ViewCall(asked.contract, asked.call.data, MOST_GAS)
        self._list = view_calls.access_list(self._whole, header)
        self._words: dict[Place, int] = {}
        self._base = 0
        self._decimals: int | None = None

    def run(self) -> SlotFindings:
        read = self._read_slots()
        self._words = self._proven(read)
        proxies = dict(self._proxies(read))
        candidates = [place for place in self._words if place not in proxies]
        parts = self._tried(candidates)
        values = {place: part for place, part in parts.items() if isinstance(part, Part)}
        changing = [place for place, part in parts.items() if part == "computed"]
        if not values and not changing:
            raise SlotsUnknown("None of the slots that the nodes name changes the call's answer.")
        others = [place for place, part in values.items() if part.answer(self._words[place]) != self._base]
        self._require_true(others)
        values = {place: part for place, part in values.items() if place not in others}
        unlike = self._unlike(values, [place for place, part in parts.items() if part == "path_only"])
        values = {place: part for place, part in values.items() if place not in unlike}
        changing += [*others, *unlike]
        names = self._names(values, changing)
        self._compare(values, names)
        arrays = [named for named in names.values() if named.length not in values]
        lengths = {named.length: named.name_of_length for named in arrays if named.length}
        # The length of an array leads to its last element.
        changing = [place for place in changing if place not in lengths]
        is_one = len(values) == 1 and not changing
        slots = [
            *(self._found(place, names, _certainty(part, is_one=is_one), part) for place, part in values.items()),
            *(self._found(place, names, "computed") for place in changing),
            *(
                self._found(place, names, "path_only")
                for place, part in parts.items()
                if part == "path_only" and place not in lengths and place not in unlike
            ),
        ]
        depends_on = [DependingSlot(*place, self._words[place], role) for place, role in proxies.items()]
        depends_on += [DependingSlot(*place, self._words[place], "length", name) for place, name in lengths.items()]
        return SlotFindings(self._at, read.method, slots, depends_on, self._decimals)

    # Slots that the call reads

    def _read_slots(self) -> ReadSlots:
        """Return the slots that the call reads. Note the call's answer, and that of `decimals()`."""
        decimals = ViewCall(self._asked.contract, FunctionCall.parse("decimals()", ()).data, MOST_GAS // 30)
        calls, lists = self._rpc.ask(
            [view_calls.answer(self._whole, self._at), view_calls.answer(decimals, self._at)], [self._list]
        )
        self._base = self._word_of(calls[0])
        told = calls[1] if isinstance(calls[1], bytes) and len(calls[1]) == _WORD else b""
        self._decimals = int.from_bytes(told) if told and int.from_bytes(told) < 256 else None
        read = lists[0]
        # Nodes may leave the callee out of a list that they call optimised.
        if not self._tells(read):
            is_refused = isinstance(read, RpcRefused)
            funded = [view_calls.access_list(self._whole, self._at, is_funded=True)] if is_refused else []
            (read,), others = self._rpc.ask([view_calls.prestate(self._whole, self._at)], funded)
            if isinstance(read, ChainError):
                read = next(filter(self._tells, others), read)
        if isinstance(read, NodeUnavailable) and not isinstance(read, InvalidReply):
            raise read
        if isinstance(read, ChainError) or not read.slots:
            raise SlotsUnknown(
                f"No node of {self._rpc.chain.label} says which slots the call reads: it reads none, or nodes serve "
                "neither eth_createAccessList nor debug_traceCall."
            )
        if (count := sum(map(len, read.slots.values()))) > _MOST_SLOTS:
            raise SlotsUnknown(f"The call reads {count} slots, and {_MOST_SLOTS} can be searched.")
        return read

    def _tells(self, read: ReadSlots | ChainError) -> bool:
        """Return whether a list tells of the called contract, which may read no slot of its own."""
        return isinstance(read, ReadSlots) and self._asked.contract in read.accounts

    def _word_of(self, answer: bytes | ChainError) -> int:
        if isinstance(answer, Reverted):
            secrets = [secret for url in self._rpc.chain.rpc_urls for secret in secrets_of(url)]
            reason = plain(_reason(answer.data), secrets)
            why = f": “{reason}”" if reason else ""
            raise CallFailed(f"{self._call.in_words} of {self._asked.contract} reverts{why}.")
        if isinstance(answer, RpcRefused) and not answer.may_pass:
            why = f"it fails, uses more than {MOST_GAS:,} gas, or nodes don't keep the block's state"
            raise CallFailed(f"No node of {self._rpc.chain.label} makes the call at block {self._at.number}: {why}.")
        data, position = result(answer), self._asked.position
        if not data:
            self._require_code()
        if position is None and len(data) != _WORD:
            what = "name a view function that returns one word, or the `position` of a word"
            raise CallFailed(f"The call answers {len(data)} bytes: {what}.")
        if len(data) > _MOST_BYTES:
            raise CallFailed(f"The call answers {len(data)} bytes, and {_MOST_BYTES} can be searched.")
        if len(data) < _WORD * ((position or 0) + 1):
            raise CallFailed(f"The call's answer has no word at position {position}.")
        return self._word_in(data) or 0

    def _require_code(self) -> None:
        """Raise `NoCode` if the contract has no code at the block."""
        contract, number = self._asked.contract, self._at.number
        code, newest = self._rpc.ask([questions.code(contract, number), questions.code(contract)])
        if code == b"":
            is_later = isinstance(newest, bytes) and newest
            what = "It has at the newest: name a later block" if is_later else "Check the address and the chain"
            raise NoCode(f"{contract} has no code at block {number} of {self._rpc.chain.label}. {what}.")

    def _word_in(self, data: bytes) -> int | None:
        start = _WORD * (self._asked.position or 0)
        return int.from_bytes(data[start : start + _WORD]) if len(data) >= start + _WORD else None

    def _proven(self, read: ReadSlots) -> dict[Place, int]:
        """Return the words of the slots by proofs, those of the called contract first."""
        at = self._at
        order = sorted(read.slots, key=lambda account: account != self._asked.contract)
        asked = [ProofRequest(at.number, at.hash, at.state_root, account, read.slots[account]) for account in order]
        proofs = self._rpc.proofs(asked)
        for request, refused in zip(asked, proofs, strict=True):
            if isinstance(refused, RpcRefused) and (
                reason := chain_watch.why_unproven(self._rpc, self._rpc.head(), request, refused)
            ):
                raise ProofUnavailable(reason)
        return {(proof.address, slot.slot): slot.value for proof in map(result, proofs) for slot in proof.slots}

    def _proxies(self, read: ReadSlots) -> Iterator[tuple[Place, str]]:
        """Yield the slots with addresses of contracts that the call runs, and their roles."""
        for (account, slot), word in self._words.items():
            address = checksummed(f"0x{word % (1 << 160):040x}")
            if word == self._base or not word:
                continue
            if slot in _PROXY_SLOTS:
                yield (account, slot), _PROXY_SLOTS[slot]
            elif _LEAST_ADDRESS <= word < 1 << 160 and address in read.accounts and address != account:
                yield (account, slot), "address_of_contract"

    # Trials

    def _answers(self, changes: Sequence[tuple[FunctionCall, Storage]]) -> list[int | None]:
        """Return the word that each call answers over changed storage. None: it fails."""
        if len(changes) > _MOST_TRIALS:
            return [*self._answers(changes[:_MOST_TRIALS]), *self._answers(changes[_MOST_TRIALS:])]
        gas = MOST_GAS // (len(changes) + 1)
        # It must answer as before with half of the gas, so that no trial fails for want of gas.
        control = ViewCall(self._asked.contract, self._call.data, gas // 2)
        trials_of_words = [(ViewCall(self._asked.contract, call.data, gas), changed) for call, changed in changes]
        told, *answers = self._rpc.ask(
            [view_calls.answer(call, self._at, changed) for call, changed in [(control, {}), *trials_of_words]]
        )
        for answer in (told, *answers):
            if isinstance(answer, NodeUnavailable):
                raise answer
        if not isinstance(told, bytes) or self._word_in(told) != self._base:
            raise SlotsUnknown(f"The call uses too much gas for {len(changes)} times, or answers differently.")
        if answers and all(isinstance(answer, ChainError) and not isinstance(answer, Reverted) for answer in answers):
            raise SlotsUnknown(f"No node of {self._rpc.chain.label} makes calls over changed storage.")
        return [self._word_in(answer) if isinstance(answer, bytes) else None for answer in answers]

    def _require_true(self, places: Sequence[Place]) -> None:
        """Raise `ChainUnavailable` if the call answers otherwise over the proven words: of another block."""
        told = self._over([{place: self._words[place]} for place in places]) if places else []
        if any(word != self._base for word in told):
            raise ChainUnavailable(f"A node's answer contradicts the proven slots of block {self._at.number}.")

    def _tried(self, candidates: Sequence[Place]) -> dict[Place, Part | Literal["computed", "path_only"]]:
        """Return how the answer follows from each slot."""
        words = [(place, word) for word in (trials.FIRST, trials.SECOND) for place in candidates]
        answers = dict(zip(words, self._over([{place: word} for place, word in words]), strict=True))
        parts: dict[Place, Part | Literal["computed", "path_only"]] = {}
        for place in candidates:
            first, second = answers[place, trials.FIRST], answers[place, trials.SECOND]
            part = None if first is None or second is None else trials.part_of(first, second)
            parts[place] = part or ("path_only" if first == second == self._base else "computed")
        same = [place for place in candidates if answers[place, trials.FIRST] == answers[place, trials.SECOND] == 1]
        if self._base in (0, 1) and same:
            parts.update(self._booleans(same))
        return parts

    def _over(self, changes: Sequence[Mapping[Place, int]]) -> list[int | None]:
        """Return the words that the call answers, each time with other words at some slots."""
        storages: list[dict[str, dict[int, int]]] = [{} for _ in changes]
        for storage, words in zip(storages, changes, strict=True):
            for (account, slot), word in words.items():
                storage.setdefault(account, {})[slot] = word
        return self._answers([(self._call, storage) for storage in storages])

    def _unlike(self, values: Mapping[Place, Part], quiet: Sequence[Place]) -> set[Place]:
        """Return the slots that are unlike they seem: further words show that the only value isn't one always.

        The `quiet` slots haven't changed the answer: their own words or an answer of 0 may have hidden it.
        """
        if len(values) != 1:
            return set()
        ((value, part),) = values.items()
        # Both trial words have bits set everywhere, and a word may be a switch of its own.
        low, high = 1 << part.offset, 1 << (part.offset + part.size - 1)
        own = (self._words[value] ^ low, low, high)
        tried: list[tuple[Place, dict[Place, int]]] = [(value, {value: word}) for word in own]
        for place in quiet:
            words = (*trials.OF_SWITCHES, self._words[place] ^ 1)
            tried += [(place, {value: trials.FIRST, place: word}) for word in words]
            tried.append((place, {value: 0, place: trials.FIRST}))
        answers = self._over([words for _, words in tried])
        # A call that reverts doesn't answer otherwise.
        return {
            place
            for (place, words), answer in zip(tried, answers, strict=True)
            if answer not in {None, part.answer(words[value])}
        }

    def _booleans(self, places: Sequence[Place]) -> dict[Place, Part | Literal["computed", "path_only"]]:
        """Return how an answer of 0 or 1 follows from slots that make it 1 with each trial word."""
        zeros = dict(zip(places, self._over([{place: 0} for place in places]), strict=True))
        told: dict[Place, Part | Literal["computed", "path_only"]] = {
            place: "path_only" if zero == self._base == 1 else "computed" for place, zero in zeros.items()
        }
        switches = [place for place, zero in zeros.items() if zero == 0]
        if len(switches) == 1:
            (place,) = switches
            ones = self._over([{place: 1 << 8 * byte} for byte in range(_WORD)])
            if sorted(ones, key=lambda one: one or 0) == [0] * (_WORD - 1) + [1]:
                told[place] = Part(8 * ones.index(1), 8, "bool")
        return told

    # Layouts

    def _storage_of(self, account: str) -> dict[int, int]:
        return {slot: word for (of, slot), word in self._words.items() if of == account}

    def _names(self, values: Mapping[Place, Part], changing: Sequence[Place]) -> dict[Place, "_Named"]:
        """Return the layouts of slots that other arguments confirm."""
        places = {**values, **dict.fromkeys(changing, Part())}
        named: dict[Place, _Named] = {}
        tried: list[tuple[Place, _Named]] = []
        for place, part in islice(places.items(), _MOST_NAMED):
            account, slot = place
            for path in islice(self._layouts.of(slot, part, self._storage_of(account)), _MOST_TRIED):
                candidate = self._named(account, path)
                if self._call.arguments or path.is_of_last:
                    tried.append((place, candidate))
                else:
                    named.setdefault(place, candidate)
        trial_pairs = [self._trial(place[0], candidate) for place, candidate in tried]
        answers = (
            self._answers([change for pair in trial_pairs for change in (pair.over, pair.before)]) if tried else []
        )
        for (place, candidate), answer, before in zip(tried, answers[::2], answers[1::2], strict=True):
            expected = answer
            if place in values:
                expected = candidate.path.part(self._call.made_up, values[place]).answer(trials.FIRST)
            if answer == expected != before:
                named.setdefault(place, candidate)
        return named

    def _trial(self, account: str, candidate: "_Named") -> "_Trial":
        """Return calls with other arguments that show whether a layout is right."""
        other, path, length = self._call.made_up, candidate.path, candidate.array_length + 1
        # Arguments may lead to a slot by the word of another slot. Then it isn't one that no argument leads to.
        storage = self._mirrored(turned=0 if path.arguments else 1)
        if path.of_length and (of_length := path.of_length.number(other, self._asked.contract)) is not None:
            # One element more: another one is the last, and another index is within the array.
            storage.setdefault(account, {})[of_length] = length
        slot = path.number(other, self._asked.contract, length)
        over = {**storage, account: {**storage.get(account, {}), slot or 0: trials.FIRST}}
        before = {**storage, account: {at: word for at, word in storage.get(account, {}).items() if at != slot}}
        return _Trial((other, over), (other, before))

    def _compare(self, values: Mapping[Place, Part], names: Mapping[Place, "_Named"]) -> None:
        """Ask each node, if there are several, what shows the values. Raises `ChainUnavailable` if one contradicts."""
        expected: list[tuple[FunctionCall, Storage, int]] = [(self._call, {}, self._base)]
        for place, part in values.items():
            account, slot = place
            expected.append((self._call, {account: {slot: trials.FIRST}}, part.answer(trials.FIRST)))
            if (named := names.get(place)) and self._call.arguments:
                of_others = named.path.part(self._call.made_up, part).answer(trials.FIRST)
                expected.append((*self._trial(account, named).over, of_others))
        contract, gas = self._asked.contract, MOST_GAS // len(expected)
        asked = [
            view_calls.answer(ViewCall(contract, call.data, gas), self._at, changed) for call, changed, _ in expected
        ]
        told: dict[str, list[Any]] = {}
        # Other nodes may be too slow to be compared.
        with suppress(OutOfExchanges):
            told = self._rpc.ask_each([*asked, self._list, questions.header(self._at.number)])
        for host, (*answers, read, header) in told.items():
            words = [self._word_in(answer) if isinstance(answer, bytes) else answer for answer in answers]
            is_other = any(
                word != right and (word is None or isinstance(word, int | Reverted))
                for word, (_, _, right) in zip(words, expected, strict=True)
            )
            is_other |= isinstance(header, Header) and header.hash != self._at.hash
            slots = read.slots if isinstance(read, ReadSlots) else {}
            if is_other or any((account, slot) not in self._words for account in slots for slot in slots[account]):
                raise ChainUnavailable(
                    f"The nodes of {self._rpc.chain.label} contradict each other, among them {host}."
                )

    def _named(self, account: str, path: Path) -> "_Named":
        contract, length = self._asked.contract, self._layouts.length(path, self._storage_of(account))
        of_length = path.of_length
        place = of_length.number(self._call, contract) if of_length else None
        return _Named(
            path,
            path.name(self._call, contract, length) if path.steps else None,
            length,
            None if place is None else (account, place),
            of_length.name(self._call, contract) if of_length and of_length.steps else None,
        )

    def _mirrored(self, *, turned: int) -> dict[str, dict[int, int]]:
        """Return the words that the call reads, with some bits turned, where it reads with other arguments."""
        storage: dict[str, dict[int, int]] = {}
        for (account, slot), word in self._words.items():
            for path in islice((path for path in self._layouts.known(slot) if path.arguments), 1):
                if (number := path.number(self._call.made_up, self._asked.contract)) is not None:
                    storage.setdefault(account, {})[number] = word ^ turned
        return storage

    def _found(
        self, place: Place, names: Mapping[Place, "_Named"], certainty: Certainty, part: Part | None = None
    ) -> FoundSlot:
        named = names.get(place)
        layout, name = (named.path.layout, named.name) if named else ("layout_unknown", None)
        is_of_last = named is not None and named.path.is_of_last
        return FoundSlot(*place, self._words[place], certainty, part, layout, name, is_of_last)


@dataclass(frozen=True)
class _Named:
    """A way to a slot, with the names that it gives."""

    path: Path
    name: NamedSlot | None
    array_length: int
    length: Place | None
    """The slot of the array's length."""
    name_of_length: NamedSlot | None


@dataclass(frozen=True)
class _Trial:
    """A call over a trial word at a slot, and the same without it."""

    over: tuple[FunctionCall, Storage]
    before: tuple[FunctionCall, Storage]


def _reason(revert: bytes) -> str:
    """Return the text of an `Error(string)`. Empty: it is another error."""
    if revert[:4] != _ERROR_OF_TEXT or int.from_bytes(revert[4:36]) != _WORD:
        return ""
    return revert[68 : 68 + int.from_bytes(revert[36:68])].decode(errors="replace")


def _certainty(part: Part, *, is_one: bool) -> Certainty:
    if not is_one:
        return "one_of_several"
    return "is_value" if part.is_whole else "part_of_word"
