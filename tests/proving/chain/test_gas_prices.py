"""The gas prices of a destination, and forks of it that nodes tell."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import ChainHead, ChainWatch, Transaction
from tests.chains.geth_answers import AMSTERDAM, OSAKA
from tests.chains.lying_node import ask, between
from tests.deployed import deploy_on
from tests.explorer.batches import beat
from tests.proving.estimated_batches import estimate
from tests.service import ALICE, chains_toml, done, reconfigure, request, submit, waiting, work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]

TEST_NETWORK = "test_network = true"
# The gas of a creation that stores a word and 32 bytes of code, by the prices of each fork.
OSAKA_GAS, AMSTERDAM_GAS = 81_643, 366_729
DAY = 86_400


def healthz() -> Any:
    return Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()


def stored() -> Any:
    """Return the record of the destination, and the measured gas over it."""
    head = ChainHead.objects.get()
    return head.gas_prices, head.gas_scale


def stored_fork() -> Any:
    return ChainHead.objects.get().fork


@contextmanager
def nodes(settings, chain, *changes) -> Iterator[None]:
    """Let the service ask one node for each of the changes of replies, in order."""
    with ExitStack() as stack:
        urls = [stack.enter_context(between(chain.url, change)) for change in changes]
        reconfigure(settings, f'["{chain.url}"]', json.dumps(urls))
        yield
        reconfigure(settings, json.dumps(urls), f'["{chain.url}"]')


# --- Records ----------------------------------------------------------------------------------------------------------


def test_a_worker_finds_today_s_prices_and_reports_no_problem(service):
    work()
    assert (stored(), healthz()["codes"]) == (("osaka", 1), ["no_worker"])


def test_a_false_record_is_told_with_both_figures_and_estimates_follow_the_chain(service, settings, client, key):
    body = request(ALICE, block=service.head())
    work()
    beat()
    right = estimate(client, key, body)["gas"]["expected"]
    reconfigure(settings, TEST_NETWORK, f'{TEST_NETWORK}\ngas_prices = "amsterdam"')
    for _ in range(2):
        work()
    (sentence,) = (sentence for sentence in healthz()["problems"] if "81,643" in sentence)
    assert f"takes 81,643 gas for a small contract that takes {AMSTERDAM_GAS:,}" in sentence
    assert (healthz()["codes"], healthz()["critical"]) == (["unknown_gas_prices"], [])
    assert stored() == ("amsterdam", pytest.approx(OSAKA_GAS / AMSTERDAM_GAS))
    assert [problem for chain in client.get("/chains.json").json()["chains"] for problem in chain["problems"]] == [
        sentence
    ]
    assert 0.5 < estimate(client, key, body)["gas"]["expected"] / right < 2
    done(submit(key, body), service)
    reconfigure(settings, 'gas_prices = "amsterdam"', 'gas_prices = "osaka"')
    work()
    assert (stored(), healthz()["codes"]) == (("osaka", 1), [])


@pytest.mark.parametrize(("word", "codes"), [(22_100, []), (22_101, ["unknown_gas_prices"])])
def test_a_single_price_of_the_file_counts(service, settings, word, codes):
    beat()
    text = settings.CHAINS_FILE.read_text()
    table = f"[chains.gas_prices]\nrecord = 'osaka'\nword = {word}\n[chains.signer]"
    settings.CHAINS_FILE.write_text(text)
    reconfigure(settings, "[chains.signer]", table)
    work()
    assert healthz()["codes"] == codes


def with_estimates(factor: float, *, obeys_gas: bool, url: str) -> Any:
    """Return a change that makes a node estimate so many times as much, and maybe ignore the gas of calls."""

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_estimateGas" and "result" in reply:
            return [reply | {"result": hex(int(int(reply["result"], 16) * factor))}]
        if question["method"] == "eth_call" and "gas" in question["params"][0] and not obeys_gas:
            call, *others = question["params"]
            return [ask(url, question | {"params": [{**call, "gas": hex(10**7)}, *others]})]
        return [reply]

    return change


def test_a_node_alone_that_scales_what_it_tells_is_believed_and_two_are_compared(service, settings, client, key):
    beat()
    body = request(ALICE, block=service.head())
    work()
    right = estimate(client, key, body)["gas"]["expected"]
    scaled = with_estimates(1.5, obeys_gas=False, url=service.url)
    only_estimates = with_estimates(1.5, obeys_gas=True, url=service.url)
    with nodes(settings, service, scaled):
        work()
        assert healthz()["codes"] == ["unknown_gas_prices"]
        assert stored() == ("osaka", pytest.approx(1.5, rel=0.001))
        assert estimate(client, key, body)["gas"]["expected"] == pytest.approx(1.5 * right, rel=0.01)
    for changes in ([only_estimates], [scaled, lambda _, reply: [reply]], [lambda _, reply: [reply], scaled]):
        with nodes(settings, service, *changes):
            work()
            assert (stored(), healthz()["codes"]) == (("osaka", 1), [])
            assert estimate(client, key, body)["gas"]["expected"] == right
    with nodes(settings, service, scaled, with_estimates(1.2, obeys_gas=False, url=service.url)):
        work()
        assert (stored()[1], healthz()["codes"]) == (pytest.approx(1.2, rel=0.001), ["unknown_gas_prices"])


# --- Forks to come ----------------------------------------------------------------------------------------------------

MORE_BLOBS = OSAKA | {"blobSchedule": OSAKA["blobSchedule"] | {"max": 21}}
HEGOTA = AMSTERDAM | {"precompiles": AMSTERDAM["precompiles"] | {"P18": f"0x{18:040x}"}}


def config(next_fork: Any, seconds: float, *, last: Any = None, after: float = 0) -> Any:
    """Return a node's configuration with a fork in these seconds, and a last one later."""
    at = int(time.time() + seconds)
    next_fork = next_fork and deepcopy(next_fork) | {"activationTime": at}
    return {
        "current": OSAKA,
        "next": next_fork,
        "last": (last and last | {"activationTime": at + int(after)}) or next_fork,
    }


