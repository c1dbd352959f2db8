"""Calls whose memory is undefined except where it must be defined. The outcome must not depend on undefined bits.

The contracts' code runs in an EVM that tracks defined bits (`interpreter.py`). anvil also runs a share of the calls,
and must agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eth_utils.crypto import keccak

from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.interpreter import Execution, Machine, UndefinedUse
from campaigns.fuzzing.memory import NODE, NODE_BYTES, STACK, SUBTREE, Model, Scene
from campaigns.fuzzing.reference import Reference, Run
from campaigns.fuzzing.scenes import random_scene
from campaigns.fuzzing.steps import HARNESS, Trial, feed_operations
from campaigns.fuzzing.tally import Divergence, Tally, sentence
from campaigns.fuzzing.transactions import Composer, accepted_forms, some_world
from chains.contract_artifacts import NO_CONTRACT, Artifact
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import HASH_BYTES, NIBBLES, encode, encode_parent_hash
from devnet.devchain import DevChain
from tests.contracts.decoder import InvalidPacked, PackedFacts, _Subtree, decode
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Outcome
from tests.contracts.worlds import World

# One of this many calls also runs on anvil.
_COMPARED = 50
_PAGE = 4096
# Number of words before the memory content in StepHarness's input, and after the memory in its answer.
_WORDS_BEFORE, _WORDS_BEHIND = 6, 4
_UNDEFINED_WORD = b"\xff" * 32
_PER_WORLD = 50


class Bench:
    """A runner of a contract's calls. `name` is reported with a divergence."""

    def __init__(self, chain: DevChain, code: bytes, name: str) -> None:
        self.tally = Tally()
        self.machine = Machine(code, scratch=NODE)
        self._reference = Reference(chain)
        self._name = name
        self._number = 0

    def execute(self, chance: Chance, run: Run, *, undefined: bytes = b"", fill: bytes = bytes(_PAGE)) -> Execution:
        """Run a call with `undefined` and `fill` as in `Machine.call`. Raise Divergence."""
        self._number += 1
        try:
            execution = self.machine.call(
                run.calldata, undefined=undefined, storage=run.storage, answer=run.answer, fill=fill
            )
        except UndefinedUse as use:
            raise self.divergence(str(use), run) from None
        if execution.halted:
            raise self.divergence("The contract halts.", run)
        if self._number % _COMPARED == 0:
            # Undefined bits have other values on anvil, for example zero.
            real = self._reference.execute(replace(run, calldata=_change(chance, run.calldata, undefined)))
            if not execution.agrees(real):
                raise self.divergence(f"The interpreter makes {execution} of it, anvil {real}.", run)
        return execution

    def divergence(self, why: str, run: Run) -> Divergence:
        return Divergence(
            f"{self._name}, call {self._number}: {why} The contract was sent 0x{run.calldata.hex()}, the block hash "
            f"source answers {run.answer!r}, and stored are {run.storage}"
        )


def _change(chance: Chance, calldata: bytes, undefined: bytes) -> bytes:
    """Return calldata with changed undefined bits."""
    size = len(undefined)
    changes = int.from_bytes(undefined) & chance.getrandbits(8 * size or 1)
    return (int.from_bytes(calldata[:size]) ^ changes).to_bytes(size) + calldata[size:]


# --- Operations -------------------------------------------------------------------------------------------------------


