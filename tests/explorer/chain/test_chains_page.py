"""`/chains.json` lists connections and chains as workers have stored them. The page shows the same."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from eth_account import Account

from chains.attestation import AttestationRequest, Domain, ask, sign
from config.configured_chains import forget_chains
from devnet.devchain import ACCOUNTS, DevChain
from proving import stops
from proving.health import attester_checks
from proving.models import AttesterWatch, ChainWatch, FactsRegistry
from queries.models import Batch, Block, Query, Sender
from queries.waits import wait
from tests.chains import lying_node
from tests.explorer import batches
from tests.inside.working import observe, watch
from tests.service import ALICE, BOB, CHARLIE, chains_toml, reconfigure

pytestmark = pytest.mark.django_db

GWEI = 10**9
MINUTE = timedelta(minutes=1)
KEYS = dict(ACCOUNTS)

REMEDY = "The operator must run: manage.py deploy_registry 31337 31337 --replace"


@pytest.fixture
def no_node(db, settings, tmp_path) -> None:
    """Configure a chain whose node is down, with recent observations of the chain."""
    settings.CHAINS_FILE = chains_toml(tmp_path, batches.DEAD_NODE)
    batches.deployed()
    saw(number=20_000, timestamp=int(time.time()), final=19_936, gas_price=2 * GWEI, keeps_hashes=True)


def saw(chain_id: int = 31337, *, ago: timedelta = timedelta(), **values: Any) -> None:
    at = timezone.now() - ago
    ChainWatch.objects.update_or_create(chain_id=chain_id, defaults={"looked_at": at, "seen_at": at} | values)


def page() -> str:
    answer = Client().get("/chains")
    assert answer.status_code == 200
    return " ".join(answer.text.split())


def chains_json() -> Any:
    answer = Client().get("/chains.json")
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    return answer.json()


def connection(source: int = 31337) -> Any:
    (entry,) = [candidate for candidate in chains_json()["connections"] if candidate["sourceChainId"] == str(source)]
    return entry


def chain_of(chain_id: int = 31337) -> Any:
    (entry,) = [candidate for candidate in chains_json()["chains"] if candidate["chainId"] == str(chain_id)]
    return entry


# --- Connections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keeps_hashes", "direct", "path_of", "most", "each", "to_first"),
    [(True, 8191, "hops", 50, 8191, True), (False, 256, "hops", 0, 8191, False), (None, 256, None, 0, 8191, False)],
)
def test_its_reach_is_that_of_the_chain_as_it_was_seen(no_node, keeps_hashes, direct, path_of, most, each, to_first):
    saw(keeps_hashes=keeps_hashes)
    reach = connection()["reach"]
    assert (reach["directBlocks"], reach["pathOf"], reach["most"], reach["blocksEach"]) == (direct, path_of, most, each)
    assert (reach["toFirstBlock"], reach["seconds"]) == (to_first, direct + most * each)


def test_the_chains_page_reaches_the_first_block_by_jumps_or_says_why_not(no_node, settings):
    saw(number=20_000_000)
    chain = "genesis_time = 1, bellatrix = 0, capella = 0, deneb = 0, electra = 0"
    reconfigure(settings, "block_seconds = 1\n", f"block_seconds = 1\nbeacon_chain = {{ {chain} }}\n")
    assert connection()["reach"]["whyNoJump"].endswith("so only hops reach old blocks.")
    FactsRegistry.objects.update(beacon_history=batches.BLOCK_HASH_SOURCE)
    reach = connection()["reach"]
    assert "has neither beacon_urls nor era_files" in reach["whyNoJump"]
    assert (reach["jumps"], reach["gasOfJump"], reach["toFirstBlock"]) == (False, None, False)
    reconfigure(settings, "block_seconds = 1\n", 'block_seconds = 1\nbeacon_urls = ["http://127.0.0.1:9"]\n')
    reach = connection()["reach"]
    assert (reach["jumps"], reach["gasOfJump"], reach["toFirstBlock"]) == (True, 75_000, True)


def test_the_chains_page_says_how_far_jumps_reach_where_nothing_is_known_of_before_capella(no_node, settings):
    saw(number=20_000_000)
    FactsRegistry.objects.update(beacon_history=batches.BLOCK_HASH_SOURCE)
    start = int(timezone.now().timestamp()) - 1_000 * 86_400
    chain = f"genesis_time = {start}, bellatrix = 0, capella = 720_000, deneb = 720_000, electra = 720_000"
    node = 'beacon_urls = ["http://127.0.0.1:9"]'
    reconfigure(settings, "block_seconds = 1\n", f"block_seconds = 1\n{node}\nbeacon_chain = {{ {chain} }}\n")
    reach = connection()["reach"]
    assert (reach["jumps"], reach["gasOfJump"], reach["toFirstBlock"]) == (True, 75_000, False)
    assert reach["seconds"] == pytest.approx(900 * 86_400, abs=600)
    assert reach["whyNoJump"].startswith("No list is known for blocks of ")
    assert reach["whyNoJump"] in page()
    assert "to the first block" not in page()


@pytest.mark.parametrize("state", ["refused", "unchecked", "being deployed", "replaced"])
def test_a_registry_is_told_only_as_far_as_it_may_be_believed(no_node, state):
    rows = FactsRegistry.objects.all()
    if state == "refused":
        rows.update(code_hash="0x" + "ab" * 32, refused="The registry is a forgery.")
    elif state == "being deployed":
        rows.update(deployed_at=None)
    elif state == "replaced":
        rows.update(replaced_at=timezone.now())
    entry = connection()
    assert not entry["codeIsRight"]
    if state == "refused":
        assert entry["notes"] == ["The registry is a forgery."]
    elif state == "unchecked":
        assert (entry["factsRegistry"], entry["codeHash"], entry["notes"]) == (batches.REGISTRY, None, [])
    else:
        assert entry["factsRegistry"] is None
        assert entry["notes"] == ["No facts registry is deployed on chain 31337 for chain 31337."]


def test_stops_and_notices_of_the_operator_are_shown_for_a_connection(no_node):
    stops.stop(31337, by="A test.", reason="Gas is dear.")
    stops.stop(31337, by="A test.", reason="Its nodes lie.", source=31337)
    risk = wait("attester_conflict", problem="Attesters contradict the nodes.")
    FactsRegistry.objects.update(risk=risk, risk_seen_at=timezone.now())
    notes = connection()["notes"]
    assert notes[0] == "The operator has stopped sending on chain 31337. The reason given: Gas is dear."
    assert notes[1].endswith("The reason given: Its nodes lie.")
    assert notes[2] == "Attesters contradict the nodes."


def test_the_usual_time_is_the_median_of_recent_batches_and_absent_for_too_few(no_node):
    seconds = (5, 40, 1000)
    for number, took in enumerate(seconds):
        assert connection()["usualTime"] is None
        batches.finish(batch := batches.a_batch(block=12 + number))
        now = timezone.now()
        Batch.objects.filter(pk=batch.pk).update(created_at=now - timedelta(seconds=took), finished_at=now)
    assert connection()["usualTime"] == {"seconds": pytest.approx(40), "batches": 3}
    Batch.objects.filter(pk=batch.pk).update(sender=Sender.SELF)
    assert connection()["usualTime"] is None, "It took as long as its sender did."


def test_the_usual_cost_is_the_median_of_what_a_query_of_recent_batches_was_paid(no_node):
    for number, spent in enumerate((4 * GWEI, 0, 40 * GWEI, 6000 * GWEI)):
        assert connection()["usualCost"] is None
        assert "Estimated cost of one balance" in page()
        batches.finish(batch := batches.a_batch(ALICE, BOB, block=12 + number))
        Batch.objects.filter(pk=batch.pk).update(spent=spent)
    assert connection()["usualCost"] == {"wei": str(20 * GWEI), "batches": 3}
    assert "Estimated" not in (html := page())
    assert "median of 3 batches" in html


def test_the_page_of_chains_has_each_contract_address_once(no_node, tmp_path):
    batches.connect_source(tmp_path)
    batches.deployed(batches.SOURCE)
    text = re.sub(r"<[^>]*>", " ", page())
    for address in (batches.REGISTRY, batches.BLOCK_HASH_SOURCE):
        assert text.count(address) == 1


@pytest.mark.parametrize(("named", "seconds"), [("block_99", 30), ("timestamp_1", 30), ("latest", 1000)])
def test_the_usual_time_leaves_out_how_long_a_batch_waits_for_its_last_block_to_come(no_node, named, seconds):
    asked, came_at = {"accounts": {ALICE: {"props": ["BALANCE"]}}}, int(time.time()) - 30
    for number in range(3):
        batch = batches.batch_at(**{f"block_{number}": asked, named: asked})
        batches.find_block(batch, 99)
        batches.finish(batch)
        now = timezone.now()
        Batch.objects.filter(pk=batch.pk).update(created_at=now - timedelta(seconds=1000), finished_at=now)
    Block.objects.filter(number=99).update(timestamp=came_at)
    Query.objects.exclude(timestamp=None).update(timestamp=came_at)
    assert connection()["usualTime"]["seconds"] == pytest.approx(seconds, abs=20)


# --- Chains -----------------------------------------------------------------------------------------------------------


def test_a_dead_node_leaves_what_a_worker_has_seen_with_its_time(service, settings, tmp_path):
    assert connection()["oneBalance"]["wei"] is None
    service.mine(70)
    observe()
    before, told = chain_of(), connection()["oneBalance"]
    assert int(before["finalBlock"]) < int(before["head"]) == service.head()
    assert (before["keepsHashes"], before["problems"]) == (True, [])
    assert 150_000 < told["gas"] < 250_000
    assert int(told["wei"]) == told["gas"] * int(before["gasPrice"])
    ChainWatch.objects.update(seen_at=timezone.now() - 7 * MINUTE)
    settings.CHAINS_FILE = chains_toml(tmp_path, batches.DEAD_NODE)
    forget_chains()
    observe()
    chain, html = chain_of(), page()
    for name in ("head", "headAt", "finalBlock", "gasPrice", "keepsHashes"):
        assert chain[name] == before[name]
    assert "can't be reached" in chain["problems"][0]
    assert "last answered <span" in html
    assert before["seenAt"] > chain["seenAt"]


def test_the_chains_page_asks_no_chain_and_takes_ten_statements_until_something_changes(
    no_node, tmp_path, django_assert_num_queries, monkeypatch
):
    monkeypatch.setattr("chains.bounded_http.send_all", lambda *_: pytest.fail("a chain or an attester was asked"))
    batches.connect_source(tmp_path)
    Client().get("/chains")
    for path in ("/chains", "/chains.json"):
        with django_assert_num_queries(10):
            Client().get(path)
        saw(gas_price=len(path) * GWEI)
        with django_assert_num_queries(10 + 13):
            Client().get(path)


# --- Attesters --------------------------------------------------------------------------------------------------------

Attester = Callable[[Any], Any]
"""A function that returns the answer to a request's body."""


