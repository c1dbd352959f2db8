"""Sequences of operations that an attacker would build, under headers of the attacker's making.

Both the registry and its model run them. Since both could have the same fault, another reader judges each fact that
became readable. It shares no code with either (`judge.py`). It looks up the fact from the header's state root in the
nodes that were hashed.

The header's state root is the result of its operations if nothing is refused (`unchecked.py`). So a registry that lacks
a check accepts operations that break only that rule, and their facts can be judged.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import ModuleType
from typing import NamedTuple, TypeVar
from unittest.mock import patch

from eth_utils.crypto import keccak

from campaigns.fuzzing.attacker import Attacker, any_fault, forms
from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.judge import (
    STATE_ROOT,
    AccountField,
    BlockHash,
    Fact,
    HeaderField,
    Judge,
    NotSo,
    Slot,
    facts_of,
    ones,
    selector,
    word,
)
from campaigns.fuzzing.tally import Divergence, Tally, sentence
from campaigns.fuzzing.transactions import extra_data, header_facts
from campaigns.fuzzing.unchecked import Ending, Unchecked
from chains.contract_artifacts import NO_CONTRACT, Artifact
from chains.encoding import HISTORY_WINDOW, hex_data, shortest
from chains.tries.packed import HASH_ALONE, HEADER_ALONE, PARENT
from devnet.devchain import DevChain
from tests.contracts import decoder, tries
from tests.contracts.decoder import InvalidPacked, PackedFacts
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import PANIC, Call, Outcome, Simulator

KINDS = ("header", "number", "walk", "parent hash", "hop")
"""The ways in which an attack brings the header that it proves under."""

# Attacks in a batch. A batch takes one or two requests.
_BATCH = 150
# Number of block numbers that one attack uses.
_NUMBERS = 4

_SET = selector("set(uint256,bytes32)")
_RUN = selector("run(bytes)")


@cache
def _history_keys() -> frozenset[str]:
    return frozenset(keccak(word(slot)).hex() for slot in range(HISTORY_WINDOW))


# --- The attack -------------------------------------------------------------------------------------------------------


class Proof(NamedTuple):
    """Operations, and their result in a registry that refuses nothing."""

    operations: Sequence[bytes]
    ending: Ending


NO_PROOF = Proof((), Ending(None, ()))


@dataclass
class Attack:
    """Transactions, and the hashes that the block hash source vouches for before them."""

    kind: str
    vouched: dict[int, bytes] = field(default_factory=dict)  # block hashes by number
    headers: list[bytes] = field(default_factory=list)  # all headers that are sent
    transactions: list[bytes] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)  # the proofs in each transaction

    def __str__(self) -> str:
        vouched = [f"block {number}: 0x{digest.hex()}" for number, digest in self.vouched.items()]
        sent = [hex_data(transaction) for transaction in self.transactions]
        return "\n".join(["The block hash source vouches for", *vouched, "The registry is sent", *sent])

    def send(self, begin: bytes, proof: Proof = NO_PROOF) -> None:
        self.transactions.append(begin + b"".join(proof.operations))
        self.proofs.append(proof)


class Model:
    """The model of the registry. While it is `recording`, it stores all hashed bytes."""

    def __init__(self, decoder: ModuleType) -> None:
        """`decoder` is `tests.contracts.decoder`, or a changed copy."""
        self._decoder = decoder
        self.shown: dict[bytes, bytes] = {}
        """The hashed bytes by hash. This holds even if the model is wrong."""
        self._hash = lru_cache(1 << 15)(keccak)

    @contextmanager
    def recording(self) -> Iterator[None]:
        with patch.object(self._decoder, "keccak", self.keccak):
            yield

    def keccak(self, data: bytes) -> bytes:
        """Hash bytes, and record them."""
        digest = self._hash(data)
        self.shown[digest] = data
        return digest

    def hashes(self, operations: bytes) -> list[bytes]:
        """Return the hashes of all bytes that are hashed when the operations run."""
        before, self.shown = self.shown, {}
        with suppress(InvalidPacked):
            self._decoder._Decoder(self._decoder._Reader(operations), HISTORY_WINDOW).run()
        hashes = list(self.shown)
        self.shown = before
        return hashes

    def verdicts(self, attack: Attack) -> list[PackedFacts | str]:
        """Return the facts of each transaction, or the sentence of its refusal."""
        roots: dict[int, bytes] = {}
        known: set[bytes] = set()
        verdicts: list[PackedFacts | str] = []
        for transaction in attack.transactions:
            try:
                facts = self._decoder.decode(
                    transaction, block_hash=attack.vouched.get, state_root=roots.get, known_hashes=known
                )
            except InvalidPacked as error:
                verdicts.append(sentence(str(error)))
                continue
            verdicts.append(facts)
            known |= facts.known_hashes
            if not _is_parent_hash_alone(facts):
                roots[facts.block_number] = facts.state_root
        return verdicts


def _is_parent_hash_alone(facts: PackedFacts) -> bool:
    return bool(facts.known_hashes) and not facts.accounts


# --- The outcome ------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    succeeded: bool
    data: bytes


class Trial:
    """An attack, the model's verdicts, and the required answers of the registry."""

    def __init__(self, attack: Attack, model: Model) -> None:
        self.attack = attack
        self.verdicts = model.verdicts(attack)
        self.shown = model.shown
        self.expected = {fact for facts in self.verdicts if isinstance(facts, PackedFacts) for fact in _facts(facts)}
        accounts = {(fact.number, fact.address) for fact in self.expected if isinstance(fact, AccountField)}
        # All fields of an account, readable or not, and all facts that a missing check would make readable.
        every = self.expected | {AccountField(*account, each) for account in accounts for each in range(4)}
        every.update(fact for proof in attack.proofs for fact in proof.ending.facts)
        self.facts_to_read: list[Fact] = list(every)

    def check(self, outcome: Outcome) -> int:
        """Check that all facts that became readable are true, and return their number.

        `outcome` is that of the Multicall. Raise NotSo.
        """
        if not outcome.succeeded:
            raise NotSo(f"The calls could not be made: {outcome}")
        answers = list(_answers(outcome.data))[len(self.attack.vouched) :]
        count = len(self.attack.transactions)
        logged = set(facts_of(outcome.logs))
        # A refused transaction may not show all its nodes, so verdicts are compared first.
        self._check_verdicts(answers[:count])
        self._check_values(logged, dict(zip(self.facts_to_read, answers[count:], strict=True)))
        if logged != self.expected:
            raise NotSo(f"The registry and the model don't prove the same. One alone does: {logged ^ self.expected}")
        return len(logged)

    def _check_values(self, logged: AbstractSet[Fact], read: Mapping[Fact, Answer]) -> None:
        known = {fact.digest for fact in logged if isinstance(fact, BlockHash)}
        judge = Judge(self.attack.vouched, self.attack.headers, self.shown, known, _history_keys())
        for fact in logged:
            value = judge.value(fact)
            answer = value if isinstance(fact, BlockHash) else word(1) + value
            if fact in read and read[fact] != (True, answer):
                raise NotSo(f"It must be {value.hex()}, and {read[fact].data.hex()} is read: {fact}")
        for fact, (succeeded, data) in read.items():
            if not succeeded or (fact not in logged and any(data)):
                raise NotSo(f"It can be read, or can't even be asked for, and isn't proven: {fact}")

    def _check_verdicts(self, answers: Iterable[Answer]) -> None:
        for number, (answer, verdict) in enumerate(zip(answers, self.verdicts, strict=True)):
            refusal = verdict if isinstance(verdict, str) else ""
            if answer.succeeded == bool(refusal):
                raise NotSo(
                    f"The registry {'takes' if answer.succeeded else 'refuses'} transaction {number}, "
                    f"and the model {refusal or 'takes it'}"
                )
            # Every error of the registry has a selector. A panic or running out of gas has none.
            if not answer.succeeded and (not answer.data or answer.data.startswith(PANIC)):
                raise NotSo(f"The registry halts in transaction {number}.")


