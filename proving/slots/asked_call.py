"""A view call as nodes answer it: its answer, the slots that it reads, and its answers over other words in them.

A node may lie about each of these. Therefore every node that answers is asked for the slots, and repeats each trial:
what one node alone says is marked so.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from batch_query_client.stated_words import SYMBOL
from chains.nodes import questions, view_calls
from chains.nodes.chain_nodes import Question
from chains.nodes.node_batches import ExchangeBudget, ReplyTooLong
from chains.nodes.node_errors import ChainError, NodeUnavailable, Reverted, RpcRefused, plain, secrets_of
from chains.nodes.rpc import RpcClient, result
from chains.nodes.view_calls import Place, ReadSlots, Storage, ViewCall
from chains.prices import MAX_EXECUTION
from chains.tries.header import Header
from config.error_answers import Refused
from proving.reading import provable_blocks
from proving.reading.asking import ChainUnavailable
from proving.slots import trials
from proving.slots.signatures import FunctionCall

# Gas of an execution where a node refuses `MAX_EXECUTION`, and the most that most calls need.
_LESS_GAS, _LITTLE_GAS = 3_000_000, 100_000
# Maximum trials of an exchange, and gas for all of them.
_MOST_TRIALS, _MOST_GAS_OF_TRIALS = 48, 30_000_000
# Maximum slots that a call may read.
_MOST_SLOTS = 48
# Maximum bytes of the call's answer.
_MOST_BYTES = 16 * 1024
_WORD = 32
# Standards of NFTs by their interfaces (ERC-165).
_NFTS: dict[str, Literal["ERC-721", "ERC-1155"]] = {"0x80ac58cd": "ERC-721", "0xd9b67a26": "ERC-1155"}


@dataclass(frozen=True)
class SlotQuestion:
    """A view call of a contract, and the word of its answer that a slot is looked for."""

    contract: str
    call: FunctionCall
    position: int | None = None
    """The place of the word. None: the answer is one word."""
    base: int | None = None
    """The slot of a variable, a namespace or a seed from which the sender says that the layout begins."""


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


class AskedCall:
    def __init__(self, rpc: RpcClient, asked: SlotQuestion, at: Header, budget: ExchangeBudget) -> None:
        """Ask for the call's answer. Raises `SlotsUnknown`, `CallFailed` and `ChainError`."""
        self._rpc, self._asked, self._at, self._budget = rpc, asked, at, budget
        self._trials: dict[tuple[FunctionCall, frozenset[tuple[Place, int]]], tuple[ViewCall, int | None]] = {}
        """The trials by the call and the changed words, with the call as it was made last, and its answer."""
        self._told: dict[str, ReadSlots | ChainError] = {}
        """The answer of each node to the question for slots, by its host."""
        self._telling_over: set[str] = set()
        """The nodes that tell the slots that the call reads over changed storage, by their hosts."""
        self._listed: set[Place] = set()
        """The slots of the lists that the search uses."""
        self._is_guessed = False
        """True if no node tells the slots, so that each can only repeat the trials."""
        self._gas, much, little_gas = MAX_EXECUTION, self._question(MAX_EXECUTION), self._question(_LITTLE_GAS)
        first, little, decimals = rpc.ask([much, little_gas, self._hint("decimals()")])
        if _is_refusal(first):
            # A node may refuse so much gas.
            (less,) = rpc.ask([self._question(_LESS_GAS)])
            answers = {_LESS_GAS: less, _LITTLE_GAS: little, MAX_EXECUTION: first}
            self._gas = next((gas for gas, each in answers.items() if not _is_refusal(each)), MAX_EXECUTION)
            first = answers[self._gas]
        told = decimals if isinstance(decimals, bytes) and len(decimals) == _WORD else b""
        nfts = _NFTS if asked.call.signature == "balanceOf(address)" else {}
        supports = rpc.ask([self._hint("supportsInterface(bytes4)", each) for each in nfts]) if nfts else []
        named = zip(nfts.values(), supports, strict=True)
        self.nft = next((name for name, word in named if word == (1).to_bytes(_WORD)), None)
        # Some contracts of NFTs have decimals, but a balance is a number of NFTs.
        self.decimals = int.from_bytes(told) if told and int.from_bytes(told) < 256 and not self.nft else None
        self.base = self._base_of(first)
        """The word that the call answers."""
        self._takes_little = isinstance(little, bytes)
        if isinstance(little, bytes) and self._word_in(little) != self.base:
            raise SlotsUnknown(f"The call answers otherwise with {_LITTLE_GAS:,} gas.")

    # The answer

    def _question(self, gas: int) -> Question[bytes]:
        return view_calls.answer(ViewCall(self._asked.contract, self._asked.call.data, gas), self._at)

    def _hint(self, signature: str, *arguments: str) -> Question[bytes]:
        data = FunctionCall.parse(signature, arguments).data
        return view_calls.answer(ViewCall(self._asked.contract, data, _LITTLE_GAS), self._at)

    def symbol(self) -> str | None:
        """Return the answer of `symbol()`, text or 32 bytes, a hint. None: it isn't shown, or no exchange is left."""
        try:
            (told,) = self._rpc.ask([self._hint("symbol()")])
        except ChainError:
            return None
        data = told if isinstance(told, bytes) else b""
        start = int.from_bytes(data[:_WORD])
        content, size = data[start + _WORD :], int.from_bytes(data[start : start + _WORD])
        text = (data.rstrip(b"\0") if len(data) == _WORD else content[:size]).decode(errors="replace")
        return text if re.fullmatch(SYMBOL, text) else None

    def _base_of(self, answer: bytes | ChainError) -> int:
        call, contract = self._asked.call, self._asked.contract
        if isinstance(answer, Reverted):
            secrets = [secret for url in self._rpc.chain.rpc_urls for secret in secrets_of(url)]
            reason = plain(answer.reason, secrets)
            why = f": “{reason}”" if reason else ""
            nft = f" The contract says that it is one of NFTs ({self.nft})." if self.nft else ""
            raise CallFailed(f"{call.in_words} of {contract} reverts{why}.{nft}{'' if reason else self._cap()}")
        if _is_refusal(answer):
            why = f"it fails, uses more than {MAX_EXECUTION:,} gas, or nodes don't keep the block's state"
            number = self._at.number
            raise CallFailed(
                f"No node of {self._rpc.chain.label} makes the call at block {number}: {why}.{self._cap()}"
            )
        most = f", and {_MOST_BYTES} can be searched."
        if isinstance(answer, ReplyTooLong):
            raise CallFailed(f"The call answers more than 64 KiB{most}")
        data, position = result(answer), self._asked.position
        if not data:
            self._require_code()
        if position is None and len(data) != _WORD:
            what = "name a view function that returns one word, or the `position` of a word"
            raise CallFailed(f"The call answers {len(data)} bytes: {what}.")
        if len(data) > _MOST_BYTES:
            raise CallFailed(f"The call answers {len(data)} bytes{most}")
        if len(data) < _WORD * ((position or 0) + 1):
            raise CallFailed(f"The call's answer has no word at position {position}.")
        word = self._word_in(data) or 0
        try:
            call.text(word)
        except ValueError as why:
            raise CallFailed(str(why)) from None
        return word

    def _cap(self) -> str:
        """Return a sentence about the gas of calls if nodes give less than was asked for. Empty: they don't."""
        levels = (MAX_EXECUTION, _LESS_GAS, _LITTLE_GAS)
        told = self._rpc.ask([view_calls.given_gas(gas, self._at) for gas in levels])
        given = max([gas for gas in told if isinstance(gas, int)], default=MAX_EXECUTION)
        return (
            "" if given >= MAX_EXECUTION else f" A node of {self._rpc.chain.label} gives a call {given:,} gas at most."
        )

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

    def _word_of(self, answer: object) -> int | None:
        """Return the word in an answer. None: the call fails."""
        return self._word_in(answer) if isinstance(answer, bytes) else None

    # The slots

    def reads(self, guesses: Callable[[], Sequence[int]]) -> Iterator[ReadSlots]:
        """Yield slots that the call may read: as nodes tell them, then those `guesses` that change the answer."""
        call = ViewCall(self._asked.contract, self._asked.call.data, self._gas)
        # Nodes may leave the callee out of a list that they call optimised.
        self._told = self._rpc.first_of_each(
            view_calls.reads(call, self._at, provable_blocks.accounts_with_ether()), self._tells
        )
        self._telling_over = {*self._told}
        lists = [read for read in self._told.values() if isinstance(read, ReadSlots) and self._tells(read)]
        contract = self._asked.contract
        if lists:
            # One node's long list keeps no other node's from being used.
            read = view_calls.together([each for each in lists if len(each.places) <= _MOST_SLOTS] or lists)
            self._listed = {*read.places}
            if len(read.places) > _MOST_SLOTS:
                read = self._narrowed(read)
            if read.method == view_calls.TRACE:
                # A tracer may leave out slots that are 0.
                others = [(contract, slot) for slot in guesses() if (contract, slot) not in read.places]
                read = view_calls.together([read, self._narrowed(replace(read, places=others))])
            if read.places:
                yield read
        self._is_guessed = True
        places = [(contract, slot) for slot in guesses()]
        try:
            guessed = self._narrowed(ReadSlots(places, frozenset({contract}), "eth_call"))
        except SlotsUnknown as unknown:
            raise SlotsUnknown(f"{self._why_no_list} {unknown.sentence}") from None
        if guessed.places:
            yield guessed

    def _tells(self, read: object) -> bool:
        return view_calls.tells(read, self._asked.contract)

    def _narrowed(self, read: ReadSlots) -> ReadSlots:
        """Return those of many slots that change the answer, by trials of ever smaller groups."""
        places = read.places
        size = len(places)
        while places and size > 1:
            size = -(-len(places) * len(trials.OF_SWITCHES) // _MOST_TRIALS)
            groups = [places[start : start + size] for start in range(0, len(places), size)]
            tried = [dict.fromkeys(group, word) for group in groups for word in trials.OF_SWITCHES]
            answers = iter(self.over(tried))
            changing = [group for group in groups if {next(answers) for _ in trials.OF_SWITCHES} != {self.base}]
            if size > 1 and len(changing) == len(groups):
                raise SlotsUnknown(f"The call reads {len(places)} slots, and {_MOST_SLOTS} can be searched.")
            places = [place for group in changing for place in group]
        return replace(read, places=places)

    def why_unknown(self) -> str:
        """Return sentences why no slot was found."""
        why = "No slot of a known layout changes the call's answer either."
        return f"{self._why_no_list} {why if self._changes_storage() else 'Nodes change no storage for a trial.'}"

    def _changes_storage(self) -> bool:
        (given,) = self._rpc.ask([view_calls.given_gas(MAX_EXECUTION, self._at)])
        return isinstance(given, int)

    @property
    def _why_no_list(self) -> str:
        if any(map(self._tells, self._told.values())):
            return "None of the slots that the nodes name changes the call's answer."
        refusals = [each for each in self._told.values() if isinstance(each, RpcRefused)]
        why = "".join(f" {refused.about(view_calls.ACCESS_LIST)}" for refused in refusals)
        return f"No node of {self._rpc.chain.label} says which slots the call reads.{why}"

    # Trials

    def answers(self, changes: Sequence[tuple[FunctionCall, Storage]]) -> list[int | None]:
        """Return the word that each call answers over changed storage. None: it fails.

        Each runs once more with little gas, if the call needs no more: a contract that knows trials by their gas is
        found out.
        """
        keys = [(call, frozenset(words.items())) for call, words in changes]
        new = [*dict.fromkeys(key for key in keys if key not in self._trials)]
        for start in range(0, len(new), _MOST_TRIALS):
            self._try(new[start : start + _MOST_TRIALS])
        return [self._trials[key][1] for key in keys]

    def _try(self, keys: Sequence[tuple[FunctionCall, frozenset[tuple[Place, int]]]]) -> None:
        gas = min(self._gas, _MOST_GAS_OF_TRIALS // (len(keys) + 1))
        tried = [(ViewCall(self._asked.contract, call.data, gas), dict(words)) for call, words in keys]
        repeated = [(replace(call, gas=_LITTLE_GAS), words) for call, words in tried if self._takes_little]
        # It must answer as before with half of the gas, so that no trial fails for want of gas.
        controls = [self._question(_LITTLE_GAS if self._takes_little else gas // 2)]
        (control,), told, told_again = self._rpc.ask(
            controls,
            [view_calls.answer(call, self._at, words) for call, words in tried],
            [view_calls.answer(call, self._at, words) for call, words in repeated],
        )
        for answer in (control, *told, *told_again):
            if isinstance(answer, NodeUnavailable) and _is_silence(answer):
                raise answer
        if not isinstance(control, bytes) or self._word_in(control) != self.base:
            cap = self._cap()
            raise SlotsUnknown(f"The call uses too much gas for {len(keys)} times, or answers differently.{cap}")
        if all(type(answer) is RpcRefused for answer in told) and not self._changes_storage():
            raise SlotsUnknown(f"No node of {self._rpc.chain.label} makes calls over changed storage.")
        for place, (key, (call, _), answer) in enumerate(zip(keys, tried, told, strict=True)):
            word = self._word_of(answer)
            again = told_again[place] if repeated else None
            if isinstance(again, bytes) and self._word_in(again) != word:
                raise SlotsUnknown("The call answers otherwise with less gas.")
            self._trials[key] = (repeated[place][0] if isinstance(again, bytes) else call), word

    def over(self, changes: Sequence[Storage]) -> list[int | None]:
        """Return the words that the call answers, each time with other words at some slots."""
        return self.answers([(self._asked.call, words) for words in changes])

    def reads_over(
        self, changes: Sequence[Storage], later: Sequence[Storage] = ()
    ) -> tuple[Sequence[Sequence[ReadSlots | None]], set[int | None]]:
        """Return the slots that the call reads, each time with other words at some slots, by each node that tells.

        None: this node doesn't tell. Return the words too that the call answers at a later block with the words of
        `later`, as any node says.
        """
        changes = [] if self._is_guessed else changes
        if not changes and not later:
            return [], set()
        gas = min(self._gas, _MOST_GAS_OF_TRIALS // (len(changes) + 1))
        call = ViewCall(self._asked.contract, self._asked.call.data, gas)
        timed = [view_calls.answer_later(call, self._at, words) for words in later]
        # A node that tells slots by a list may change storage only for a trace.
        by_list = {host: isinstance(read, ReadSlots) and read.takes_changes for host, read in self._told.items()}
        told: dict[str, Sequence[Any]] = {}
        for form in {*by_list.values()}:
            asked = [view_calls.reads_over(call, self._at, words, by_list=form) for words in changes]
            told |= {host: of for host, of in self._of_each([*timed, *asked]).items() if by_list.get(host) == form}
        answers = {self._word_of(answer) for of_node in told.values() for answer in of_node[: len(timed)]}
        reads = {host: of[len(timed) :] for host, of in told.items() if isinstance(of[-1], ReadSlots)}
        self._telling_over &= reads.keys() if changes else told.keys()
        return [[each if isinstance(each, ReadSlots) else None for each in read] for read in reads.values()], answers

    def _of_each(self, questions: Sequence[Question[Any]]) -> Mapping[str, Sequence[Any]]:
        """Return the answers of each node, by its host."""
        return self._rpc.ask_each(questions) or {host: self._rpc.ask(questions) for host in [*self._told][:1]}

    def confirming(self, *, by_reads: bool) -> Sequence[str]:
        """Return the hosts of the nodes that confirm everything: the block, the slots, and each trial.

        `by_reads`: the slots that the call reads over changed storage count, too.

        Raises `ChainUnavailable` if a node contradicts, and if none confirms.
        """
        if len(self._told) < 2:
            return [*self._told] or self._rpc.chain.hosts[:1]
        asked = [view_calls.answer(call, self._at, dict(words)) for (_, words), (call, _) in self._trials.items()]
        told = self._rpc.ask_each([questions.header(self._at.number), self._question(self._gas), *asked])
        # A node may leave the others no time to contradict.
        self._budget.check_time()
        confirming = [
            host
            for host, (header, *answers) in told.items()
            if self._confirms(host, header, answers)
            # Another node may read further slots. If no node tells slots over changed storage, all are alike.
            and (host in self._telling_over or not (by_reads or self._telling_over))
        ]
        if not confirming:
            raise ChainUnavailable(f"No node of {self._rpc.chain.label} answers long enough to confirm the slots.")
        return confirming

    def _confirms(self, host: str, header: object, answers: Sequence[object]) -> bool:
        """Return whether a node confirms the block and all answers. Raises `ChainUnavailable` if it contradicts."""
        label = self._rpc.chain.label
        contradicts = ChainUnavailable(f"The nodes of {label} contradict each other, among them {host}.")
        if isinstance(header, Header) and header.hash != self._at.hash:
            raise contradicts
        if header is None:
            raise ChainUnavailable(f"{host} doesn't have block {self._at.number} of {label} yet.")
        # It may lack the block's state.
        if type(answers[0]) is RpcRefused or any(map(_is_silence, (header, *answers))):
            return False
        words = [*map(self._word_of, answers)]
        # Some nodes change no storage.
        changes_storage = not all(type(answer) is RpcRefused for answer in answers[1:])
        right = [self.base, *(word for _, word in self._trials.values())]
        is_same = words == right if changes_storage else words[0] == self.base
        if not is_same:
            raise contradicts
        if self._is_guessed or not changes_storage:
            return changes_storage
        read = self._told.get(host)
        # A list that was too long to use may have other slots.
        return isinstance(read, ReadSlots) and self._tells(read) and self._listed.issuperset(read.places)


def _is_silence(answer: object) -> bool:
    # A longer answer is the contract's.
    return isinstance(answer, NodeUnavailable) and not isinstance(answer, ReplyTooLong)


def _is_refusal(answer: object) -> bool:
    """Return whether a node refuses, and does so again."""
    return type(answer) is RpcRefused and not answer.may_pass