def telling(answer: Any) -> Any:
    """Return a change by which a node gives this answer to `eth_config`."""

    def change(question: Any, reply: Any) -> list[Any]:
        is_asked = question["method"] == "eth_config"
        told = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
        return [told if is_asked and answer is not None else reply]

    return change


FORKS: dict[str, tuple[Any, str]] = {
    "known": (config(AMSTERDAM, 30 * DAY), "notice"),
    "unknown": (config(HEGOTA, 30 * DAY), "fork_unknown"),
    "without a sign of what changes": (config(OSAKA, 30 * DAY), "fork_unknown"),
    "after the known one": ({**config(AMSTERDAM, 30 * DAY), "current": AMSTERDAM}, "fork_unknown"),
    "of blobs": (config(MORE_BLOBS, 30 * DAY), ""),
    "of blobs, before another": (config(MORE_BLOBS, DAY, last=AMSTERDAM, after=20 * DAY), "notice"),
    "known, with another contract of deposits": (
        config(
            AMSTERDAM | {"systemContracts": {**AMSTERDAM["systemContracts"], "DEPOSIT_CONTRACT_ADDRESS": ALICE}}, DAY
        ),
        "notice",
    ),
    "too far": (config(HEGOTA, 61 * DAY), ""),
    "none": (config(None, 0), ""),
    "no method": (None, ""),
    "no object": ([], ""),
    "no contracts": ({"current": {"activationTime": 0}, "next": {"activationTime": 2**70}}, ""),
    "impossibly late": (config(HEGOTA, 10**30), ""),
}


@pytest.mark.long(*(FORKS.keys() - {"known", "unknown", "of blobs, before another", "no object"}))
@pytest.mark.parametrize(("answer", "kind"), FORKS.values(), ids=FORKS)
def test_a_fork_ahead_is_told_wherever_problems_are(service, settings, client, answer, kind):
    beat()
    with nodes(settings, service, telling(answer)):
        work()
        told, output = healthz(), StringIO()
        try:
            call_command("check_chains", stdout=output)
        except CommandError as error:
            output.write(str(error))
        (chain,) = client.get("/chains.json").json()["chains"]
        page = client.get("/chains").content.decode()
    assert told["codes"] == [kind] * kind.startswith("fork")
    sentences = told["problems"] + told["notices"]
    assert bool(sentences) == bool(kind)
    assert chain["problems"] == sentences
    assert ChainWatch.objects.get().resting_nodes == []
    for sentence in sentences:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(stored_fork()["at"]))
        assert sentence.startswith(f"Development chain (31337) forks at {at}, as one node says.")
        assert ("does not know" in sentence) == (kind == "fork_unknown")
        assert sentence in output.getvalue()
        assert sentence in page


