"""Each forgery is refused by the check that it tries to bypass (forgeries.py, jump_forgeries.py).

Registries that lack checks accept the forgeries. Compiling these takes long; `-k "not missing"` leaves them out.
"""

from collections.abc import Callable, Mapping

import pytest
import rlp
from eth_utils.crypto import keccak

from chains.contract_artifacts import Artifact
from chains.encoding import HISTORY_WINDOW
from devnet.devchain import DevChain
from tests.contracts import decoder, forgeries, jump_forgeries
from tests.contracts.conftest import SOURCE_CHAIN_ID
from tests.contracts.deployed import Deployed
from tests.contracts.forgeries import Forgery
from tests.contracts.simulator import Call, Outcome, Simulator
from tests.contracts.weakened import compile_without
from tests.contracts.worlds import number_of

CHECKS = {**forgeries.CHECKS, **jump_forgeries.CHECKS}
FORGERIES = [*forgeries.FORGERIES, *jump_forgeries.FORGERIES]

# Checks that registries and their beacon histories lack. Some lack several unrelated ones, because each compilation
# takes seconds.
LACKING = [
    frozenset({"bottom"}),
    frozenset({"bottom", "zone"}),
    frozenset({"bottom", "wiping"}),
    frozenset({"only", "window"}),
    frozenset({"reach"}),
    frozenset({"storage"}),
    frozenset({"start", "place", "zero"}),
    frozenset({"jump", "constant", "size"}),
    frozenset({"index"}),
    frozenset({"fork", "end"}),
]

each_forgery = pytest.mark.parametrize("make", FORGERIES, ids=lambda make: make.__name__.replace("_", " "))

# The result of a forgery at a registry: the proof's outcome, the outcomes after it, and which lies can be read.
Attempt = Callable[[Forgery, Deployed], tuple[Outcome, list[Outcome], list[bool]]]


@pytest.fixture(scope="module")
def trusted(chain: DevChain) -> Deployed:
    return Deployed(chain, "test/SettableBlockHashSource", SOURCE_CHAIN_ID)


@pytest.fixture(scope="module")
def whole(chain: DevChain, trusted: Deployed) -> Deployed:
    """Return a registry with all checks."""
    return _deploy(chain, trusted)


@pytest.fixture(scope="module")
def lacking(chain: DevChain, trusted: Deployed) -> Mapping[frozenset[str], Deployed]:
    """Return registries by the checks that they or their beacon histories lack."""
    compiled = (compile_without(CHECKS, LACKING, contract) for contract in ("FactsRegistry", "GloasBeaconHistory"))
    return {checks: _deploy(chain, trusted, *artifacts) for checks, *artifacts in zip(LACKING, *compiled, strict=True)}


def _deploy(
    chain: DevChain, trusted: Deployed, registry: Artifact | None = None, beacon: Artifact | None = None
) -> Deployed:
    history_of_jumps = Deployed(chain, "GloasBeaconHistory", jump_forgeries.world().chain.arguments, artifact=beacon)
    arguments = (SOURCE_CHAIN_ID, trusted.address, HISTORY_WINDOW, history_of_jumps.address)
    return Deployed(chain, "FactsRegistry", *arguments, artifact=registry)


@pytest.fixture(scope="module")
def attempt(trusted: Deployed, simulator: Simulator) -> Attempt:
    def attempt_at(forgery: Forgery, registry: Deployed) -> tuple[Outcome, list[Outcome], list[bool]]:
        vouch = trusted.calldata("set", number_of(forgery.header), keccak(forgery.header))
        first = [Call(trusted.address, vouch), *(Call(registry.address, each) for each in forgery.before)]
        reads = [registry.calldata(*arguments) for arguments in forgery.lies]
        sent = [Call(registry.address, each) for each in (forgery.proof, *forgery.after, *reads)]
        # All calls are in one request, so each sees the changes of earlier ones.
        proof, *others = simulator.run(sent, first=first)
        after, answers = others[: len(forgery.after)], others[len(forgery.after) :]
        told = [
            answer.succeeded and answer.data == lie for answer, lie in zip(answers, forgery.lies.values(), strict=True)
        ]
        return proof, after, told

    return attempt_at


@pytest.mark.long("a block that nobody mined")
@each_forgery
def test_a_forgery_is_refused(whole, attempt, make):
    forgery = make()
    proof, after, told = attempt(forgery, whole)
    assert (proof.succeeded, proof.data[:4]) == (False, keccak(text=forgery.refusal)[:4])
    assert not any(outcome.succeeded for outcome in after)
    assert not any(told)
    root = rlp.decode(forgery.header)[3] if forgery.before else None
    with pytest.raises(decoder.InvalidPacked):
        decoder.decode(
            forgery.proof,
            block_hash=lambda _: keccak(forgery.header),
            state_root=lambda _: root,
            beacon=jump_forgeries.world().chain,
        )


@pytest.mark.long("a root without its first byte", "a block that nobody mined")
@each_forgery
def test_a_forgery_works_where_its_check_is_missing_and_only_there(lacking, attempt, make):
    forgery = make()
    for checks, registry in lacking.items():
        works = forgery.missing <= checks
        proof, after, told = attempt(forgery, registry)
        assert proof.succeeded == works, checks
        assert [outcome.succeeded for outcome in after] == [works] * len(after), checks
        assert told == [works] * len(told), checks


def test_every_check_has_a_forgery_that_gets_around_it():
    missing = [make().missing for make in FORGERIES]
    assert set().union(*missing) == set().union(*LACKING) == CHECKS.keys()
    assert all(any(checks <= lacking for lacking in LACKING) for checks in missing)
