"""One or a few operations from any state of memory. The contract must agree with the model.

Both must agree on acceptance, events, storage and memory. The compiler's scratch space and the memory zone of nodes may
differ.
"""

from eth_utils.crypto import keccak

from campaigns.fuzzing.batch import Batch
from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.ledger import Ledger, word
from campaigns.fuzzing.memory import NODE, STACK, Model, Scene
from campaigns.fuzzing.operations import mutate
from campaigns.fuzzing.scenes import (
    Begun,
    Case,
    nearly_siblings,
    nearly_the_same,
    nearly_the_same_path,
    random_scene,
)
from campaigns.fuzzing.tally import Tally, sentence
from chains.contract_artifacts import Artifact
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import BRANCH, END_OF_BRANCHES, HISTORY_ADDRESS
from devnet.devchain import DevChain
from tests.contracts.decoder import InvalidPacked
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Outcome, Simulator

HARNESS = "test/StepHarness"
_CUT = "The calldata ends too early."
_INVALID_PROOF = keccak(text="InvalidProof()")[:4]
# Memory that the compiler uses: the free memory pointer, a zero word, and the operations' arguments.
_FREE, _CURSOR = 0x180, 0x120
# Bytes in which the compiler temporarily writes the data of events.
_EVENTS = 0x80
# Trials in which one nibble or depth decides the outcome.
_NEARLY = (nearly_siblings, nearly_siblings, nearly_siblings, nearly_the_same, nearly_the_same_path)
_SHARE_OF_NEARLY = 0.1


class Trial:
    """Operations from one scene, as far as the model has run them."""

    def __init__(self, scene: Scene, known_hashes: set[bytes]) -> None:
        self.ledger = Ledger(known_hashes)
        self.calldata = scene.calldata(b"")
        self.end = NODE + len(scene.image())
        """The end of the image in memory."""
        self.block = scene.block
        self.model = Model(scene, self.ledger)
        self.refusal = ""
        """The sentence of the model's refusal, if any."""

    def feed(self, operations: bytes) -> bool:
        """Run more operations on the model, and return whether it accepts them. Nothing may follow a refusal."""
        self.calldata += operations
        try:
            self.model.feed(operations)
        except InvalidPacked as refusal:
            self.refusal = str(refusal)
        return not self.refusal

    def difference(self, outcome: Outcome) -> str:
        """Return the difference between contract and model. Empty if there is none."""
        if outcome.halted:
            return "the contract halts"
        if outcome.succeeded != (not self.refusal):
            return f"the contract {'takes' if outcome.succeeded else 'refuses'} them"
        if self.refusal:
            return "" if outcome.data == _INVALID_PROOF else "the contract has another error"
        return self._difference_of_memory(outcome.data) or self._difference_of_logs(outcome)

    def _difference_of_memory(self, memory: bytes) -> str:
        model = self.model
        end = max(self.end, model.top)
        is_open = int(model.storage is not None)
        stack_state = (model.bottom, model.top, is_open, int.from_bytes(model.owner))
        if memory[end:] != b"".join(map(word, stack_state)):
            return f"bottom, top, or the open storage: {memory[end:].hex()}"
        # The struct StateProof, followed by Calldata and Stack, to which it points.
        proof = (_CURSOR, _CURSOR + 0x20, self.block, is_open, int.from_bytes(model.owner))
        structs = (*proof, len(self.calldata), model.bottom, model.top)
        compilers = b"".join(map(word, (_FREE, 0, *structs)))
        if memory[0x40:_FREE] != compilers or any(memory[_FREE + _EVENTS : NODE]):
            return f"the compiler's memory: {memory[0x40:NODE].hex()}"
        # All words are compared, even meaningless ones, such as the last absent key of a branch or the bytes after a
        # node. Both sides must write them in the same way.
        if memory[STACK:end] != model.memory[: end - STACK]:
            place = next(at for at in range(end - STACK) if memory[STACK + at] != model.memory[at])
            return f"memory from {STACK + place // 32 * 32:#x} on: {memory[STACK:end].hex()}, not {model.memory.hex()}"
        return ""

    def _difference_of_logs(self, outcome: Outcome) -> str:
        return "" if outcome.logs == tuple(self.ledger.logs) else f"{outcome.logs}, not {self.ledger.logs}"