@pytest.fixture
def attested(service: DevChain, tmp_path) -> Iterator[Callable[..., None]]:
    """Yield a function that connects the same chain under another id. All given attesters must sign, and are asked."""
    with ExitStack() as stack:

        def relay(body: Any) -> Any:
            return (
                lying_node.result(body, hex(batches.SOURCE))
                if lying_node.is_chain_id(body)
                else lying_node.ask(service.url, body)
            )

        def connect(**attesters: Attester) -> None:
            addresses = dict(zip(attesters, (ALICE, BOB, CHARLIE), strict=False))
            urls = {
                addresses[name]: stack.enter_context(lying_node.lying_node(answer)) + f"/{name}"
                for name, answer in attesters.items()
            }
            batches.connect_source(tmp_path, stack.enter_context(lying_node.lying_node(relay)), urls)
            batches.deployed(batches.SOURCE)
            watch()

        service.mine(100)
        yield connect


def signing(service: DevChain, address: str, *, block_hash: bytes | None = None) -> Attester:
    """Return an attester that signs the chain's hash of the block, or `block_hash`."""

    def answer(body: Any) -> Any:
        number = int(body["blockNumber"])
        told = block_hash or bytes.fromhex(service.rpc("eth_getBlockByNumber", hex(number), False)["hash"][2:])
        domain = Domain(int(body["destinationChainId"]), body["verifyingContract"])
        signature = sign(
            Account.from_key(KEYS[address]), AttestationRequest(domain, batches.SOURCE, number).message(told)
        )
        return {"blockHash": "0x" + told.hex(), "signature": "0x" + signature.hex()}

    return answer


