"""The storage slot from which a view call answers, its layout, and how certain both are.

Words come by verified proofs. How an answer follows from a word is tried with other words in its place, and a layout
is tried with other arguments. So a node that lies may hide a slot, but its contradictions are found. The search never
tells more than nodes have shown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Literal

from batch_query_client.stated_words import TOKEN_CALLS
from chains.nodes.node_batches import ExchangeBudget, OutOfExchanges
from chains.nodes.node_errors import RpcRefused
from chains.nodes.questions import ProofRequest
from chains.nodes.rpc import RpcClient, result
from chains.nodes.view_calls import Place, ReadSlots, Storage
from chains.tries.header import Header
from proving import facts
from proving.reading import provable_blocks
from proving.reading.asking import ChainUnavailable, ProofUnavailable
from proving.slots.asked_call import AskedCall, SlotQuestion, SlotsUnknown
from proving.slots.layouts import Layouts, Path
from proving.slots.signatures import FunctionCall
from proving.slots.trials import FIRST, LOW_BITS, OF_SWITCHES, SECOND, SIZES, WordTrials
from queries.storage_layout import ALL, NamedSlot, Part

_WORD = 32
# Maximum guesses of the parts of words that are the answer.
_MOST_GUESSES = 3
# Maximum slots whose layouts are looked for, layouts of each that are tried, and slots whose regions are tried.
_MOST_NAMED, _MOST_TRIED, _MOST_UNCLEAR = 6, 4, 3
# Maximum slots that the call reads only over other words, rounds in which some lead to others, and words in a round.
_MOST_NEW, _MOST_ROUNDS, _MOST_OVER = 48, 3, 8

Certainty = Literal["is_value", "part_of_word", "one_of_several", "computed", "path_only"]
_NO_NAME: tuple[str, NamedSlot | None] = "layout_unknown", None
_PROXY_SLOTS = {
    0x360894A13BA1A3210667C828492DB98DCA3E2076CC3735A920A3CA505D382BBC: "eip1967_implementation",
    0xA3F0AD74E5423AEBFD80D3EF4346578335A9A72AEAEE59FF6CB3582B35133D50: "eip1967_beacon",
    0xB53127684A568B3173AE13B9F8A6016E243E63B6E8EE1178D6A717850B5D6103: "eip1967_admin",
}
# Numbers below are no addresses of proxies' code, but may be those of precompiled contracts.
_LEAST_ADDRESS = 1 << 64


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
    is_moving: bool
    """Other slots choose it by their words. So another slot may have the answer at another block."""


@dataclass(frozen=True)
class DependingSlot:
    """A slot of a proxy, or a slot whose word chooses that of the answer, such as an array's length."""

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
    symbol: str | None
    """The answer of `symbol()`, a hint: anybody can give a token any. None: there is none, or it isn't shown."""
    nft: Literal["ERC-721", "ERC-1155"] | None
    """The standard of NFTs that the contract says it follows (ERC-165), a hint."""
    confirmed_by: Sequence[str]
    """The hosts of the nodes that confirm all this. One: only this node says so."""


def find(rpc: RpcClient, asked: SlotQuestion, header: Header, budget: ExchangeBudget) -> SlotFindings:
    """Search for the slots behind a call, in the state of a block. The client has the budget, too.

    Raises `SlotsUnknown`, `CallFailed`, `ChainUnavailable` and `ChainError`.
    """
    try:
        return _Search(rpc, asked, header, budget).run()
    except OutOfExchanges as error:
        few = [f"{host} doesn't answer {size} questions at once" for host, size in rpc.refused_batches().items()]
        raise OutOfExchanges(f"{str(error).removesuffix('.')}: {'; '.join(few)}." if few else str(error)) from None


