"""The expected gas is within a fifth of the spent gas, and the bound is never below the spent gas."""

from collections.abc import Callable, Iterator

import pytest

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import Transaction
from queries.models import Batch, BatchStatus, Block, Query
from tests.chains.lying_node import estimating
from tests.deployed import deploy, deploy_on
from tests.explorer.batches import SOURCE, connect_source
from tests.metrics import invalid_replies
from tests.proving.estimated_batches import Result, accounts, cases_of, estimate, measured
from tests.proving.money import limit, stopped
from tests.service import (
    ACCOUNT_FIELDS,
    asking,
    chains_toml,
    fresh,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)
from tests.users import ALICE, BOB, a_key, header

pytestmark = pytest.mark.outside


def is_right(result: Result) -> bool:
    return abs(result.above) <= 0.2 and result.bound >= result.spent


# --- Batches of a development chain -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("step", [4, 1], ids=["each fourth", "all"])
def test_batches_take_what_is_expected(service, client, settings, step):
    settings.MAX_BATCHES_PER_MINUTE = 1000
    service.rpc("anvil_mine", hex(80), hex(5))
    work()
    user, before = a_key(), invalid_replies()
    # `work` proves each block in a turn of its own. The estimate expects larger batches to share transactions.
    cases = [(name, blocks) for name, blocks in cases_of(service) if len(blocks) < 4]
    results = [measured(client, user, name, asking(blocks)) for name, blocks in cases[::step]]
    wrong = [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)
    # No estimate of an honest node is doubted.
    assert invalid_replies() == before


@pytest.mark.long
def test_a_low_estimate_for_an_account_that_does_not_exist_is_honest(service, key):
    before = invalid_replies()
    work_until_done(submit(key, request(f"0x{1000:040x}", block=service.head() - 1, props=ACCOUNT_FIELDS)))
    assert invalid_replies() == before


FALSE_ESTIMATES: dict[str, Callable[[int], int]] = {
    "nothing": lambda _: 0,
    "30,000": lambda _: 30_000,
    "four fifths": lambda gas: gas * 4 // 5,
    "tenfold": lambda gas: gas * 10,
}


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("false", FALSE_ESTIMATES.values(), ids=FALSE_ESTIMATES)
def test_a_false_estimate_of_gas_makes_no_transaction_fail(service, client, settings, false, nodes):
    """The second node, if there is one, is honest."""
    settings.MAX_BATCHES_PER_MINUTE = 1000
    service.rpc("anvil_mine", hex(80), hex(5))
    cases = [(name, blocks) for name, blocks in cases_of(service) if len(blocks) < 4]

    before, is_high = invalid_replies(), false(100_000) > 100_000
    with estimating(service.url, false) as url:
        urls = ", ".join(f'"{node_url}"' for node_url in [url, service.url][:nodes])
        reconfigure(settings, f'"{service.url}"', urls)
        user = a_key()
        for name, blocks in cases[::4]:
            measured(client, user, name, asking(blocks), estimates_high=is_high)
    assert not Transaction.objects.exclude(succeeded=True).exists()
    # A high estimate may be true where the chain charges more.
    assert (invalid_replies() == before) == is_high


