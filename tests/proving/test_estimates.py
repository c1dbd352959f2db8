"""What is expected is never below what is spent, and at most a quarter above; and the bound is never below."""

from collections.abc import Iterator

import pytest
from django.conf import settings as configured
from eth_utils.crypto import keccak

from campaigns.benchmarks import estimates
from campaigns.benchmarks.estimates import Result
from campaigns.benchmarks.gas import Lab, generated
from chains.trie_path import End, TriePath, path_of
from config import rpc_bulkhead
from config.configured_chains import forget_chains, get_chains
from devnet.devchain import DevChain
from proving import batch_estimate
from proving.admission.admit import admit
from proving.budget import allowance
from proving.budget.reservations import Reservation
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact
from proving.gas_model import proof_gas, trie_shapes
from proving.gas_model.proof_gas import Missing, Route, Tries
from proving.models import Transaction
from proving.registry.deploying import deploy
from queries.models import Batch, BatchStatus, Block, Query
from queries.properties import AccountField, HeaderField
from tests.contracts import tries
from tests.inside.working import work_once
from tests.proving.estimated_batches import accounts, cases_of, estimate, measured
from tests.proving.sources import THERE
from tests.service import (
    ALICE,
    BOB,
    a_key,
    asking,
    chains_toml,
    fresh,
    header,
    request,
    submit,
    waiting,
    work_until_done,
)

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