class Bench:
    """A collector of trials, which compares many outcomes of the contract with the model at once."""

    def __init__(self, chain: DevChain, name: str, artifact: Artifact | None = None) -> None:
        """`name` is reported with a divergence."""
        self.tally = Tally()
        self._name = name
        self._address = Deployed(chain, HARNESS, HISTORY_WINDOW, artifact=artifact).address
        self._batch = Batch(Simulator(chain))
        self._known_hashes: set[bytes] = set()
        self._trials = 0

    def begin(self, scene: Scene) -> Trial:
        """Begin a trial. It must be added before another begins."""
        return Trial(scene, self._known_hashes)

    def add(self, trial: Trial, *, reads: bool) -> None:
        """Add a trial.

        With `reads`, also read its facts. Trials run in groups, so a Divergence may belong to an earlier one.
        """
        self._trials += 1
        number = self._trials

        def shown() -> str:
            verdict = trial.refusal or "It takes them."
            return f"{self._name}, trial {number}. The model: {verdict} StepHarness was sent 0x{trial.calldata.hex()}"

        self._batch.add(Call(self._address, trial.calldata), trial.difference, shown)
        self.tally.done += trial.model.count
        if trial.refusal:
            self.tally.refused[sentence(trial.refusal)] += 1
        else:
            self.tally.accepted.update(trial.model.forms)
            self._known_hashes |= trial.ledger.block_hashes
            if reads:
                self._batch.add_reads(self._address, trial.ledger.reads(), shown)
        if self._batch.is_full:
            self.finish()

    def add_case(self, chance: Chance, case: Case) -> int:
        """Try the case amid random memory, and return the number of begun operations.

        Raise Divergence, as `add` does.
        """
        trial = self.begin(case.scene(chance))
        trial.feed(case.operations)
        self.add(trial, reads=chance.happens(0.1))
        return trial.model.count

    def finish(self) -> None:
        """Run the remaining trials. Raise Divergence."""
        self._batch.run()
        self._known_hashes.clear()


def run(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try at least `count` operations, on another StepHarness if given. Deterministic in `seed`.

    Raise Divergence.
    """
    chance = Chance(seed)
    bench = Bench(chain, f"steps.run, seed {seed}, count {count}", artifact)
    done = 0
    while done < count:
        if chance.happens(_SHARE_OF_NEARLY):
            done += bench.add_case(chance, chance.pick(_NEARLY)(chance))
            continue
        begun = random_scene(chance)
        trial = bench.begin(begun.scene)
        feed_operations(chance, begun, trial)
        bench.add(trial, reads=chance.happens(0.1))
        done += trial.model.count
    bench.finish()
    return bench.tally


def feed_operations(chance: Chance, begun: Begun, trial: Trial) -> None:
    """Run random operations that mostly fit the scene, until one is refused."""
    model, stack = trial.model, begun.seeming
    for number in range(chance.pick((1, 1, 1, 2, 2, 3, 5))):
        if number:
            stack = model.open_stack
        below = None if model.storage is None else model.state
        operation = begun.writer.suiting(stack, below, is_history=model.owner == HISTORY_ADDRESS)
        is_branch = BRANCH <= operation[0] < END_OF_BRANCHES
        if not number and is_branch and operation[0] & 0x0F >= begun.beyond:
            # The operation takes the existing subtrees, and also has children for those that only seem to be there.
            operation = bytes([operation[0] - begun.beyond]) + operation[1:]
        if chance.happens(0.15):
            operation = mutate(chance, operation)
        if not trial.feed(operation):
            # Bytes after a refused operation don't matter, unless the operation lacks bytes.
            if trial.refusal != _CUT and chance.happens(0.3):
                trial.calldata += chance.randbytes(chance.pick((1, 32, 500)))
            break