def run_steps(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try at least `count` operations on stacks in which only the words of subtrees are defined.

    Deterministic in `seed`. Raise Divergence.
    """
    code = Deployed(chain, HARNESS, HISTORY_WINDOW, artifact=artifact).code
    bench = Bench(chain, code, f"undefined.run_steps, seed {seed}, count {count}")
    chance, tally = Chance(seed), bench.tally
    while tally.done < count:
        begun = random_scene(chance)
        undefined = _undefined_calldata(begun.scene)
        trial = Trial(begun.scene, set())
        feed_operations(chance, begun, trial)
        run = Run(code, trial.calldata)
        execution = bench.execute(chance, run, undefined=undefined)
        outcome = Outcome(execution.succeeded, execution.data, execution.logs, gas_used=0)
        if why := trial.difference(outcome) or (_left_undefined(trial.model, execution) if execution.succeeded else ""):
            raise bench.divergence(f"{why}. The model: {trial.refusal or 'takes them'}.", run)
        tally.done += trial.model.count
        if trial.refusal:
            tally.refused[sentence(trial.refusal)] += 1
        else:
            tally.accepted.update(trial.model.forms)
    return tally


def _undefined_calldata(scene: Scene) -> bytes:
    """Return a mask of the undefined bits in StepHarness's input, up to the operations."""
    subtrees = b"".join(map(_undefined_of, scene.state + (scene.storage or [])))
    return bytes(32 * _WORDS_BEFORE) + b"\xff" * NODE_BYTES + subtrees + b"\xff" * len(scene.above)


def _undefined_of(subtree: _Subtree) -> bytes:
    """Return a mask of the undefined bits in the six words of a subtree (contracts/src/SubtreeStack.sol)."""
    size = len(subtree.reference)
    known = max(subtree.depth, subtree.reach)
    reference = b"" if size > HASH_BYTES else bytes(size) + b"\xff" * (HASH_BYTES - size)
    key = (1 << 4 * (NIBBLES - known)) - 1
    last = bytes(32) if subtree.reach else _UNDEFINED_WORD
    return reference.ljust(32, b"\0") + bytes(32) + key.to_bytes(32) + bytes(64) + last


def _left_undefined(model: Model, execution: Execution) -> str:
    """Return a sentence if words of subtrees are undefined that should be defined. Empty otherwise."""
    end = len(execution.undefined) - 32 * _WORDS_BEHIND
    if any(execution.undefined[end:]):
        return "Bottom, top, or the open storage is undefined"
    stacks = model.state + (model.storage or [])
    may_be = int.from_bytes(b"".join(map(_undefined_of, stacks)))
    are = int.from_bytes(execution.undefined[STACK : STACK + SUBTREE * len(stacks)])
    return f"Of the subtrees {are & ~may_be:#x} is undefined" if are & ~may_be else ""


# --- Transactions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """The facts that a registry has stored."""

    storage: Mapping[int, int] = field(default_factory=dict)
    state_roots: Mapping[int, bytes] = field(default_factory=dict)
    hashes: frozenset[bytes] = frozenset()


def run_transactions(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try `count` transactions of the registry. All memory is undefined at the beginning.

    Deterministic in `seed`. Raise Divergence.
    """
    source = Deployed(chain, "test/SettableBlockHashSource", 1).address
    code = Deployed(chain, "FactsRegistry", 1, source, HISTORY_WINDOW, NO_CONTRACT, artifact=artifact).code
    bench = Bench(chain, code, f"undefined.run_transactions, seed {seed}, count {count}")
    chance, tally = Chance(seed), bench.tally
    while tally.done < count:
        world = some_world(chance)
        composer, registries = Composer(chance, world, ()), _registries(bench.machine, world)
        for _ in range(min(_PER_WORLD, count - tally.done)):
            answer, known = _answer(chance, keccak(world.vouched)), chance.pick(registries)
            run = Run(code, composer.transaction(), known.storage, source, answer)
            execution = bench.execute(chance, run, fill=chance.randbytes(_PAGE))
            facts, refusal = None, ""
            try:
                facts = _facts(run.calldata, answer, known)
            except InvalidPacked as error:
                refusal = str(error)
            if execution.succeeded == bool(refusal):
                did = "takes" if execution.succeeded else "refuses"
                raise bench.divergence(f"The contract {did} it. The model: {refusal or 'takes it'}.", run)
            tally.done += 1
            if facts:
                tally.accepted.update(accepted_forms(facts))
            else:
                tally.refused[sentence(refusal)] += 1
    return tally


def _registries(machine: Machine, world: World) -> list[_Known]:
    """Return the facts of registries that know nothing, the first header's hash, or the block's state root."""
    registries = [_Known()]
    proofs: list[tuple[bytes, dict[int, bytes], set[bytes]]] = []
    if world.by_child:
        proofs.append((encode_parent_hash([world.vouched]), {}, {keccak(world.headers[0])}))
    proofs.append((encode(world.headers, world.root), {world.number: world.root}, set()))
    for calldata, state_roots, hashes in proofs:
        before = registries[-1]
        execution = machine.call(calldata, storage=before.storage, answer=keccak(world.vouched))
        assert execution.succeeded
        registries.append(_Known(execution.storage, {**before.state_roots, **state_roots}, before.hashes | hashes))
    return registries


def _facts(calldata: bytes, answer: bytes | None, known: _Known) -> PackedFacts:
    """Return the model's facts. Raise `InvalidPacked`."""
    return decode(
        calldata,
        block_hash=lambda _: answer if answer and len(answer) == HASH_BYTES else None,
        state_root=known.state_roots.get,
        known_hashes=known.hashes,
    )


def _answer(chance: Chance, digest: bytes) -> bytes | None:
    """Choose the block hash source's answer for any block, mostly the right hash. None means a revert."""
    others = (None, b"", bytes(32), digest[:31], digest + b"\0", chance.randbytes(32))
    return digest if chance.happens(0.75) else chance.pick(others)
