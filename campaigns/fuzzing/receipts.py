"""Proofs of receipts, logs and transactions, genuine ones and spoilt ones, under headers of the attacker's making.

The registry and its model run them. A reader that shares no code with either looks up each fact that became
readable, from the header's root in the nodes that were hashed. Some headers have the block's own roots. The others have
the root that operations end in if nothing is refused, so that a registry without a check takes what only it refuses.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import rlp
from eth_utils.crypto import keccak

from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.judge import NotSo, selector, word
from campaigns.fuzzing.memory import WatchedReader
from campaigns.fuzzing.sequences import Model
from campaigns.fuzzing.sequences import _answers as answers_of
from campaigns.fuzzing.tally import Divergence, Tally, sentence
from campaigns.fuzzing.unchecked import without_checks
from campaigns.fuzzing.walker import Branch, Extension, NotShown, Odd, Walker, split, string
from chains.contract_artifacts import NO_CONTRACT, Artifact
from chains.encoding import HISTORY_WINDOW, shortest
from chains.tries.packed import (
    ABSENT_TRANSACTION,
    AT_EMPTY,
    AT_LEAF,
    AT_SAME,
    RECEIPT_FIELDS,
    RECEIPT_FIELDS_AND_LOGS,
    RECEIPT_LOGS,
    RECEIPTS,
    TRANSACTION,
    TRANSACTIONS,
)
from chains.tries.packed_entries import encode_receipts, encode_transactions, log_marks
from devnet.devchain import DevChain
from tests.contracts import decoder, tries
from tests.contracts.blocks import TYPES, Block, Log, bloom, random_block, random_log
from tests.contracts.decoder import InvalidPacked, TransactionFacts, _TransactionDecoder
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Simulator
from tests.contracts.simulator import Outcome as Called
from tests.contracts.worlds import mutate

_BATCH = 60
_SIZES = (0, 1, 1, 2, 3, 16, 17, 33, 129, 130, 145)
_HARNESS = "test/TransactionHarness"
_EXISTS = 4
_READ_RECEIPT = selector("tryReceiptField(uint256,uint32,uint8)")
_READ_LOG = selector("tryLogHash(uint256,uint32,uint32)")
_READ_HASH = selector("tryTransactionHash(uint256,uint32)")
_RECEIPT_PROVEN = keccak(text="ReceiptProven(uint256,uint256)")
_LOG_PROVEN = keccak(text="LogProven(uint256,uint256,uint256)")
_TRANSACTION_PROVEN = keccak(text="TransactionProven(uint256,uint256)")


class Fact(NamedTuple):
    """A fact to read: a field of a receipt, a log or a transaction's hash, by the indexes in `words`."""

    read: bytes
    words: tuple[int, ...]

    def calldata(self) -> bytes:
        return self.read + b"".join(map(word, self.words))


def _receipt(number: int, index: int) -> list[Fact]:
    return [Fact(_READ_RECEIPT, (number, index, field)) for field in range(5)]


def _logged(outcome: Called) -> Iterator[Fact]:
    """Yield the facts of events; all fields of a receipt, even if it has no status or doesn't exist."""
    for log in outcome.logs:
        event, *topics = log.topics
        numbers = tuple(map(int.from_bytes, topics))
        if event == _RECEIPT_PROVEN:
            yield from _receipt(*numbers)
        elif event in {_LOG_PROVEN, _TRANSACTION_PROVEN}:
            yield Fact(_READ_LOG if event == _LOG_PROVEN else _READ_HASH, numbers)
        else:
            raise NotSo(f"There is an event of another kind: {event.hex()}")


def _claimed(number: int, facts: TransactionFacts) -> Iterator[Fact]:
    for index in facts.receipts:
        yield from _receipt(number, index)
    yield from (Fact(_READ_LOG, (number, *place)) for place in facts.logs)
    yield from (Fact(_READ_HASH, (number, index)) for index in facts.hashes)