class _Search:
    def __init__(self, rpc: RpcClient, asked: SlotQuestion, header: Header, budget: ExchangeBudget) -> None:
        self._rpc, self._asked, self._at = rpc, asked, header
        self._call, self._layouts = asked.call, Layouts(asked.call, asked.contract, budget.check_time, asked.base)
        self._asking = AskedCall(rpc, asked, header, budget)
        self._base = self._asking.base
        self._known = [*asked.call.words, int(asked.contract, 16)]
        """Words that a contract may compare with others."""
        self._words: dict[Place, int] = {}
        self._trials: dict[Place, WordTrials] = {}

    def run(self) -> SlotFindings:
        for read in self._asking.reads(lambda: [*_PROXY_SLOTS, *self._layouts.guesses]):
            if found := self._search(read):
                return found
        raise SlotsUnknown(self._asking.why_unknown())

    def _search(self, read: ReadSlots) -> SlotFindings | None:
        """Return what these slots are to the answer. None: none of them changes it."""
        self._words.clear()
        self._trials.clear()
        self._prove(read.places)
        pointers = self._pointers(read)
        # A boolean that is true stays so over most words.
        self._turn({place: (FIRST, SECOND, of.word * (self._base == 1)) for place, of in self._trials.items()})
        # With another address of its code, a proxy fails. A contract that answers keeps another word at that slot.
        proxies = [place for place, of in self._trials.items() if place[1] in _PROXY_SLOTS and of.word]
        pointers = {place: 0 for place in proxies if {*self._trials[place].answers.values()} == {None}} | pointers
        for place in pointers:
            self._trials.pop(place, None)
        self._try_regions()
        values, unlike = self._values()
        # A slot with which the call only fails, such as a pause, makes it answer nothing else.
        others = (unlike if values else {}) | {
            place: {place: of.others[0]}
            for place, of in self._trials.items()
            if place not in values and not (of.only_fails if values else of.is_quiet)
        }
        is_timed = False
        if len(values) == 1 and not others.keys() - values.keys():
            further, is_timed = self._further(*values.items())
            others |= further
        choosing, moving = self._choosing(values, others)
        if not values and self._base == 0 and all(self._trials[place].only_fails for place in others):
            values = dict.fromkeys(self._empty(), Part())
            moving = {*values}
        changing = [place for place in others if place not in values]
        if not values and not changing:
            return None
        moving |= {*values} if is_timed else set()
        moving |= {place for place in (*values, *changing) if int(place[0], 16) in pointers.values()}
        switched = {
            place for place, part in values.items() if place not in moving and self._trials[place].is_switched(part)
        }
        values = {place: part for place, part in values.items() if place not in switched}
        changing = [*(place for place in changing if place not in choosing), *switched]
        paths = self._paths(values, [*changing, *choosing])
        named = {place: (path.layout, self._name(place[0], path)) for place, path in paths.items()}
        arrays = [(account, array) for (account, _), path in paths.items() if (array := path.of_length)]
        numbered = [(account, array, array.number(self._call, self._asked.contract) or 0) for account, array in arrays]
        lengths = {(account, at): self._name(account, array) for account, array, at in numbered}
        lengths = {place: name for place, name in lengths.items() if place not in values}
        leading = {place: named.get(place, _NO_NAME)[1] for place in choosing} | lengths
        changing = [place for place in changing if place not in leading]
        moving |= {place for place, path in paths.items() if path.is_of_last}
        claims: dict[Place, Certainty] = dict.fromkeys(values, "one_of_several")
        if len(values) == 1 and not changing:
            claims = {place: "is_value" if part.is_whole else "part_of_word" for place, part in values.items()}
        claims |= dict.fromkeys(changing, "computed")
        quiet = [place for place in self._trials if place not in {*claims, *leading}]
        pointers |= {place: 0 for place in quiet if place in proxies}
        claims |= dict.fromkeys([place for place in quiet if place not in pointers], "path_only")
        slots = [
            FoundSlot(
                *place, self._words[place], claim, values.get(place), *named.get(place, _NO_NAME), place in moving
            )
            for place, claim in claims.items()
        ]
        roles = {place: _PROXY_SLOTS.get(place[1], "address_of_contract") for place in pointers}
        roles |= dict.fromkeys(leading, "choice") | dict.fromkeys(lengths, "length")
        depends_on = [
            DependingSlot(*place, self._words[place], role, leading.get(place)) for place, role in roles.items()
        ]
        by_reads = bool(choosing or any(pointers.values()))
        asking, confirmed_by = self._asking, self._asking.confirming(by_reads=by_reads)
        # The search is complete, so that the symbol takes only exchanges that are left.
        symbol = asking.symbol() if self._call.signature in TOKEN_CALLS else None
        return SlotFindings(self._at, read.method, slots, depends_on, asking.decimals, symbol, asking.nft, confirmed_by)

    def _prove(self, places: Iterable[Place]) -> None:
        """Add the words of slots by proofs, those of the called contract first."""
        at = self._at
        slots: dict[str, list[int]] = {}
        for account, slot in sorted(places, key=lambda place: place[0] != self._asked.contract):
            slots.setdefault(account, []).append(slot)
        asked = [ProofRequest(at.number, at.hash, at.state_root, *of_one) for of_one in slots.items()]
        proofs = self._rpc.proofs(asked)
        for request, refused in zip(asked, proofs, strict=True):
            if isinstance(refused, RpcRefused):
                if reason := provable_blocks.why_unproven(self._rpc, self._rpc.head(), request, refused):
                    raise ProofUnavailable(reason)
                raise ChainUnavailable(refused.about(facts.proof_of(self._rpc.chain, request)))
        words = {(proof.address, slot.slot): slot.value for proof in map(result, proofs) for slot in proof.slots}
        self._words |= words
        self._trials |= {place: WordTrials(word, self._base) for place, word in words.items()}

    # Trials

    def _turn(self, turned: Mapping[Place, Iterable[int]], more: Sequence[Storage] = ()) -> None:
        """Try slots with these bits of their words turned, and `more` words in the same exchange.

        Raises `ChainUnavailable` if the call answers otherwise over the proven words: of another block.
        """
        if not (asked := [(place, bits) for place, many in turned.items() for bits in dict.fromkeys(many) if bits]):
            return
        turns = [{place: self._words[place] ^ bits} for place, bits in asked]
        unturned, *answers = self._asking.over([self._words, *turns, *more])
        if unturned not in {self._base, None}:
            raise ChainUnavailable(f"A node's answer contradicts the proven slots of block {self._at.number}.")
        for (place, bits), answer in zip(asked, answers, strict=False):
            self._trials[place].answers[bits] = answer

    def _pointers(self, read: ReadSlots) -> dict[Place, int]:
        """Return the slots that hold the address of a contract that the call runs, and the address.

        With another address there, the call fails or runs other code.
        """
        accounts = {int(account, 16) for account in read.accounts}
        pointers: dict[Place, int] = {}
        parts: dict[Place, Part] = {}
        for place, word in self._words.items():
            for part in (Part(at, 160) for at in range(97) if place[1] not in _PROXY_SLOTS):
                address = part.answer(word)
                is_other = (
                    address not in {int(place[0], 16), *(self._base >> at for at in (0, 96))} and word != self._base
                )
                if address >= _LEAST_ADDRESS and address in accounts and is_other:
                    parts[place] = part
        inside = {place: {bits & part.mask for bits in (FIRST, SECOND)} for place, part in parts.items()}
        beside = {
            place: {bits & ~part.mask for bits in (FIRST, SECOND, LOW_BITS, self._words[place])} - {0}
            for place, part in parts.items()
        }
        self._turn({place: inside[place] | beside[place] for place in parts})
        for place, part in parts.items():
            answers = self._trials[place].answers
            others = [self._words[place] ^ bits for bits in inside[place] if answers[bits] is not None]
            addresses = [f"{part.answer(word):040x}" for word in others]
            told, _ = self._asking.reads_over([{place: word} for word in others])
            ran = [of_node for read in told for of_node in zip(addresses, read, strict=True)]
            runs = all(address in str(read).lower() for address, read in ran) and bool(told or not others)
            if runs and all(answers[bits] in {None, self._base} for bits in beside[place]):
                pointers[place] = part.answer(self._words[place])
                del self._trials[place]
        return pointers

    def _try_regions(self) -> None:
        """Try bits in regions of slots' words where the answers aren't clear."""
        places = [place for place, of in self._trials.items() if not of.is_quiet]
        for _ in range(2):
            for size in SIZES:
                unclear = [place for place in places if not (of := self._trials[place]).is_clear and of.may_hold]
                self._turn({place: self._trials[place].regions(size) for place in unclear[:_MOST_UNCLEAR]})
            if self._base == 0 or any(of.part for of in self._trials.values()):
                break
            # Each pattern may lead to another slot with the same answer.
            places = [place for place, of in self._trials.items() if of.is_quiet]

    def _values(self) -> tuple[dict[Place, Part], dict[Place, dict[Place, int]]]:
        """Return the slots with the answer in a part of their words, and other words of slots that change it, too.

        More trials of these words, and of other slots, haven't contradicted it. A value's word, or an answer of 0, may
        have hidden the others.
        """
        values: dict[Place, Part] = {}
        unlike: dict[Place, dict[Place, int]] = {}
        for _ in range(_MOST_GUESSES):
            guessed = {place: part for place, of in self._trials.items() if (part := of.part)}
            if guessed == values:
                break
            values = guessed
            turned = {place: [*self._trials[place].further(part, self._known)] for place, part in values.items()}
            together = [*self._together(values)]
            self._turn(turned, [words for _, words in together])
            answers = self._asking.over([words for _, words in together])
            # A call that reverts doesn't answer otherwise.
            ways = [
                (place, {other: word for other, word in words.items() if other not in values})
                for (place, words), answer in zip(together, answers, strict=True)
                if answer not in {None, *(part.answer(words[value]) for value, part in values.items())}
            ]
            # The cause may be a word that changes the answer also alone.
            alone = {each for _, words in ways if len(words) == 1 for each in words.items()}
            unlike = {place: words for place, words in ways if len(words) == 1 or alone.isdisjoint(words.items())}
        return {place: part for place, part in values.items() if self._trials[place].holds(part)}, unlike

    def _together(self, values: Mapping[Place, Part]) -> Iterator[tuple[Place, dict[Place, int]]]:
        """Yield other words of slots that change nothing alone, each with another word of the only value."""
        if len(values) != 1:
            return
        ((value, part),) = values.items()
        shown, empty = self._trials[value].shown(part), self._words[value] & ~part.mask
        quiet = [place for place, of in self._trials.items() if place != value and of.is_quiet]
        singly, several = quiet[:_MOST_UNCLEAR], quiet if len(quiet) > 1 else []
        for place, of in self._trials.items():
            if place == value or not of.only_fails:
                continue
            words = [*OF_SWITCHES, *_beside(of.word)]
            if place in singly or not of.is_quiet:
                words += [*range(8), *self._known, *[*self._words.values()][:_MOST_TRIED]]
            yield from ((place, {value: shown, place: word}) for word in dict.fromkeys(words))
            # The word may set bits that are set in the other one anyway.
            yield from ((place, {value: empty, place: word}) for word in (FIRST, SECOND))
            if place in singly:
                # The value may count without the other word only as long as it is large, or other than the other word.
                yield from ((place, {value: word, place: 0}) for word in (self._words[value], empty | 1 << part.offset))
            elif not of.is_quiet:
                # An index of an array may fail because the array is short.
                long = {value: shown, **dict.fromkeys(quiet, FIRST)}
                yield from ((place, {**long, place: word}) for word in (0, 1, *_beside(of.word)))
        for word in range(8 if quiet[_MOST_UNCLEAR:] else 0):
            yield quiet[-1], {value: shown, **dict.fromkeys(quiet[_MOST_UNCLEAR:], word)}
        for words_of_several in _alike_and_unlike(several):
            yield quiet[0], {value: shown, **words_of_several}
        for word in (shown ^ part.mask, self._words[value]) if several else ():
            yield quiet[0], {value: word, **dict.fromkeys(several, 0)}

    def _further(self, only: tuple[Place, Part]) -> tuple[dict[Place, dict[Place, int]], bool]:
        """Return words of slots that change the only value, and that the call reads only over other words than now.

        Those words are the value's, or of a slot that changes nothing alone. Return also whether the call answers
        otherwise at a later block.
        """
        value, part = only
        of, is_timed = self._trials[value], False
        shown = of.shown(part)
        later = [{value: shown}]
        over = [{value: word} for word in dict.fromkeys((shown, of.word & ~part.mask)) if word != of.word]
        quiet = [place for place, of_other in self._trials.items() if place != value and of_other.is_quiet]
        over += [{value: shown, place: word} for place, word in product(quiet[:_MOST_UNCLEAR], (1, FIRST))]
        for _ in range(_MOST_ROUNDS):
            reads, told = self._asking.reads_over(over, later)
            is_timed |= not told <= {None, part.answer(shown)}
            found = [
                (words, new)
                for of_node in reads
                for words, read in zip(over, of_node, strict=True)
                if read and (new := [place for place in read.places if place not in {*self._words, *words}][:_MOST_NEW])
            ]
            tried = [
                {**words, **dict.fromkeys(group, word)}
                for words, new in found
                for group in (new[:1], new)
                for word in (0, 1, FIRST, *self._known)
            ]
            for words, answer in zip(tried, self._asking.over(tried), strict=True):
                if answer not in {None, part.answer(words.get(value, of.word))}:
                    others = {place: word for place, word in words.items() if place not in self._words}
                    self._prove(others)
                    return dict.fromkeys(others, others), is_timed
            # Over words of these slots, the call may read others, unless a node tells a whole storage.
            found = [(words, new) for words, new in found if len(new) < _MOST_NEW]
            over = [{**words, **dict.fromkeys(new, word)} for words, new in found for word in (1, FIRST)][:_MOST_OVER]
            later = []
        return {}, is_timed

    # Slots that other slots choose

    def _choosing(
        self, values: Mapping[Place, Part], others: Mapping[Place, Mapping[Place, int]]
    ) -> tuple[list[Place], set[Place]]:
        """Return the slots whose words choose which other slots the call reads, and the chosen slots.

        `others` has another word of each other slot that changes the answer, with those of the slots that it takes.

        Over several other words, the call reads several other slots instead. A switch leads to one at most.
        """
        targets = [*dict.fromkeys([*values, *others])]
        leading = [place for place, of in self._trials.items() if place in targets or not of.is_quiet]
        if not leading or len({*leading, *targets}) < 2:
            return [], set()
        told = self._read_over_others(leading)
        chosen: dict[Place, set[Place]] = {}
        for place, target in product(leading, targets):
            # One node alone may invent such slots.
            if place != target and told and all(self._leads_away(read[place], target) for read in told):
                chosen.setdefault(place, set()).add(target)
        moving = {target for targets in chosen.values() for target in targets}
        choosing = {*chosen}
        if len(values) == 1 and chosen:
            # Over words that lead away from the value, its word doesn't matter. With a summand's other word, it does.
            ((value, part),) = values.items()
            shown = self._trials[value].shown(part)
            away = [
                (place, {place: word}) for place in chosen for word, read in told[0][place].items() if value not in read
            ]
            # An element on the way, such as a checkpoint, leads away, too.
            elements = [(place, words) for place, words in others.items() if place in moving and moving > {value}]
            ways = [words for _, words in (*away, *elements)]
            answers = self._asking.over([*ways, *({**way, value: shown} for way in ways)])
            same = [before == after for before, after in zip(answers[: len(ways)], answers[len(ways) :], strict=True)]
            choosing = {place for place, _ in away} - {
                place for (place, _), is_same in zip(away, same, strict=False) if not is_same
            }
            moving = {target for place in choosing for target in chosen[place]}
            on_the_way = zip(elements, same[len(away) :], strict=True)
            choosing |= {place for (_, words), is_same in on_the_way if is_same and moving for place in words}
        return [place for place in leading if place in choosing and place not in values], moving

    def _leads_away(self, read: Mapping[int, frozenset[Place]], target: Place) -> bool:
        """Return whether the call reads several other slots instead of a target, each over another word."""
        return len({each - {*self._words} for each in read.values() if target not in each} - {frozenset()}) > 1

    def _read_over_others(self, places: Sequence[Place]) -> Sequence[Mapping[Place, Mapping[int, frozenset[Place]]]]:
        """Return which slots the call reads with other words at some slots, each by the word, as each node tells."""
        asked = [
            (place, word)
            for place in places
            for word in dict.fromkeys([*self._trials[place].others[:2], *_beside(self._words[place])])
        ]
        reads, _ = self._asking.reads_over([{place: word} for place, word in asked])
        return [
            {
                place: {
                    word: frozenset(read.places)
                    for (of, word), read in zip(asked, of_node, strict=True)
                    if read and of == place
                }
                for place in places
            }
            for of_node in reads
        ]

    def _empty(self) -> list[Place]:
        """Return the slot whose word 0 makes the call answer 0 without another slot, if it is one.

        Over other words, such as an array's length, the call answers from slots that it doesn't read now.
        """
        empty = [place for place, of in self._trials.items() if of.word == 0]
        self._turn({place: (LOW_BITS, 1, of.word) for place, of in self._trials.items()})
        if not empty or not all(of.only_fails for of in self._trials.values()):
            return []
        tried = [
            (place, {place: word, other: plant})
            for of_node in self._read_over_others(empty)
            for place, read in of_node.items()
            for word, places in read.items()
            for other in sorted(places - {*self._words})[:_MOST_TRIED]
            for plant in (FIRST, FIRST << 64 & ALL, FIRST << 128 & ALL, FIRST >> 130)
        ]
        answers = self._asking.over([words for _, words in tried])
        found = {place for (place, _), answer in zip(tried, answers, strict=True) if answer not in {0, None}}
        others = [place for place in self._trials if place not in found]
        told = self._asking.over([*_alike_and_unlike(others)])
        return [*found] if len(found) == 1 and {*told} <= {0, None} else []

    # Layouts

    def _storage_of(self, account: str) -> dict[int, int]:
        return {slot: word for (of, slot), word in self._words.items() if of == account}

    def _paths(self, values: Mapping[Place, Part], changing: Sequence[Place]) -> dict[Place, Path]:
        """Return the ways to slots that other arguments confirm."""
        parts = {**values, **dict.fromkeys(changing, Part())}
        tried = [
            (place, path)
            for place, part in islice(parts.items(), _MOST_NAMED)
            for path in islice(self._layouts.of(place[1], part, self._storage_of(place[0])), _MOST_TRIED)
        ]
        words = {place: self._trials[place].shown(part) for place, part in values.items()}
        pairs = [self._with_and_without(place[0], path, words.get(place, FIRST)) for place, path in tried]
        answers = self._asking.answers([change for pair in pairs for change in pair])
        confirmed: dict[Place, Path] = {}
        for (place, path), answer, before in zip(tried, answers[::2], answers[1::2], strict=True):
            expected = answer
            if place in values:
                expected = path.part(self._call.made_up, values[place]).answer(words[place])
            # No other arguments lead to another slot if there are none.
            if answer == expected != before or not (self._call.arguments or path.is_of_last):
                confirmed.setdefault(place, path)
        return confirmed

    def _with_and_without(self, account: str, path: Path, word: int) -> Sequence[tuple[FunctionCall, Storage]]:
        """Return calls with other arguments, with and without a word at a slot, that show if a layout is right."""
        other, length = self._call.made_up, self._layouts.length(path, self._storage_of(account)) + 1
        # Arguments may lead to a slot by the word of another slot. Then it isn't one that no argument leads to.
        storage = self._mirrored(turned=0 if path.arguments else 1)
        if path.of_length and (of_length := path.of_length.number(other, self._asked.contract)) is not None:
            # One element more: another one is the last, and another index is within the array.
            storage[account, of_length] = length
        at = account, path.number(other, self._asked.contract, length) or 0
        without = {place: word for place, word in storage.items() if place != at}
        return (other, {**without, at: word}), (other, without)

    def _name(self, account: str, path: Path) -> NamedSlot | None:
        length = self._layouts.length(path, self._storage_of(account))
        return path.name(self._call, self._asked.contract, length) if path.steps else None

    def _mirrored(self, *, turned: int) -> dict[Place, int]:
        """Return the words that the call reads, with some bits turned, where it reads with other arguments."""
        storage: dict[Place, int] = {}
        for (account, slot), word in self._words.items():
            for path in islice((path for path in self._layouts.known(slot) if path.arguments), 1):
                if (number := path.number(self._call.made_up, self._asked.contract)) is not None:
                    storage[account, number] = word ^ turned
        return storage


def _beside(word: int) -> Sequence[int]:
    """Return the numbers before and after a word's."""
    return (word + 1) & ALL, (word - 1) & ALL


def _alike_and_unlike(places: Sequence[Place]) -> Iterator[dict[Place, int]]:
    """Yield words of slots together: the same in all of them, different ones, and another one in one of them."""
    if places:
        yield from (dict.fromkeys(places, word) for word in (0, 1, FIRST, SECOND))
        yield {place: FIRST ^ number for number, place in enumerate(places)}
    if len(places) > 1:
        for place, (all_others, of_one) in product(places[:_MOST_TRIED], [(0, FIRST), (FIRST, 0)]):
            yield {**dict.fromkeys(places, all_others), place: of_one}