def _facts(facts: PackedFacts) -> Iterator[Fact]:
    """Yield the facts that become readable, according to the model."""
    number = facts.block_number
    yield from map(BlockHash, facts.known_hashes)
    if _is_parent_hash_alone(facts):
        return
    yield HeaderField(number, STATE_ROOT)
    yield from (HeaderField(number, place) for place in facts.header_fields)
    for address, account in facts.accounts.items():
        yield from (AccountField(number, address, each) for each in ones(account.fields if account.exists else 0b1111))
        yield from (Slot(number, address, word(slot)) for slot in account.slots)


def _answers(returned: bytes) -> Iterator[Answer]:
    """Yield the answer of each call from Multicall's result."""
    cursor, end = 64, 64 + int.from_bytes(returned[32:64])
    while cursor < end:
        begin = cursor + 4
        size = int.from_bytes(returned[cursor + 1 : begin])
        yield Answer(returned[cursor] == 1, returned[begin : begin + size])
        cursor = begin + size


_Made = TypeVar("_Made")
# Yields operations and a block number, and receives their result in a registry that refuses nothing.
Making = Generator[tuple[bytes, int], Ending, _Made]


class Forge:
    """A maker of attacks. Each depends only on seed and index."""

    def __init__(self, seed: int, model: Model, unchecked: Unchecked) -> None:
        self._seed = seed
        self._model = model
        self._unchecked = unchecked

    def trials(self, indices: Iterable[int]) -> list[Trial]:
        """Return attacks with the model's verdicts."""
        attacks: dict[int, Attack] = {}
        makers = {index: self._attack(index) for index in indices}
        pending = {index: next(maker) for index, maker in makers.items()}
        while pending:
            endings = dict(zip(pending, self._unchecked.endings(pending.values()), strict=True))
            pending = {}
            for index, ending in endings.items():
                try:
                    pending[index] = makers[index].send(ending)
                except StopIteration as made:
                    attacks[index] = made.value
        return [self._trial(attacks[index]) for index in makers]

    def _trial(self, attack: Attack) -> Trial:
        self._model.shown = {}
        return Trial(attack, self._model)

    def _attack(self, index: int) -> Making[Attack]:
        chance = Chance(self._seed << 64 | index)
        number = index * _NUMBERS + 1 | chance.pick((0, 0, 1 << 40, 1 << 63))
        kind = chance.pick(("header", "header", *KINDS))
        attack = Attack(kind)
        proof, header = yield from self._block(chance, number)
        begin = header
        if chance.happens(0.2):
            begin += header_facts(chance)
        attack.headers.append(header)
        if kind == "header":
            self._vouch(chance, attack, number, header)
            attack.send(begin, proof)
        elif kind == "number":
            self._vouch(chance, attack, number, header)
            attack.send(begin + bytes([HEADER_ALONE]))
            attack.send(_number(number), proof)
        elif kind == "hop":
            # The state of one block holds the hash of another block.
            other_proof, other = yield from self._block(chance, number + 1, block_hashes=[keccak(header)])
            attack.headers.append(other)
            self._vouch(chance, attack, number + 1, other)
            attack.send(other, other_proof)
            attack.send(begin, proof)
        else:
            parent_hash = keccak(header) if chance.happens(0.97) else chance.randbytes(32)
            child_number = number + 1 if chance.happens(0.94) else chance.pick((0, number + 2))
            child = _header(chance, child_number, chance.randbytes(32), parent_hash)
            attack.headers.append(child)
            self._vouch(chance, attack, child_number, child)
            if kind == "walk":
                attack.send(child + bytes([PARENT]) + begin, proof)
            else:
                attack.send(child + bytes([HASH_ALONE]))
                attack.send(begin, proof)
        return attack

    def _block(self, chance: Chance, number: int, *, block_hashes: Sequence[bytes] = ()) -> Making[tuple[Proof, bytes]]:
        """Return operations, and a header whose state root is their result if nothing is refused."""
        attacker = Attacker(chance, fault=any_fault(chance), block_hashes=block_hashes, hashes=self._model.hashes)
        operations = attacker.state()
        ending = yield b"".join(operations), number
        root = chance.randbytes(32) if chance.happens(0.01) or not ending.root else ending.root
        return Proof(operations, ending), _header(chance, number, root, chance.randbytes(32))

    @staticmethod
    def _vouch(chance: Chance, attack: Attack, number: int, header: bytes) -> None:
        other = chance.pick((chance.randbytes(32), bytes(32)))
        attack.vouched[number] = keccak(header) if chance.happens(0.99) else other