# --- The judge --------------------------------------------------------------------------------------------------------


class Judge:
    """A reader of facts in the shown nodes, from the two roots of a header."""

    def __init__(self, header: bytes, shown: Mapping[bytes, bytes]) -> None:
        self._roots = [string(each) for each in split(header)[4:6]]
        self._walker = Walker(shown)

    def value(self, fact: Fact) -> bytes | None:
        """Return the word that a read must return. None if it must return that nothing is proven. Raise NotSo."""
        _, index, *more = fact.words
        try:
            value = self._value(self._roots[fact.read != _READ_HASH], index)
            if fact.read == _READ_HASH:
                return keccak(value)
            if fact.read == _READ_RECEIPT and not value:
                return word(0) if more[0] == _EXISTS else None
            type_ = value[0] if value[0] < 0x80 else 0
            status, gas, blooms, logs, *_ = split(value[1:] if type_ else value)
            entries = [_read_log(each) for each in split(logs)]
            if string(blooms) != bloom(entries):
                raise NotSo("The bloom is not the logs'.")
            if fact.read == _READ_LOG:
                emitter, topics, data = entries[more[0]]
                return keccak(emitter.rjust(32, b"\0") + b"".join(topics) + keccak(data))
            if more[0] == 0 and len(string(status)) == 32:
                return None
            numbers = [string(status), bytes([type_]), string(gas), shortest(len(entries)), b"\1"]
            return numbers[more[0]].rjust(32, b"\0")
        except NotShown as error:
            raise NotSo(f"Nobody has shown the node {error}.") from error
        except (Odd, IndexError, ValueError) as error:
            raise NotSo(f"There is no such thing: {error}") from error

    def _value(self, root: bytes, index: int) -> bytes:
        """Return the trie's value at an index. Empty if there is none."""
        key, passed = bytes(rlp.encode(index)).hex(), 0
        if root == tries.EMPTY_ROOT:
            return b""
        node = self._walker._by_hash(root)
        while True:
            if isinstance(node, Branch):
                if passed >= len(key):
                    raise Odd("A key ends at a branch.")
                child = node.children[int(key[passed], 16)]
                passed += 1
                if child == tries.EMPTY:
                    return b""
                node = self._walker._child(child)
            elif isinstance(node, Extension):
                if not key.startswith(node.path, passed):
                    return b""
                passed += len(node.path)
                node = self._walker._branch_below(node)
            else:
                return node.value if node.path == key[passed:] else b""


def _read_log(encoded: bytes) -> Log:
    emitter, topics, data = split(encoded)
    words = [string(each) for each in split(topics)]
    if len(string(emitter)) != 20 or any(len(each) != 32 for each in words) or len(words) > 4:
        raise Odd("A log is none.")
    return string(emitter), words, string(data)


# --- Proofs -----------------------------------------------------------------------------------------------------------

Operations = list[bytes]


def _genuine(chance: Chance, block: Block, *, receipts: bool) -> Operations:
    """Return the operations of a random genuine proof."""
    count = len(block.receipts)
    indexes = chance.sample(range(count), min(count, chance.pick((0, 1, 1, 2, 5))))
    if not receipts and count:
        proof = encode_transactions(0, block.transactions, indexes or [0])
    else:
        absent = [count + chance.below(chance.pick((3, 40, 300, 65_000))) for _ in range(chance.pick((0, 0, 1, 3)))]
        logs = {
            index: [log for log in range(len(block.receipts[index].logs)) if chance.happens(0.5)] for index in indexes
        }
        fields = [*absent, *(index for index in indexes if chance.happens(0.5))]
        proof = (
            encode_receipts(0, block.values, logs, fields)
            if logs or fields
            else encode_receipts(0, block.values, fields=[count])
        )
    cuts: list[int] = []
    operations = proof[3:]
    reader = WatchedReader(operations, lambda _: cuts.append(reader.cursor))
    _TransactionDecoder(reader, is_receipts=proof[2] == RECEIPTS).run()
    return [operations[begin:end] for begin, end in pairwise(cuts)]


