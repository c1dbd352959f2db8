import re

import pytest

from campaigns.fuzzing import undefined
from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.interpreter import Execution
from campaigns.fuzzing.ledger import Ledger
from campaigns.fuzzing.memory import STACK, SUBTREE, Model, Scene, Spoilt
from campaigns.fuzzing.mutated import compile_with
from campaigns.fuzzing.reference import Run
from campaigns.fuzzing.steps import HARNESS
from campaigns.fuzzing.tally import Divergence, Tally
from devnet.devchain import DevChain

# Operations by their first byte. An account's operation has many forms, so only its first hex digit counts.
_OPERATIONS = {"00", "10", "11", "1x", "30", "32", "33", "34", "35", "36", "40", "43", "7x", "8x", "9x", "ax", "bx"}
_OPERATIONS |= {"cx", "dx", "ex", "fx"}


def operations(tally: Tally) -> set[str]:
    """Return the operations that were accepted at least five times."""
    counted: dict[str, int] = {}
    for kind, count in tally.accepted.items():
        for name in (kind, kind[0] + "x"):
            counted[name] = counted.get(name, 0) + count
    return {name for name, count in counted.items() if count >= 5 and name in _OPERATIONS}


def test_operations_rest_on_nothing_but_what_subtrees_consist_of(chain: DevChain) -> None:
    tally = undefined.run_steps(chain, seed=1, count=5_000)
    assert operations(tally) == _OPERATIONS
    assert len(tally.refused) > 30


def test_transactions_rest_on_nothing_that_was_in_memory(chain: DevChain) -> None:
    tally = undefined.run_transactions(chain, seed=1, count=1_200)
    forms = ["block by number", "1 headers", "2 headers", "fields of the header", "header alone", "hash of the parent"]
    forms += ["account", "absent account", "slot", "zero slot", "block hash"]
    assert all(tally.accepted[form] >= 10 for form in forms), tally.accepted
    assert len(tally.refused) > 30


def test_the_same_seed_tries_the_same(chain: DevChain) -> None:
    for run in (undefined.run_steps, undefined.run_transactions):
        assert run(chain, 7, 90) == run(chain, 7, 90) != run(chain, 8, 90)


@pytest.mark.parametrize(
    ("source", "run"),
    [
        (f"{HARNESS}.sol", undefined.run_steps),
        ("src/FactsRegistry.sol", undefined.run_transactions),
    ],
)
def test_it_is_found_soon_that_a_stack_is_read_below_its_bottom(chain: DevChain, source: str, run) -> None:
    artifact = compile_with(source, "src/SubtreeStack.sol", "lt(lowest, bottom)", "0")
    with pytest.raises(Divergence) as divergence:
        run(chain, 1, 1_000, artifact=artifact)
    # The message must suffice to repeat the run.
    assert re.match(r"undefined\.run_\w+, seed 1, count 1000, call \d+: .*0x[0-9a-f]{64}", str(divergence.value))


def subtrees(*, depth: int, reach: int, reference: bytes) -> Model:
    state = [Spoilt(reference, key=0x1234 << 240, depth=depth, reach=reach, last=5)]
    return Model(Scene(block=1, state=[*state], storage=None, owner=b"", node=b"", above=b""), Ledger())


@pytest.mark.parametrize(
    ("word", "bit", "may_be"),
    [
        # A subtree of a two-byte node, which is its own reference. Its depth is 3, and its reach 4.
        (0, 0, True),
        (0, 239, True),
        (0, 240, False),
        (1, 0, False),
        (2, 239, True),
        (2, 240, False),
        (3, 0, False),
        (4, 0, False),
        (5, 0, False),
    ],
)
def test_what_a_subtree_consists_of_is_left_defined(word: int, bit: int, may_be: bool) -> None:  # noqa: FBT001
    model = subtrees(depth=3, reach=4, reference=b"\xc1\x05")
    mask = 1 << 256 * (5 - word) + bit
    memory = bytes(STACK) + mask.to_bytes(SUBTREE) + bytes(4 * 32)
    execution = Execution(succeeded=True, data=bytes(len(memory)), undefined=memory, logs=(), storage={})
    assert bool(undefined._left_undefined(model, execution)) != may_be


def test_of_a_branch_the_whole_hash_is_defined_and_no_last_key() -> None:
    mask = undefined._undefined_of(subtrees(depth=3, reach=0, reference=b"\xa0" + bytes(32)).state[0])
    key = (1 << 256 - 12) - 1
    assert mask == bytes(64) + key.to_bytes(32) + bytes(64) + b"\xff" * 32


def test_it_is_found_that_the_interpreter_is_wrong(chain: DevChain) -> None:
    # PUSH1 1 PUSH0 MSTORE PUSH1 32 PUSH0 RETURN, and the same code with 2.
    first_code, second_code = (bytes.fromhex(f"60{number:02x}5f5260205ff3") for number in (1, 2))
    bench = undefined.Bench(chain, first_code, "a test")
    with pytest.raises(Divergence, match="anvil"):
        all(bench.execute(Chance(1), Run(second_code, b"")).succeeded for _ in range(100))


def test_a_contract_that_halts_is_wrong(chain: DevChain) -> None:
    with pytest.raises(Divergence, match="halts"):
        undefined.Bench(chain, b"\xfe", "a test").execute(Chance(1), Run(b"\xfe", b""))
