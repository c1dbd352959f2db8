"""What the gas model expects of proofs, and how long an estimate waits."""

import pytest
from django.conf import settings as configured
from eth_utils.crypto import keccak

from campaigns.benchmarks import estimates
from campaigns.benchmarks.gas import Lab, generated
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact
from proving.gas_model import proof_gas, trie_shapes
from proving.gas_model.proof_gas import Missing, Route, Tries
from proving.gas_model.trie_shapes import End, TriePath, path_of
from queries.properties import AccountField, HeaderField
from tests.contracts import tries
from tests.inside.working import work_once
from tests.proving.estimated_batches import Result, cases_of, measured
from tests.service import ALICE, BOB, a_key, asking

# A contract of mainnet that has the most storage.
LARGE = (16, 16, 16, 16, 16, 16, 4)


def is_right(result: Result) -> bool:
    return 0 <= result.above <= 0.25 and result.bound >= result.spent


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
    for case, gas in zip(cases, used, strict=True):
        slots = len(case.accounts[0].slots)
        wanted: list[Fact] = [
            AccountFact(ALICE, AccountField.BALANCE),
            *(SlotFact(ALICE, hex(slot)) for slot in range(slots)),
        ]
        assert proof_gas.estimate([Missing(1, wanted, is_known=False)], Tries(), Route()).gas.bound >= gas


def test_three_hundred_balances_of_mainnet_fit_a_days_budget():
    case = generated("300 balances", 300)
    assert estimates.estimated(case).bound < configured.DAILY_GAS_BUDGET


# --- Batches of a development chain -----------------------------------------------------------------------------------


def test_blocks_that_share_a_transaction_take_what_is_expected(service, client, settings):
    service.rpc("anvil_mine", hex(80), hex(5))
    work_once()
    user = a_key()
    cases = [(name, blocks) for name, blocks in cases_of(service) if len(blocks) > 3]
    results = [measured(client, user, name, asking(blocks), work=work_once) for name, blocks in cases]
    wrong = [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)


# --- Parts ------------------------------------------------------------------------------------------------------------


def test_queries_have_parts_that_come_to_no_more_than_the_whole():
    facts: list[Fact] = [
        AccountFact(ALICE, AccountField.BALANCE),
        SlotFact(ALICE, "0x1"),
        AccountFact(BOB, AccountField.NONCE),
    ]
    of_header: list[Fact] = [HeaderFact(HeaderField.GAS_LIMIT), TimeFact(5)]
    (shares,) = proof_gas.estimate([Missing(1, [*facts, *of_header], is_known=False)], Tries(), Route()).shares
    parts = shares.divided({1: facts[:2], 2: facts, 3: of_header, 4: facts})
    whole = sum(shares.parts.values())
    assert whole - 4 <= sum(parts.values()) <= whole
    # Who asks first for an account pays for it.
    assert parts[4] == 0 < parts[2] < parts[1]


def test_a_route_costs_its_transactions_and_what_the_block_hash_source_takes():
    def gas(route: Route) -> proof_gas.Likely:
        return proof_gas.estimate([], Tries(), route).gas

    alone = gas(Route(paths=1, hops=1))
    # Two transactions for the same load; a margin of a twentieth, and at the most what is signed for.
    assert gas(Route(paths=2, hops=1)).expected - alone.expected == 21_000 * 1.05
    fed = gas(Route(paths=1, hops=1, start_gas=proof_gas.Likely(100_000, 300_000)))
    assert fed.expected - alone.expected == 105_000
    assert fed.bound - alone.bound == 300_000


def test_ways_down_a_trie():
    keys = [number.to_bytes(32) for number in range(40)]
    trie = tries.build({keccak(key): tries.encode(7) for key in keys})
    ways = {
        key: path_of(key, tries.proof(trie, keccak(key))) for key in [*keys, *(bytes([9]) * n for n in range(33, 60))]
    }
    assert {ways[key].end for key in keys} == {End.LEAF}
    assert {way.end for key, way in ways.items() if key not in keys} == {End.OTHER, End.EMPTY}
    at_root = len({keccak(key)[0] >> 4 for key in keys})
    assert {way.branches[0] for way in ways.values()} == {(0, at_root)}
    assert {way.depth for way in ways.values()} == {1, 2, 3}
    assert path_of(keys[0], [b"\x80"]) == path_of(keys[0], []) == TriePath([], 0, End.EMPTY)
    leaf = tries.leaf(keccak(keys[0]), tries.encode(7))
    assert (path_of(keys[0], [leaf]).end, path_of(keys[1], [leaf]).end) == (End.LEAF, End.OTHER)


@pytest.mark.parametrize("count", [1, 20, 300])
def test_random_keys_have_as_many_nodes_as_they_are_reckoned_to_have(count):
    keys = [bytes([1, 2]) * 4 + number.to_bytes(24) for number in range(count)]
    trie = tries.build({keccak(key): bytes(33) for key in keys})
    asked = keys[:: max(1, count // 10)]
    proofs = [tries.proof(trie, keccak(key)) for key in asked]
    nodes = {node for proof in proofs for node in proof}
    for shape in (
        trie_shapes.of_random_keys(count),
        trie_shapes.of_paths([path_of(*one) for one in zip(asked, proofs, strict=True)]),
    ):
        assert shape.nodes(len(asked)).raw_count == pytest.approx(len(nodes), rel=0.15, abs=0.5)