def _item(kind: int, content: bytes, chance: Chance) -> bytes:
    """Return an item of RLP, rarely in a longer form than it needs."""
    if kind == 0x80 and len(content) == 1 and content[0] < 0x80 and not chance.happens(0.01):
        return content
    if len(content) < 56 and not chance.happens(0.01):
        return bytes([kind + len(content)]) + content
    digits = shortest(len(content)) or b"\0"
    if chance.happens(0.01):
        digits = b"\0" + digits
    return bytes([min(kind + 55 + len(digits), 0xFF)]) + digits + content


def _spoilt_log(chance: Chance) -> bytes:
    emitter, topics, data = random_log(chance)
    emitter = emitter if chance.happens(0.96) else chance.randbytes(chance.pick((0, 19, 21, 32)))
    words = [each if chance.happens(0.99) else chance.randbytes(chance.pick((0, 1, 31, 33))) for each in topics]
    if chance.happens(0.03):
        words += [chance.randbytes(32) for _ in range(chance.pick((1, 5)))]
    listed = b"".join(_item(0x80, each, chance) for each in words)
    parts = [_item(0x80, emitter, chance), _item(0xC0 if chance.happens(0.98) else 0x80, listed, chance)]
    parts.append(
        _item(0x80 if chance.happens(0.98) else 0xC0, data if chance.happens(0.9) else chance.randbytes(1), chance)
    )
    if chance.happens(0.03):
        parts = [*parts, b"\x80"] if chance.happens(0.5) else parts[:-1]
    return _item(0xC0 if chance.happens(0.99) else 0x80, b"".join(parts), chance)


def _index(chance: Chance, index: int) -> bytes:
    digits = shortest(index)
    if chance.happens(0.03):
        digits = b"\0" + digits if chance.happens(0.5) else chance.randbytes(3)
    return bytes([len(digits) + int(chance.happens(0.01))]) + digits


def _spoilt_leaf(chance: Chance, index: int, depth: int) -> bytes:
    """Return a receipt's operation with at most a few faults, whose lengths mostly agree."""
    type_ = chance.pick((0, 0, 2, *TYPES)) if chance.happens(0.95) else chance.below(0x80)
    status = (
        chance.pick((b"\x80", b"\1"))
        if chance.happens(0.9)
        else chance.pick((b"\0", b"\2", b"\x81\1", b"\x81\x80", b"\xc0", b"\xa0" + chance.randbytes(32)))
    )
    gas = _item(0x80, shortest(chance.number(8)), chance)
    if chance.happens(0.05):
        gas = chance.pick((b"\0", b"\x82\0\1", b"\x89" + chance.randbytes(9), b"\xc1\1", b"\x81\1"))
    logs = [_spoilt_log(chance) for _ in range(chance.pick((0, 1, 1, 2, 3)))]
    size = sum(map(len, logs)) + (chance.pick((-1, 1, 30)) if chance.happens(0.03) else 0)
    begin = (
        _item(0xC0 if chance.happens(0.99) else 0x80, bytes(max(0, size)), chance)[: -size or None]
        if size > 0
        else b"\xc0"
    )
    more = b""
    if chance.happens(0.5 if type_ >= 0x64 else 0.02):
        more = b"".join(_item(0x80, shortest(chance.number(8)), chance) for _ in range(chance.pick((1, 2, 2, 2, 3))))
        more = more if chance.happens(0.9) else chance.pick((b"\x80\x89" + bytes(range(1, 10)), b"\xc0", b"\1\xc0\1"))
    total = len(status + gas + begin + more) + 259 + sum(map(len, logs))
    total += chance.pick((-1, 1, 256)) if chance.happens(0.03) else 0
    head = b"\xf9" + total.to_bytes(2) if chance.happens(0.98) else b"\xfa" + total.to_bytes(3)
    operation = chance.pick((RECEIPT_FIELDS, RECEIPT_FIELDS_AND_LOGS, RECEIPT_LOGS) if logs else (RECEIPT_FIELDS,))
    marked = [place for place in range(len(logs)) if chance.happens(0.5)] or [0]
    if chance.happens(0.03):
        marked = [chance.below(4) for _ in range(chance.between(1, 3))]
    marks = b"" if operation == RECEIPT_FIELDS else log_marks(marked)
    if chance.happens(0.02):
        marks = marks[:-2] + chance.pick((chance.randbytes(2), bytes([0, chance.below(16)])))
    depth = depth if chance.happens(0.97) else chance.below(8)
    typed = bytes([type_]) if type_ or chance.happens(0.02) else b""
    return (
        bytes([operation])
        + _index(chance, index)
        + b"".join([bytes([depth]), marks, typed, head, status, gas, begin, *logs, more])
    )


