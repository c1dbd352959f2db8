"""What the gas model expects of proofs, and how long an estimate waits."""

from campaigns.benchmarks import estimates
from campaigns.benchmarks.gas import Lab, generated
from proving import gas
from proving.facts import AccountFact, Fact, SlotFact
from proving.gas import Missing, Route, Sample
from queries.columns import AccountField
from tests.inside.working import work_once
from tests.proving.estimated_batches import Result, cases_of, measured
from tests.service import ALICE, a_key, asking

# A contract of mainnet that has the most storage.
LARGE = (16, 16, 16, 16, 16, 16, 4)


def is_right(result: Result) -> bool:
    return abs(result.above) <= 0.2 and result.bound >= result.spent


# --- Proofs of mainnet's shape ----------------------------------------------------------------------------------------


def test_proofs_of_mainnets_shape_take_what_is_expected():
    cases = list(estimates.proof_cases())
    wrong = []
    for number in dict.fromkeys(case.number for case in cases):
        with Lab(number) as lab:
            results = [estimates.of_proof(lab, case) for case in cases if case.number == number]
        wrong += [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)


def test_what_is_not_known_is_taken_for_mainnets_largest():
    cases = [generated("", 1, slots=slots, slot_levels=levels) for slots in (1, 24) for levels in ((16, 2), LARGE)]
    with Lab(cases[0].number) as lab:
        used = [lab.run(case).tx for case in cases]
    for case, took in zip(cases, used, strict=True):
        slots = len(case.accounts[0].slots)
        wanted: list[Fact] = [
            AccountFact(ALICE, AccountField.BALANCE),
            *(SlotFact(ALICE, hex(slot)) for slot in range(slots)),
        ]
        assert gas.estimate([Missing(1, wanted, is_known=False)], Sample(), Route()).gas.bound >= took


# --- Batches of a development chain -----------------------------------------------------------------------------------


def test_blocks_that_share_a_transaction_take_what_is_expected(service, client, settings):
    service.rpc("anvil_mine", hex(80), hex(5))
    work_once()
    user = a_key()
    cases = [(name, blocks) for name, blocks in cases_of(service) if len(blocks) > 3]
    results = [measured(client, user, name, asking(blocks), work=work_once) for name, blocks in cases]
    wrong = [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)