@pytest.mark.long
@pytest.mark.parametrize("false", [lambda _: 30_000, lambda gas: gas * 3 // 5], ids=["30,000", "three fifths"])
def test_a_false_estimate_makes_no_path_and_no_deployment_fail(chain, client, db, settings, tmp_path, false):
    with estimating(chain.url, false) as url:
        settings.CHAINS_FILE = chains_toml(tmp_path, url, chain.url, connection="window = 40")
        deploy()
        chain.mine(300)
        # No node rests any more.
        forget_chains()
        blocks = {f"block:{chain.head() - 200}": {"accounts": accounts(1)}}
        measured(client, a_key(), "hops", asking(blocks), chain=chain)
    assert Transaction.objects.exclude(extends=None).exists()
    assert not Transaction.objects.exclude(succeeded=True).exists()


@pytest.fixture
def deep(chain: DevChain, db, settings, tmp_path) -> DevChain:
    """Return a chain whose older blocks are several hops away."""
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 40")
    settings.MAX_BATCHES_PER_MINUTE = 1000
    deploy_on(chain)
    chain.mine(700)
    return chain


@pytest.mark.long
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
    before = invalid_replies()
    results = [measured(client, user, name, asking(blocks), chain=deep) for name, blocks in cases.items()]
    wrong = [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)
    assert invalid_replies() == before


# --- The endpoint -----------------------------------------------------------------------------------------------------


def test_an_estimate_leaves_out_what_the_registry_holds_and_stores_nothing(service, client, key):
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


def test_an_estimate_has_all_reasons_for_a_rejection_at_once(costly, client, key, settings):
    limit(settings, daily_limit_per_user=1000)
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
    assert [
        (rejection["code"], rejection.get("sourceChainId"), rejection["retryable"]) for rejection in told["rejections"]
    ] == [
        ("too_many_open_batches", None, True),
        ("timestamp_before_first_block", "31337", False),
        ("block_too_far_ahead", "31337", True),
        ("too_large_for_budget", None, True),
        ("fee_too_low", None, True),
    ]
    assert told["fee"] == {"sufficient": False}
    assert "fee" not in estimate(client, key, request(ALICE, block=head) | {"fee": "auto"})


def test_later_estimates_are_as_near_as_the_first(service, client, key):
    for _ in range(3):
        body = request(ALICE, block=service.head())
        expected = estimate(client, key, body)["gas"]["expected"]
        assert work_until_done(submit(key, body), service).gas_used == pytest.approx(expected, rel=0.06)
        service.mine()


def test_an_estimate_for_a_self_funded_batch_has_no_limits(costly, client, key, settings):
    limit(settings, daily_limit_per_user=0)
    body = request(ALICE, block=costly.head()) | {"sender": "self"}
    told = estimate(client, key, body)
    assert told["gas"]["bound"] > 1000
    assert (told["rejections"], told.get("fee")) == ([], None)


def test_blocks_to_come_are_estimated_with_their_wait(service, client, key):
    head = service.head()
    now = estimate(client, key, request(ALICE, block=head))
    told = estimate(client, key, request(ALICE, block=head + 5))
    assert told["waits"] == [f"Block {head + 5} of chain 31337 does not exist yet; the head is {head}."]
    assert (told["secondsToDone"], told["rejections"]) == (6, [])
    # None of the accounts has been read, but the state's depth is known.
    assert told["gas"]["expected"] == pytest.approx(now["gas"]["expected"], rel=0.2)
    tagged = asking({"latest": {"accounts": accounts(1)}, "finalized": {"accounts": accounts(1)}})
    assert estimate(client, key, tagged)["sources"][0]["parts"]["headers"]["count"] == 2


@pytest.fixture
def other_source(service, tmp_path) -> Iterator[DevChain]:
    """Yield another chain, whose attester is down."""
    with DevChain(chain_id=SOURCE) as there:
        there.mine(5)
        connect_source(tmp_path, there.url)
        deploy(31337, SOURCE)
        yield there


def test_a_source_chain_that_is_down_is_left_out(service, other_source, client, key, settings):
    body = request(ALICE, block=service.head())
    body["data"][str(SOURCE)] = {"block:3": {"accounts": accounts(1)}}
    told = estimate(client, key, body)
    assert [source["sourceChainId"] for source in told["sources"]] == ["31337", str(SOURCE)]
    here, there = (source["gas"]["bound"] for source in told["sources"])
    assert told["gas"]["bound"] == here + there
    other_source.stop()
    told = estimate(client, key, body)
    assert [source["sourceChainId"] for source in told["sources"]] == ["31337"]
    assert (told["gas"]["bound"], told["rejections"]) == (here, [])
    (sentence,) = told["waits"]
    assert f"({SOURCE})" in sentence


def test_a_chain_of_block_0_alone_rejects_only_its_state(other_source, client, key):
    """Its head is asked for the shape of the tries, and anvil proves it by another root."""
    other_source.rpc("anvil_rollback", 5)
    for block, codes in ((2, []), (0, ["proof_unavailable"])):
        body = asking({f"block:{block}": {"accounts": accounts(1)}}, source=SOURCE)
        rejections = estimate(client, key, body)["rejections"]
        assert [rejection["code"] for rejection in rejections] == codes


def test_an_estimate_is_503_while_the_node_is_down(service, client, key):
    body = request(ALICE, block=service.head())
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


@pytest.mark.story
def test_a_fee_that_is_the_estimate_does_at_a_constant_price(costly, key):
    costly.mine(10)
    head = costly.head()
    blocks = {f"block:{head - back}": {"accounts": accounts(3), "header": ["GAS_LIMIT"]} for back in range(4)}
    batch = submit(key, asking(blocks | {f"block:{head + 2}": {"accounts": accounts(1)}}, fee="auto"))
    assert (batch.fee, batch.fee_is_estimate) == (0, True)
    with stopped():
        work()
    # The fee covers the coming block, too.
    first = fresh(batch).fee
    assert first == batch.estimated_wei
    costly.mine(2)
    with stopped():
        work()
    assert fresh(batch).fee == batch.estimated_wei == first
    work(6, costly)
    assert fresh(batch).status == BatchStatus.DONE, waiting()
    assert 0 < batch.spent < batch.fee


@pytest.mark.long
def test_limits_hold_for_a_fee_that_is_the_estimate(costly, key, settings):
    limit(settings, daily_limit_per_user=1000)
    batch = work_until_done(submit(key, request(ALICE, block=costly.head()) | {"fee": "auto"}))
    assert (batch.rejection_code, batch.rejection_retryable) == ("too_large_for_budget", True)


@pytest.mark.long
def test_a_batch_over_the_daily_limit_is_rejected_for_it_before_its_low_fee(costly, key, settings):
    limit(settings, daily_limit_per_user=1000)
    batch = work_until_done(submit(key, request(ALICE, block=costly.head(), fee=1)))
    assert (batch.rejection_code, batch.rejection_retryable) == ("too_large_for_budget", True)