def _other(chance: Chance, index: int, depth: int) -> bytes:
    """Return an operation for an absent transaction, or for one of any bytes."""
    if chance.happens(0.5):
        size = chance.pick((0, 1, 31, 32, 40, 300))
        told = size + (chance.pick((-1, 1)) if size and chance.happens(0.05) else 0)
        leaf = _index(chance, index) + bytes([depth]) + told.to_bytes(3) + chance.randbytes(size)
        if chance.happens(0.5):
            return bytes([TRANSACTION]) + leaf
        other = chance.pick((index + 1, index + 300, chance.below(2**16)))
        parity = other.bit_count() % 2 if chance.happens(0.9) else chance.below(2)
        return bytes([ABSENT_TRANSACTION + 2 * AT_LEAF + parity]) + _index(chance, other) + leaf
    how = chance.below(4)
    parity = index.bit_count() % 2 if chance.happens(0.9) else chance.below(2)
    where = (
        bytes([depth])
        if how == AT_EMPTY
        else b""
        if how == AT_SAME
        else bytes([depth, 1, chance.below(16)]) + chance.randbytes(32)
    )
    return bytes([ABSENT_TRANSACTION + 2 * how + parity]) + _index(chance, index) + where


def _spoil(chance: Chance, operations: Operations, strangers: Sequence[bytes]) -> Operations:
    """Return operations with one or two changes."""
    changed = list(operations)
    for _ in range(chance.pick((1, 1, 2))):
        at = chance.below(len(changed) + 1)
        leaf = _named(changed[at]) if at < len(changed) else None
        how = chance.below(8)
        if how < 3 and leaf:
            changed[at] = _spoilt_leaf(chance, *leaf)
        elif how == 3:
            index, depth = leaf or (chance.pick((0, 1, 127, 128, 255, 256)), chance.below(5))
            changed[at : at + chance.below(2)] = [_other(chance, index, depth)]
        elif how == 4:
            changed[at : at + chance.below(2)] = [chance.pick(strangers)]
        elif how == 5:
            del changed[at : at + 1]
        elif how == 6 and at < len(changed):
            changed[at] = mutate(chance, changed[at], chance.pick(strangers)) or b"\0"
        elif at < len(changed):
            other = chance.below(len(changed))
            changed[at], changed[other] = changed[other], changed[at]
    return changed


def _named(operation: bytes) -> tuple[int, int] | None:
    """Return index and depth of a leaf's operation."""
    if operation[0] not in {RECEIPT_LOGS, RECEIPT_FIELDS, RECEIPT_FIELDS_AND_LOGS, TRANSACTION} or len(operation) < 5:
        return None
    size = min(operation[1], 2)
    return int.from_bytes(operation[2 : 2 + size]), operation[2 + size] % 8


def _trie_of(operations: Operations) -> int:
    return TRANSACTIONS if any(each[0] == TRANSACTION for each in operations) else RECEIPTS