def _header(chance: Chance, number: int, state_root: bytes, parent_hash: bytes) -> bytes:
    return tries.header(number, state_root, parent_hash, extra_data(chance, [chance.getrandbits(256)]))


class Bench:
    """A registry, and a block hash source that vouches for any given hash."""

    def __init__(self, chain: DevChain, artifact: Artifact | None = None) -> None:
        self._source = Deployed(chain, "test/SettableBlockHashSource", 1).address
        self._registry = Deployed(
            chain, "FactsRegistry", 1, self._source, HISTORY_WINDOW, NO_CONTRACT, artifact=artifact
        ).address
        self._multicall = Deployed(chain, "test/Multicall").address
        self._simulator = Simulator(chain)

    def run(self, trials: Iterable[Trial]) -> list[Outcome]:
        """Run each trial, and return its outcome."""
        return self._simulator.run([Call(self._multicall, self._calls(trial)) for trial in trials])

    def _calls(self, trial: Trial) -> bytes:
        sent = [(self._source, _SET + word(number) + digest) for number, digest in trial.attack.vouched.items()]
        sent += [(self._registry, transaction) for transaction in trial.attack.transactions]
        sent += [(self._registry, fact.calldata()) for fact in trial.facts_to_read]
        packed = b"".join(bytes.fromhex(to[2:]) + len(data).to_bytes(3) + data for to, data in sent)
        return _RUN + word(32) + word(len(packed)) + packed + bytes(-len(packed) % 32)


