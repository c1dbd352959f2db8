import re
from dataclasses import replace
from typing import NamedTuple

import pytest

from campaigns.fuzzing import sequences
from campaigns.fuzzing.coverage import OPERATIONS, sentences
from campaigns.fuzzing.judge import AccountField, HeaderField, NotSo, Slot
from campaigns.fuzzing.sequences import Bench, Forge, Model, Trial
from campaigns.fuzzing.tally import Divergence, Tally
from campaigns.fuzzing.unchecked import Unchecked
from chains.encoding import HISTORY_WINDOW
from devnet.devchain import DevChain
from tests.contracts import decoder
from tests.contracts.decoder import InvalidPacked
from tests.contracts.simulator import Outcome
from tests.contracts.weakened import Removal, compile_without, decoder_without

_COUNT = 2_500


@pytest.fixture(scope="module")
def tally(chain: DevChain) -> Tally:
    return sequences.run(chain, seed=1, count=_COUNT)


@pytest.mark.long
def test_what_attackers_prove_is_so(tally: Tally) -> None:
    assert tally.done == _COUNT
    # A campaign is useful only if many attacks are accepted.
    assert tally.accepted["attack"] > 0.4 * _COUNT
    assert tally.accepted["fact"] > 5 * _COUNT
    assert all(tally.accepted[kind] > _COUNT / 200 for kind in sequences.KINDS)


@pytest.mark.long
def test_each_operation_is_taken_in_each_of_its_forms(tally: Tally) -> None:
    forms = {*(f"{operation:02x}" for operation in OPERATIONS), "hash child", "node child", "own child"}
    assert {form: tally.accepted[form] for form in forms if tally.accepted[form] < 3} == {}


@pytest.mark.long
def test_operations_are_refused_by_each_check_of_the_model(tally: Tally) -> None:
    # Other campaigns cover headers, the forms in place of headers, and tries of transactions.
    known = sentences(decoder, "InvalidPacked", "(?!decode|_read_|_check_hash|_strict|_receipt_fields)")
    known -= sentences(decoder._TransactionDecoder, "InvalidPacked")
    assert len(known) > 35
    assert {pattern for pattern in known if not any(re.fullmatch(pattern, each) for each in tally.refused)} == set()


def test_operations_end_where_nothing_is_refused_as_they_end_where_they_are_taken(chain: DevChain) -> None:
    model = Model(decoder)
    with model.recording():
        trials = Forge(3, model, Unchecked(chain)).trials(range(600))
    proofs = [proof for trial in trials for proof in trial.attack.proofs if proof.operations]
    endings = [(proof.ending.root, _strict_root(b"".join(proof.operations))) for proof in proofs]
    assert [strict for _, strict in endings if strict] == [root for root, strict in endings if strict]
    refused = [root for root, strict in endings if not strict]
    assert len(endings) - len(refused) > 300
    # If the registry lacked the check, it would compute a root. The attack's header has that root.
    assert sum(root is not None for root in refused) > 200


def _strict_root(operations: bytes) -> bytes | None:
    """Return the root that the model computes, or None if it refuses."""
    strict = decoder._Decoder(decoder._Reader(operations), HISTORY_WINDOW)
    try:
        strict.run()
        root: bytes = strict.root
    except InvalidPacked:
        return None
    return root


def test_the_same_seed_tries_the_same(chain: DevChain) -> None:
    assert sequences.run(chain, 7, 300) == sequences.run(chain, 7, 300) != sequences.run(chain, 8, 300)


class Hole(NamedTuple):
    """A check that the registry lacks. The model's check is replaced by `by`."""

    removal: Removal
    check_of_model: str
    by: str = ""


HOLES = {
    "a key is absent at a node whose place is not on its way": Hole(
        Removal("PackedTrie", "prefix(difference, node.depth()) != 0 || "),
        "_prefix(key, self.depth) == self.path(self.depth)\n            and ",
    ),
    "an extension leads to an empty place": Hole(
        Removal("PackedTrie", "if (child.reach() != 0)", "if (child.reach() != 0 && child.size() != 1)"),
        "if top.reach:",
        "if top.reach and top.reference != EMPTY:",
    ),
    "an account has another storage than the one that it closes": Hole(
        Removal("StateProof", "if (follows & STORAGE_ROOT_FOLLOWS != 0) revert InvalidProof();"),
        "if follows & STORAGE_ROOT_FOLLOWS:\n                raise",
        "if False:\n                raise",
    ),
    "any contract holds block hashes": Hole(
        Removal("StateProof", " || proof.owner != HISTORY"), "if self._owner != HISTORY_ADDRESS:", "if False:"
    ),
}


@pytest.mark.parametrize("hole", HOLES.values(), ids=HOLES)
def test_it_is_found_that_registry_and_model_are_wrong_alike(chain: DevChain, hole: Hole) -> None:
    [registry] = compile_without({"hole": [hole.removal]}, [["hole"]])
    model = decoder_without(hole.check_of_model, hole.by)
    with pytest.raises(Divergence) as divergence:
        sequences.run(chain, 1, 3_000, artifact=registry, decoder=model)
    # The judge must notice the fault by itself, since registry and model agree. The message must suffice to repeat the
    # run.
    assert re.search(r"^sequences.run, seed 1, attack \d+: (?!The registry)", str(divergence.value))
    assert re.search(r"^0x[0-9a-f]{500,}$", str(divergence.value), re.MULTILINE)


@pytest.fixture(scope="module")
def trial(chain: DevChain) -> tuple[Trial, Outcome]:
    """Return a successful attack after which facts of all kinds are readable, but not all facts of the attack."""
    model = Model(decoder)
    with model.recording():
        trials = Forge(1, model, Unchecked(chain)).trials(range(100))
    for trial, outcome in zip(trials, Bench(chain).run(trials), strict=True):
        if {type(fact) for fact in trial.expected} == {AccountField, Slot, HeaderField} and (
            trial.expected < set(trial.facts_to_read)
        ):
            return trial, outcome
    raise AssertionError("There is no such attack.")


def changed(outcome: Outcome, offset: int) -> Outcome:
    """Return the outcome with one bit flipped in Multicall's answer."""
    data = outcome.data
    return replace(outcome, data=data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])


def test_whatever_is_read_must_be_so(trial: tuple[Trial, Outcome]) -> None:
    attack, outcome = trial
    assert attack.check(outcome) == len(attack.expected)
    end = 64 + int.from_bytes(outcome.data[32:64])
    for count in range(len(attack.facts_to_read)):
        # An answer in Multicall's data has a selector of four bytes and two words.
        for offset in (end - 68 * count - 1, end - 68 * count - 33):
            with pytest.raises(NotSo, match=r"It must be|isn't proven"):
                attack.check(changed(outcome, offset))


def test_registry_and_model_must_agree(trial: tuple[Trial, Outcome]) -> None:
    attack, outcome = trial
    # Offset 68 is behind two words and a selector, in the block hash source's answer.
    with pytest.raises(NotSo, match=r"The registry refuses transaction 0, and the model takes it"):
        attack.check(changed(outcome, 68))
    for index in range(len(outcome.logs)):
        with pytest.raises(NotSo):
            attack.check(replace(outcome, logs=outcome.logs[:index] + outcome.logs[index + 1 :]))