def answers() -> list[str | None]:
    return [attester["answer"] for attester in connection(batches.SOURCE)["attesters"]["attesters"]]


def ask_again() -> None:
    """Let time pass until attesters are due, and ask them."""
    AttesterWatch.objects.update(asked_at=timezone.now() - 3 * MINUTE)
    watch()


@pytest.mark.long
def test_the_chains_page_shows_each_attesters_answer_including_false_and_late_ones(service, attested, monkeypatch):
    monkeypatch.setattr(attester_checks, "ask", partial(ask, timeout_seconds=3))

    def slow(_: Any) -> Any:
        return lying_node.Raw(b"too late", seconds_between_bytes=1)

    attested(honest=signing(service, ALICE), liar=signing(service, BOB, block_hash=b"\x66" * 32), sleeper=slow)
    attesters, html = connection(batches.SOURCE)["attesters"], page()
    assert answers() == ["signed", "contradicts", "timed_out"]
    assert int(attesters["blockNumber"]) <= service.head() - 32
    assert "1 of 3 required attesters has signed block" in html
    assert f"contradicts our nodes: it signs 0x{'66' * 32}" in html
    assert "/liar" not in html + str(attesters)
    since = [attester["since"] for attester in attesters["attesters"]]
    ask_again()
    assert [attester["since"] for attester in connection(batches.SOURCE)["attesters"]["attesters"]] == since