@pytest.mark.parametrize(("gloas", "code"), [("", "fork_unknown"), ("gloas = 10_000_000", "")])
def test_a_known_fork_without_a_slot_on_the_beacon_chain_is_unknown(service, settings, gloas, code):
    forks = "bellatrix = 0\ncapella = 0\ndeneb = 0\nelectra = 0"
    table = f"[chains.beacon_chain]\ngenesis_time = 1_700_000_000\n{forks}\n{gloas}"
    reconfigure(settings, "\n[[connections]]", f"\n{table}\n[[connections]]")
    beat()
    with nodes(settings, service, telling(config(AMSTERDAM, 30 * DAY))):
        work()
        told = healthz()
    (sentence,) = [each for each in told["problems"] + told["notices"] if " forks at " in each]
    assert ("set gloas in [chains.beacon_chain]" in sentence, "fork_unknown" in told["codes"]) == (
        not gloas,
        bool(code),
    )


def test_most_nodes_decide_on_the_time_and_a_fork_that_is_called_off_is_forgotten(service, settings):
    beat()
    early, late = config(AMSTERDAM, 10 * DAY), config(AMSTERDAM, 20 * DAY)
    with nodes(settings, service, telling(early), telling(late), telling(late), telling(None)):
        work()
        (notice,) = healthz()["notices"]
        assert "2 nodes say" in notice
        assert stored_fork()["at"] == late["next"]["activationTime"]
    with nodes(settings, service, telling(config(HEGOTA, DAY)), telling(config(None, 0))):
        work()
        assert healthz()["codes"] == []
        (notice,) = healthz()["notices"]
        assert "one node says. This version does not know" in notice
    with nodes(settings, service, telling(config(None, 0)), telling(None)):
        work()
    assert (healthz()["notices"], stored_fork()) == ([], None)


@pytest.mark.parametrize(("seconds", "asked"), [(DAY, 1), (1800, 3)])
def test_nodes_are_asked_for_forks_once_an_hour_and_more_often_shortly_before_one(service, settings, seconds, asked):
    answer, questions = telling(config(AMSTERDAM, seconds)), list[str]()

    def record(question: Any, reply: Any) -> list[Any]:
        questions.append(question["method"])
        return list(answer(question, reply))

    with nodes(settings, service, record):
        work(rounds=3)
    assert questions.count("eth_config") == asked


@pytest.mark.long("one of two nodes", "later")
@pytest.mark.parametrize(
    ("fork", "seconds", "tellers", "factor"),
    [(AMSTERDAM, 1800, 2, 2.6), (AMSTERDAM, 1800, 1, 1), (HEGOTA, 1800, 2, 1), (AMSTERDAM, 4000, 2, 1)],
    ids=["soon and known", "one of two nodes", "unknown", "later"],
)
def test_estimates_are_dearer_in_the_last_hour_before_a_known_fork(
    service, settings, client, key, fork, seconds, tellers, factor
):
    body = request(ALICE, block=service.head())
    work()
    before = estimate(client, key, body)["gas"]["expected"]
    answers = [telling(config(fork, seconds))] * tellers + [telling(None)] * (2 - tellers)
    with nodes(settings, service, *answers):
        work()
        assert estimate(client, key, body)["gas"]["expected"] == pytest.approx(factor * before, rel=0.1 * (factor > 1))


# In order: the nodes that tell the fork, the seconds until it, and whether the service waits for its first block.
MOMENTS = {
    "two blocks before": (2, 22, True),
    "three blocks before": (2, 34, False),
    "a minute after": (2, -60, True),
    "three minutes after": (2, -180, False),
    "one of two nodes": (1, 22, False),
}


@pytest.mark.long
@pytest.mark.parametrize(("tellers", "seconds", "waits"), MOMENTS.values(), ids=MOMENTS)
def test_nothing_is_signed_from_just_before_a_fork_until_its_first_block(
    late_service, settings, key, tellers, seconds, waits
):
    chain = late_service
    answer = config(AMSTERDAM, seconds)
    answers = [telling(answer)] * tellers + [telling(None)] * (2 - tellers)
    with nodes(settings, chain, *answers):
        work()
        batch = submit(key, request(ALICE, block=chain.head()))
        for _ in range(2):
            work()
            chain.mine()
        assert Transaction.objects.filter(queries__batch=batch).exists() == (not waits)
        assert any("forks at" in sentence for sentence in waiting()) == waits
        chain.rpc("evm_setNextBlockTimestamp", answer["next"]["activationTime"])
        chain.mine()
        forget_chains()
        done(batch, chain)


@pytest.fixture
def late_service(settings, tmp_path, db) -> Iterator[DevChain]:
    """Yield a chain with the registry that is an hour behind the clock, with a block every 12 s."""
    with DevChain(extra_args=["--timestamp", str(int(time.time()) - 3600)]) as chain:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        deploy_on(chain)
        reconfigure(settings, "block_seconds = 1", "block_seconds = 12")
        yield chain