def _number(number: int) -> bytes:
    digits = shortest(number)
    return bytes([len(digits)]) + digits


def run(
    chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None, decoder: ModuleType = decoder
) -> Tally:
    """Try `count` attacks, deterministic in `seed`. Raise Divergence.

    `artifact` is a changed registry, and `decoder` a changed model, to test that the fault is found.
    """
    bench, model, tally = Bench(chain, artifact), Model(decoder), Tally()
    forge = Forge(seed, model, Unchecked(chain))
    for first in range(0, count, _BATCH):
        with model.recording():
            trials = forge.trials(range(first, min(first + _BATCH, count)))
        for index, (trial, outcome) in enumerate(zip(trials, bench.run(trials), strict=True), first):
            try:
                confirmed = trial.check(outcome)
            except NotSo as error:
                raise Divergence(f"sequences.run, seed {seed}, attack {index}: {error}\n{trial.attack}") from error
            _count(tally, trial, confirmed)
    return tally


def _count(tally: Tally, trial: Trial, confirmed: int) -> None:
    tally.done += 1
    for verdict, proof in zip(trial.verdicts, trial.attack.proofs, strict=True):
        if isinstance(verdict, str):
            tally.refused[verdict] += 1
        else:
            tally.accepted.update(form for operation in proof.operations for form in forms(operation))
    if not any(isinstance(verdict, str) for verdict in trial.verdicts):
        tally.accepted.update(["attack", trial.attack.kind])
    tally.accepted["fact"] += confirmed