def _single(chance: Chance) -> Operations:
    """Return a trie of one or two leaves, which is where a fault changes least else."""
    index = chance.pick((0, 1, 5, 127, 128, 255, 256, 300, 65_535))
    key = bytes(rlp.encode(index)).hex()
    make: Callable[[Chance, int, int], bytes] = _spoilt_leaf if chance.happens(0.7) else _other
    if chance.happens(0.5):
        return [make(chance, index, 0), *([_other(chance, chance.below(400), 0)] if chance.happens(0.2) else [])]
    # Rarely deeper than the key is long.
    depth = chance.between(1, len(key) + chance.pick((0, 0, 0, 0, 0, 0, 0, 2)))
    place = int(key.ljust(8, "0")[depth - 1], 16)
    sibling = (place + 1) % 16
    children = sorted([(place, bytes([0x20 | place])), (sibling, bytes([sibling]) + chance.randbytes(32))])
    operations = [make(chance, index, depth), bytes([0x10, 2]) + b"".join(child for _, child in children)]
    return operations + ([bytes([0x36, depth - 1])] if depth > 1 else [])


# --- The campaign -----------------------------------------------------------------------------------------------------


@dataclass
class Trial:
    header: bytes
    number: int
    proof: bytes
    before: Sequence[bytes]
    verdict: TransactionFacts | str
    shown: Mapping[bytes, bytes]