@pytest.mark.parametrize(
    ("asked", "answered", "mark"),
    [(120, 119, "ok"), (3, 119, "ok"), (361, 361, "off"), (31, 119, "off"), (None, 5, "off")],
    ids=["in time", "being asked", "too long ago", "asked in vain since", "to be asked because one failed"],
)
def test_no_attester_is_marked_as_good_unless_the_last_round_says_so(no_node, tmp_path, asked, answered, mark):
    batches.connect_source(tmp_path)
    now, signed = timezone.now(), {"answer": "signed", "sentence": "It signs.", "since": timezone.now().isoformat()}
    AttesterWatch.objects.create(
        source_chain_id=batches.SOURCE,
        destination_chain_id=31337,
        asked_at=asked and now - timedelta(seconds=asked),
        answered_at=now - timedelta(seconds=answered),
        block=1,
        answers=[signed | {"address": address} for address in batches.DEAD_ATTESTERS],
    )
    assert re.findall(r'<li><span class="state (\w+)">', page()) == [mark] * 2
    assert ("not asked since <time" in page()) == (mark == "off")


def test_caches_keep_the_json_for_some_seconds_and_learn_that_nothing_has_changed(no_node):
    first = Client().get("/chains.json")
    assert first.headers["Cache-Control"] == "max-age=15, public"
    known = {"if-none-match": first.headers["ETag"]}
    again = Client().get("/chains.json", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["Cache-Control"] == "max-age=15, public"
    saw(gas_price=3 * GWEI)
    assert Client().get("/chains.json", headers=known).status_code == 200