def test_batches_take_what_is_expected(service, client, settings):
    settings.MAX_BATCHES_PER_MINUTE = 1000
    service.rpc("anvil_mine", hex(80), hex(5))
    work_once()
    user = a_key()
    results = [measured(client, user, name, asking(blocks)) for name, blocks in cases_of(service)]
    wrong = [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def deep(chain: DevChain, db, settings, tmp_path) -> DevChain:
    """A chain whose older blocks are several hops away."""
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 40")
    settings.MAX_BATCHES_PER_MINUTE = 1000
    deploy(31337, 31337)
    chain.mine(700)
    return chain


def test_paths_take_what_is_expected(deep, client):
    user = a_key()
    head = deep.head()
    cases: dict[str, dict[str, object]] = {
        "1 hop": {f"block:{head - 60}": {"accounts": accounts(1)}},
        "3 blocks that share a path of 5 hops": {
            f"block:{head - 260 - n}": {"accounts": accounts(1)} for n in range(3)
        },
        "a header, 6 hops on": {f"block:{head - 500}": {"header": ["TIMESTAMP"]}},
    }
    results = [measured(client, user, name, asking(blocks), chain=deep) for name, blocks in cases.items()]
    wrong = [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)


# --- The endpoint -----------------------------------------------------------------------------------------------------


def test_it_tells_what_the_registry_holds_and_stores_nothing(service, client, key):
    block, other = service.head() - 1, service.head()
    work_until_done(submit(key, request(ALICE, block=block)))
    rows = [model.objects.count() for model in (Batch, Query, Block, Transaction)]
    both = {"accounts": {ALICE: {"props": ["BALANCE"]}, BOB: {"props": ["BALANCE"], "slots": ["0x1", "0x2"]}}}
    told = estimate(client, key, asking({f"block:{block}": both, f"block:{other}": {"header": ["GAS_LIMIT"]}}))
    assert rows == [model.objects.count() for model in (Batch, Query, Block, Transaction)]
    (source,) = told["sources"]
    counts = {name: (part["count"], part["inRegistry"]) for name, part in source["parts"].items()}
    assert counts == {"headers": (2, 1), "headerFields": (1, 0), "accounts": (2, 1), "slots": (2, 0)}
    for which in ("expected", "bound"):
        assert sum(part["gas"][which] for part in source["parts"].values()) == source["gas"][which]
    assert (source["sourceChainId"], source["gas"]) == ("31337", told["gas"])
    assert (told["transactions"], told["blocksToDone"], told["secondsToDone"]) == (1, 1, 1)
    assert (told["rejections"], told["waits"], told["fee"]) == ([], [], {"sufficient": True})
    price = int(told["gasPrice"])
    assert int(told["wei"]["expected"]) == told["gas"]["expected"] * price
    assert told["gas"]["bound"] * price < int(told["wei"]["bound"]) <= told["gas"]["bound"] * price * 5 // 4
    assert estimate(client, key, request(ALICE, block=block))["gas"] == {"expected": 0, "bound": 0}


def test_it_tells_all_reasons_at_once(costly, client, key, settings):
    settings.DAILY_GAS_BUDGET = 1000
    settings.MAX_OPEN_BATCHES = 1
    submit(key, request(ALICE, block=1))
    head = costly.head()
    told = estimate(
        client,
        key,
        asking(
            {
                f"block:{head}": {"accounts": accounts(1), "header": ["GAS_LIMIT"]},
                f"block:{head + 1000}": {"accounts": accounts(1)},
                "timestamp:1": {"accounts": accounts(1)},
            },
            fee=1,
        ),
    )
    assert [(one["code"], one.get("sourceChainId"), one["retryable"]) for one in told["rejections"]] == [
        ("too_many_open_batches", None, True),
        ("timestamp_before_first_block", "31337", False),
        ("block_too_far_ahead", "31337", True),
        ("too_large_for_budget", None, False),
        ("fee_too_low", None, True),
    ]
    assert told["fee"] == {"sufficient": False}
    assert "fee" not in estimate(client, key, request(ALICE, block=head) | {"fee": "auto"})


def test_what_one_pays_oneself_has_no_limits(costly, client, key, settings):
    settings.DAILY_GAS_BUDGET = 1000
    body = request(ALICE, block=costly.head()) | {"sender": "self"}
    told = estimate(client, key, body)
    assert told["gas"]["bound"] > 1000
    assert (told["rejections"], told.get("fee")) == ([], None)


def test_what_is_to_come_is_estimated_and_waited_for(service, client, key):
    head = service.head()
    now = estimate(client, key, request(ALICE, block=head))
    told = estimate(client, key, request(ALICE, block=head + 5))
    assert told["waits"] == [f"Block {head + 5} of chain 31337 does not exist yet; the head is {head}."]
    assert (told["secondsToDone"], told["rejections"]) == (6, [])
    # It has seen no account of these, but how deep the state is.
    assert now["gas"]["expected"] <= told["gas"]["expected"] < now["gas"]["expected"] * 1.5
    tagged = asking({"latest": {"accounts": accounts(1)}, "finalized": {"accounts": accounts(1)}})
    assert estimate(client, key, tagged)["sources"][0]["parts"]["headers"]["count"] == 2


@pytest.fixture
def other_source(service, settings) -> Iterator[DevChain]:
    """Another chain, attested here by nobody who runs."""
    with DevChain(chain_id=THERE) as there:
        there.mine(5)
        settings.CHAINS_FILE.write_text(
            settings.CHAINS_FILE.read_text()
            + f"""
[[chains]]
id = {THERE}
name = "There"
rpc_urls = ["{there.url}"]
block_seconds = 1

[[connections]]
source = {THERE}
destination = 31337
block_hash_source = "attested"
threshold = 1
[[connections.attesters]]
address = "{ALICE}"
url = "http://127.0.0.1:1"
"""
        )
        forget_chains()
        deploy(31337, THERE)
        yield there


def test_a_source_chain_that_is_down_is_left_out(service, other_source, client, key, settings):
    body = request(ALICE, block=service.head())
    body["data"][str(THERE)] = {"block:3": {"accounts": accounts(1)}}
    told = estimate(client, key, body)
    assert [one["sourceChainId"] for one in told["sources"]] == ["31337", str(THERE)]
    here, there = (one["gas"]["bound"] for one in told["sources"])
    assert told["gas"]["bound"] == here + there
    other_source.stop()
    told = estimate(client, key, body)
    assert [one["sourceChainId"] for one in told["sources"]] == ["31337"]
    assert (told["gas"]["bound"], told["rejections"]) == (here, [])
    (said,) = told["waits"]
    assert f"({THERE})" in said


def test_it_waits_for_nobody_for_long(service, client, key, settings, monkeypatch):
    body = request(ALICE, block=service.head())
    with monkeypatch.context() as patch:
        patch.setattr(batch_estimate, "_MOST_SECONDS", -1)
        answer = estimate(client, key, body, status=503)
        assert (answer["code"], "within -1 s" in answer["error"]) == ("chain_unavailable", True)
    with monkeypatch.context() as patch:
        patch.setattr(rpc_bulkhead, "_most", 0)
        patch.setattr(batch_estimate, "_PATIENCE_SECONDS", 0)
        assert estimate(client, key, body, status=503)["code"] == "busy"
    service.stop()
    answer = estimate(client, key, body, status=503)
    assert answer["code"] == "chain_unavailable"
    assert "Nothing was stored" in answer["error"]


def test_its_body_and_its_rate_are_those_of_a_submission(service, client, key, settings):
    settings.MAX_BATCHES_PER_MINUTE = 2
    wrong = request("0x1", block=1) | {"fee": "x"}
    paths = {fault["path"] for fault in estimate(client, key, wrong, status=400)["details"]}
    assert paths == {"/fee", "/data/31337/block:1/accounts/0x1"}
    estimate(client, key, request(ALICE, block=1))
    refused = estimate(client, key, request(ALICE, block=1), status=429)
    assert refused["error"].startswith("You may estimate 2 batches a minute")
    sent = client.post(
        "/submit-batch-query", request(ALICE, block=1), content_type="application/json", headers=header(key)
    )
    assert sent.status_code == 200, "these are counted apart"
    assert client.post("/estimate-batch-query", {}, content_type="application/json").status_code == 401


# --- The estimate as the fee ------------------------------------------------------------------------------------------


def test_a_fee_that_is_the_estimate_does_at_a_constant_price(costly, key):
    costly.mine(10)
    head = costly.head()
    blocks = {f"block:{head - place}": {"accounts": accounts(3), "header": ["GAS_LIMIT"]} for place in range(4)}
    batch = submit(key, asking(blocks | {f"block:{head + 2}": {"accounts": accounts(1)}}, fee="auto"))
    assert (batch.fee, batch.fee_is_estimate) == (0, True)
    admit(batch.pk)
    # What is still to come brings its own part.
    first = fresh(batch).fee
    assert first == batch.estimated_wei
    costly.mine(2)
    admit(batch.pk)
    assert fresh(batch).fee == batch.estimated_wei > first
    for _ in range(6):
        work_once()
        costly.mine()
    assert fresh(batch).status == BatchStatus.DONE, waiting()
    assert 0 < batch.spent < batch.fee


def test_budgets_hold_for_a_fee_that_is_the_estimate(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 100_000
    batch = submit(key, request(ALICE, block=costly.head()) | {"fee": "auto"})
    admit(batch.pk)
    assert (fresh(batch).rejection_code, batch.rejection_retryable) == ("too_large_for_budget", False)


def test_what_never_fits_is_told_before_a_fee_that_is_too_low(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 100_000
    batch = submit(key, request(ALICE, block=costly.head(), fee=1))
    admit(batch.pk)
    assert (fresh(batch).rejection_code, batch.rejection_retryable) == ("too_large_for_budget", False)


def test_source_chains_that_fit_one_by_one_and_never_together_are_too_large(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 1000
    half, chain = Reservation(600, 1), get_chains().chain(31337)
    assert not list(allowance.exceeded(key.user, chain, half, Reservation(0, 0)))
    (rejection,) = allowance.exceeded(key.user, chain, half, half)
    assert (rejection.code, rejection.retryable) == ("too_large_for_budget", False)
    assert "1200 gas" in rejection.reason


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