def run(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try `count` proofs, on another FactsRegistry if given. Deterministic in `seed`. Raise Divergence."""
    bench, chance = _Bench(chain, artifact), Chance(seed)
    tally, strangers = Tally(), list[bytes]()
    while tally.done < count:
        block = random_block(chance, chance.pick(_SIZES))
        composed = [_compose(chance, block, strangers) for _ in range(min(_BATCH, count - tally.done))]
        endings = bench.endings(composed)
        trials = [
            _trial(chance, block, tally.done + place, *each, ending)
            for place, (each, ending) in enumerate(zip(composed, endings, strict=True))
        ]
        for trial, outcome in zip(trials, bench.run(trials), strict=True):
            try:
                facts = _check(trial, outcome)
            except NotSo as error:
                sent = " ".join(f"0x{each.hex()}" for each in (trial.header, *trial.before, trial.proof))
                raise Divergence(f"receipts.run, seed {seed}, trial {tally.done}: {error} {sent}") from error
            tally.done += 1
            if isinstance(trial.verdict, str):
                tally.refused[trial.verdict] += 1
            else:
                tally.accepted.update(_kinds(trial.verdict))
                tally.accepted["fact"] += facts
    return tally


def _compose(chance: Chance, block: Block, strangers: list[bytes]) -> tuple[bool, Operations]:
    """Return whether the operations are of receipts, and the operations."""
    receipts = chance.happens(0.75)
    if chance.happens(0.4):
        return receipts, _single(chance)
    operations = _genuine(chance, block, receipts=receipts)
    receipts = receipts or not block.receipts
    strangers += operations
    del strangers[:-200]
    if chance.happens(0.8):
        operations = _spoil(chance, operations, strangers)
    return receipts if chance.happens(0.98) else not receipts, operations


def _trial(chance: Chance, block: Block, place: int, receipts: bool, operations: Operations, ending: bytes) -> Trial:  # noqa: FBT001 - the parts of a proof, in order.
    roots = list(block.roots)
    if ending and chance.happens(0.7):
        roots[receipts] = ending
    number = place + 1
    header = tries.header(number, chance.randbytes(32), chance.randbytes(32), roots=(roots[0], roots[1]))
    known = [header + bytes.fromhex("31 80 00 00 10 37" if not receipts else "31 80 00 00 20 37")]
    before = known if chance.happens(0.5) else []
    digits = shortest(number)
    begin = bytes([len(digits)]) + digits if before else header
    proof = begin + bytes([RECEIPTS if receipts else TRANSACTIONS]) + b"".join(operations)
    model = Model(decoder)
    with model.recording():
        try:
            verdict: TransactionFacts | str = decoder.decode(
                proof,
                block_hash=lambda _: keccak(header),
                state_root=lambda _: None,
                header_field=lambda _, at: roots[at - 4],
            ).transactions
        except InvalidPacked as error:
            verdict = sentence(str(error))
    return Trial(header, number, proof, before, verdict, model.shown)


def _check(trial: Trial, outcome: Called) -> int:
    """Check that all facts that became readable are true, and return their number. Raise NotSo."""
    facts = _to_read(trial)
    answers = list(answers_of(outcome.data))[1 + len(trial.before) :]
    taken, read = answers[0], dict(zip(facts, answers[1:], strict=True))
    is_refused = isinstance(trial.verdict, str)
    if taken.succeeded == is_refused:
        raise NotSo(f"The registry {'takes' if taken.succeeded else taken.data.hex()} it, the model {trial.verdict}")
    logs = [log for log in outcome.logs if log.topics[0] in {_RECEIPT_PROVEN, _LOG_PROVEN, _TRANSACTION_PROVEN}]
    logged = list(_logged(Called(outcome.succeeded, b"", tuple(logs), 0)))
    if set(logged) != set(facts) or (not trial.before and len(logs) < len(outcome.logs)):
        raise NotSo(f"The registry and the model don't prove the same: {set(logged) ^ set(facts)}")
    judge = Judge(trial.header, trial.shown)
    for fact in logged:
        value = judge.value(fact)
        if read[fact].data != (bytes(64) if value is None else word(1) + value):
            raise NotSo(f"It must be {value and value.hex()}, and {read[fact].data.hex()} is read: {fact}")
    return len(logged)


def _to_read(trial: Trial) -> list[Fact]:
    return [] if isinstance(trial.verdict, str) else list(dict.fromkeys(_claimed(trial.number, trial.verdict)))


def _kinds(facts: TransactionFacts) -> Iterator[str]:
    yield from (
        "absent transaction" if each is None else f"receipt {each.type:02x}" for each in facts.receipts.values()
    )
    yield from ("log" for _ in facts.logs)
    yield from ("transaction" for _ in facts.hashes)


class _Bench:
    def __init__(self, chain: DevChain, artifact: Artifact | None) -> None:
        self._source = Deployed(chain, "test/SettableBlockHashSource", 1)
        self._registry = Deployed(
            chain, "FactsRegistry", 1, self._source.address, HISTORY_WINDOW, NO_CONTRACT, artifact=artifact
        )
        self._multicall = Deployed(chain, "test/Multicall")
        self._unchecked = Deployed(chain, _HARNESS, artifact=without_checks(_HARNESS))
        self._simulator = Simulator(chain)

    def endings(self, composed: Sequence[tuple[bool, Operations]]) -> list[bytes]:
        """Return the root of each list of operations if nothing is refused; empty if they halt all the same."""
        calls = [
            # The trie that has such operations, even if the proof names the other one.
            Call(self._unchecked.address, word(1) + word(_trie_of(operations)) + b"".join(operations))
            for _, operations in composed
        ]
        return [outcome.data if outcome.succeeded else b"" for outcome in self._simulator.run(calls)]

    def run(self, trials: Sequence[Trial]) -> list[Called]:
        return self._simulator.run([Call(self._multicall.address, self._calls(trial)) for trial in trials])

    def _calls(self, trial: Trial) -> bytes:
        sent = [(self._source.address, self._source.calldata("set", trial.number, keccak(trial.header)))]
        reads = [fact.calldata() for fact in _to_read(trial)]
        sent += [(self._registry.address, data) for data in (*trial.before, trial.proof, *reads)]
        packed = b"".join(bytes.fromhex(to[2:]) + len(data).to_bytes(3) + data for to, data in sent)
        return self._multicall.calldata("run", packed)
