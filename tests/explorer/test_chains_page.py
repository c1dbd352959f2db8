"""What can be proven where: the page, its JSON, and what workers store for them."""

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

from accounts.models import User
from chains.attestation import Domain, Question, ask, sign
from config.configured_chains import forget_chains
from devnet.devchain import ACCOUNTS, DevChain
from proving import stops
from proving.health import attester_checks
from proving.models import AttesterWatch, ChainWatch, FactsRegistry
from queries.models import Batch, Sender
from tests.chains import lying_node
from tests.explorer.batches import (
    BLOCK_HASH_SOURCE,
    DEAD_NODE,
    REGISTRY,
    SOURCE,
    a_batch,
    connect_source,
    deployed,
    finish,
)
from tests.inside.working import observe
from tests.service import ALICE, BOB, CHARLIE, chains_toml, reconfigure

pytestmark = pytest.mark.django_db

GWEI = 10**9
MINUTE = timedelta(minutes=1)
KEYS = dict(ACCOUNTS)


@pytest.fixture
def no_node(db, settings, tmp_path) -> None:
    """A chain whose node is down, and what was seen of it a moment ago."""
    settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE)
    deployed()
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
    (found,) = [one for one in chains_json()["connections"] if one["sourceChainId"] == str(source)]
    return found


def chain_of(chain_id: int = 31337) -> Any:
    (found,) = [one for one in chains_json()["chains"] if one["chainId"] == str(chain_id)]
    return found


# --- Connections ------------------------------------------------------------------------------------------------------


def test_it_tells_whom_to_trust_where_the_contracts_are_and_how_far_back_it_goes_at_what_cost(no_node):
    FactsRegistry.objects.update(code_hash="0x" + "ab" * 32)
    one, html = connection(), page()
    assert one["trust"] == "Nobody beyond the chain itself: it knows the hashes of its own blocks."
    assert one["trust"] in html
    assert (one["factsRegistry"], one["blockHashSource"]) == (REGISTRY, BLOCK_HASH_SOURCE)
    assert REGISTRY in html
    assert BLOCK_HASH_SOURCE in html
    assert one["codeIsRight"]
    assert "its code is that of this version" in html
    reach = {"anyFinalBlock": False, "directBlocks": 8191, "pathOf": "hops", "blocksEach": 8191, "most": 50}
    assert one["reach"] == reach | {"gasEach": 250_000, "jumps": False, "gasOfJump": None}
    assert "8,191 blocks without a path; before them at most 50 hops of 8,191 blocks, about 250,000 gas each" in html
    assert int(one["oneBalance"]["wei"]) == one["oneBalance"]["gas"] * 2 * GWEI
    assert 100_000 < one["oneBalance"]["gas"] < 300_000
    assert one["notes"] == []


@pytest.mark.parametrize(
    ("keeps_hashes", "direct", "path_of", "most", "said"),
    [
        (True, 8191, "hops", 50, "to the first block"),
        (False, 256, "headers", 1000, "about 21 min"),
        (None, 256, None, 1000, "not known yet"),
    ],
)
def test_its_reach_is_that_of_the_chain_as_it_was_seen(no_node, keeps_hashes, direct, path_of, most, said):
    saw(keeps_hashes=keeps_hashes)
    reach = connection()["reach"]
    assert (reach["directBlocks"], reach["pathOf"], reach["most"]) == (direct, path_of, most)
    quiet = "" if path_of else ' class="quiet"'
    assert f"<dt>Reach</dt> <dd{quiet}>{said}</dd>" in page()


def test_it_reaches_the_first_block_where_the_registry_jumps_and_says_why_it_does_not(no_node, settings):
    saw(number=20_000_000)
    assert "beacon" not in page()
    chain = "genesis_time = 1, bellatrix = 0, capella = 0, deneb = 0, electra = 0"
    reconfigure(settings, "block_seconds = 1\n", f"block_seconds = 1\nbeacon_chain = {{ {chain} }}\n")
    reach = connection()["reach"]
    assert (reach["jumps"], reach["gasOfJump"]) == (False, None)
    assert "was deployed without a beacon history, so old blocks are proven by hops and walks alone." in page()
    FactsRegistry.objects.update(beacon_history=BLOCK_HASH_SOURCE)
    assert "Development chain (31337) has neither beacon_urls nor era_files, which tell of old blocks." in page()
    assert "<dt>Reach</dt> <dd>about" in page()
    reconfigure(settings, "block_seconds = 1\n", 'block_seconds = 1\nbeacon_urls = ["http://127.0.0.1:9"]\n')
    reach = connection()["reach"]
    assert (reach["jumps"], reach["gasOfJump"]) == (True, 75_000)
    assert "<dt>Reach</dt> <dd>to the first block</dd>" in page()
    assert "Blocks of periods that are over are reached by the beacon chain, about 75,000 gas each" in page()


@pytest.mark.parametrize("state", ["refused", "unchecked", "being deployed", "replaced"])
def test_a_registry_is_told_only_as_far_as_it_may_be_believed(no_node, state):
    rows = FactsRegistry.objects.all()
    if state == "refused":
        rows.update(code_hash="0x" + "ab" * 32, refused="The registry is a forgery.")
    elif state == "being deployed":
        rows.update(deployed_at=None)
    elif state == "replaced":
        rows.update(replaced_at=timezone.now())
    one, html = connection(), page()
    assert not one["codeIsRight"]
    assert "its code is that of this version" not in html
    if state == "refused":
        assert one["notes"] == ["The registry is a forgery."]
        assert "it is not used" in html
    elif state == "unchecked":
        assert one["codeHash"] is None
        assert "its code was not compared yet" in html
    else:
        assert one["factsRegistry"] is None
        assert "not deployed yet" in html
        assert one["notes"][0].startswith("No facts registry is deployed on chain 31337 for chain 31337.")


def test_what_the_operator_has_stopped_or_must_look_into_is_told(no_node):
    stops.stop(31337, by="A test.", reason="Gas is dear.")
    stops.stop(31337, by="A test.", reason="Its nodes lie.", source=31337)
    FactsRegistry.objects.update(notice="Attesters contradict the nodes.")
    notes = connection()["notes"]
    assert notes[0] == "The operator has stopped sending on chain 31337. The reason given: Gas is dear."
    assert notes[1].endswith("The reason given: Its nodes lie.")
    assert notes[2] == "Attesters contradict the nodes."
    assert all(note in page() for note in notes)


def test_it_tells_how_long_half_of_the_last_batches_took_and_nothing_of_too_few(no_node):
    seconds = (5, 40, 1000)
    for number, took in enumerate(seconds):
        assert connection()["usualTime"] is None
        finish(batch := a_batch(block=12 + number))
        now = timezone.now()
        Batch.objects.filter(pk=batch.pk).update(created_at=now - timedelta(seconds=took), finished_at=now)
    assert connection()["usualTime"] == {"seconds": pytest.approx(40), "batches": 3}
    assert "<dd>40 s</dd><dd>median of 3 batches</dd>" in page()
    Batch.objects.filter(pk=batch.pk).update(sender=Sender.SELF)
    assert connection()["usualTime"] is None, "It took as long as its sender did."


# --- Chains -----------------------------------------------------------------------------------------------------------


def test_it_tells_what_a_worker_has_seen_of_a_chain(service):
    service.mine(70)
    observe()
    chain, html = chain_of(), page()
    assert chain["head"] == str(service.head())
    assert int(chain["finalBlock"]) < service.head()
    assert chain["keepsHashes"] is True
    assert 0 < int(chain["gasPrice"]) < 100 * GWEI
    assert chain["problems"] == []
    assert "answer</span>" in html
    assert "gwei" in html
    assert connection()["oneBalance"]["wei"]


def test_it_tells_what_a_balance_costs_at_the_present_gas_price(service):
    assert connection()["oneBalance"]["wei"] is None
    observe()
    told = connection()["oneBalance"]
    assert 150_000 < told["gas"] < 250_000
    assert int(told["wei"]) == told["gas"] * ChainWatch.objects.get().gas_price
    assert f"about {told['gas']:,} gas, if Development chain is as large as Ethereum" in page()


def test_a_dead_node_leaves_what_was_known_with_its_time_and_slows_nothing(service, settings, tmp_path):
    observe()
    before = chain_of()
    ChainWatch.objects.update(seen_at=timezone.now() - 7 * MINUTE)
    settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE)
    forget_chains()
    observe()
    chain, html = chain_of(), page()
    assert [chain[name] for name in ("head", "headAt", "finalBlock", "gasPrice", "keepsHashes")] == [
        before[name] for name in ("head", "headAt", "finalBlock", "gasPrice", "keepsHashes")
    ]
    assert "can't be reached" in chain["problems"][0]
    assert "can&#x27;t be reached" in html
    assert "last answered <span" in html
    assert ">7 min" in html
    assert before["seenAt"] > chain["seenAt"]


def test_what_no_worker_has_looked_at_lately_is_not_told_as_if_it_were_so(no_node):
    assert "answer</span>" in page()
    saw(ago=4 * MINUTE)
    html = page()
    assert "answer</span>" not in html
    assert "last observed <span" in html
    ChainWatch.objects.all().delete()
    html = page()
    assert "not observed yet" in html
    assert connection()["oneBalance"]["wei"] is None


def test_it_asks_no_chain_and_takes_five_statements_whatever_is_connected(
    no_node, tmp_path, django_assert_num_queries, monkeypatch
):
    monkeypatch.setattr("chains.bounded_http.post", lambda *_: pytest.fail("a chain was asked"))
    monkeypatch.setattr("chains.bounded_http.post_all", lambda *_: pytest.fail("an attester was asked"))
    connect_source(tmp_path)
    Client().get("/chains")
    for path in ("/chains", "/chains.json"):
        with django_assert_num_queries(5):
            Client().get(path)


# --- Attesters --------------------------------------------------------------------------------------------------------

Attester = Callable[[Any], Any]
"""A function from the body of a request to the answer."""


@pytest.fixture
def attested(service: DevChain, tmp_path) -> Iterator[Callable[..., None]]:
    """Connects the same chain under another id by these attesters, all of which must sign; and asks them."""
    with ExitStack() as stack:

        def relay(body: Any) -> Any:
            return (
                lying_node.result(body, hex(SOURCE))
                if lying_node.is_chain_id(body)
                else lying_node.ask(service.url, body)
            )

        def connect(**attesters: Attester) -> None:
            addresses = dict(zip(attesters, (ALICE, BOB, CHARLIE), strict=False))
            urls = {
                addresses[name]: stack.enter_context(lying_node.lying_node(answer)) + f"/{name}"
                for name, answer in attesters.items()
            }
            connect_source(tmp_path, stack.enter_context(lying_node.lying_node(relay)), urls)
            deployed(SOURCE)
            attester_checks.watch()

        service.mine(100)
        yield connect


def signing(service: DevChain, address: str, *, block_hash: bytes | None = None) -> Attester:
    """Signs the hash of the block that the chain has, or this one."""

    def answer(body: Any) -> Any:
        number = int(body["blockNumber"])
        told = block_hash or bytes.fromhex(service.rpc("eth_getBlockByNumber", hex(number), False)["hash"][2:])
        domain = Domain(int(body["destinationChainId"]), body["verifyingContract"])
        signature = sign(Account.from_key(KEYS[address]), Question(domain, SOURCE, number).message(told))
        return {"blockHash": "0x" + told.hex(), "signature": "0x" + signature.hex()}

    return answer


def answers() -> list[str | None]:
    return [one["answer"] for one in connection(SOURCE)["attesters"]["attesters"]]


def ask_again() -> None:
    """Time passes until attesters are asked again."""
    AttesterWatch.objects.update(asked_at=timezone.now() - 3 * MINUTE)
    attester_checks.watch()


def test_it_tells_what_each_attester_answered_the_lying_and_the_slow_one_too(service, attested, monkeypatch):
    monkeypatch.setattr(attester_checks, "ask", partial(ask, timeout_seconds=0.5))

    def slow(_: Any) -> Any:
        return lying_node.Raw(b"too late", seconds_between_bytes=0.2)

    attested(honest=signing(service, ALICE), liar=signing(service, BOB, block_hash=b"\x66" * 32), sleeper=slow)
    asked, html = connection(SOURCE)["attesters"], page()
    assert answers() == ["signed", "contradicts", "timed_out"]
    assert asked["threshold"] == 3
    assert int(asked["blockNumber"]) <= service.head() - 32
    assert "1 of 3 required attesters has signed block" in html
    assert "Nothing can be proven until more do." in html
    assert f"contradicts our nodes: it signs 0x{'66' * 32}" in html
    assert "did not answer within 0.5 seconds" in html
    assert "/liar" not in html + str(asked)
    since = [one["since"] for one in asked["attesters"]]
    ask_again()
    assert [one["since"] for one in connection(SOURCE)["attesters"]["attesters"]] == since


def test_they_are_asked_each_two_minutes_by_one_worker(service, attested):
    bodies: list[Any] = []
    attested(honest=lying_node.recording(bodies, signing(service, ALICE)))
    attester_checks.watch()
    assert len(bodies) == 1
    ask_again()
    assert len(bodies) == 2
    # One that a clock ahead has asked.
    AttesterWatch.objects.update(asked_at=timezone.now() + 60 * MINUTE)
    attester_checks.watch()
    assert len(bodies) == 3
    assert answers() == ["signed"]
    assert "Nothing can be proven" not in page()


def test_while_nobody_asks_them_the_page_says_when_somebody_did(service, attested, settings, tmp_path):
    attested(honest=signing(service, ALICE))
    settings.CHAINS_FILE = chains_toml(tmp_path, service.url)
    connect_source(tmp_path, DEAD_NODE, {ALICE: DEAD_NODE})
    ask_again()
    assert answers() == ["signed"], "the nodes of their chain are down"
    assert "1 of 1 attesters signed block" in page()
    AttesterWatch.objects.update(answered_at=timezone.now() - 11 * MINUTE)
    html = page()
    assert "1 of 1 attesters signed block" not in html
    assert "they were last asked <span" in html
    AttesterWatch.objects.all().delete()
    assert "they were not asked yet" in page()


# --- Caches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/chains", "/chains.json"])
def test_caches_keep_it_for_some_seconds_and_learn_that_nothing_has_changed(no_node, path, monkeypatch):
    monkeypatch.setattr("explorer.lists.chain_views.time.time", lambda: 1_000_000.0)
    first = Client().get(path)
    assert first.headers["Cache-Control"] == "max-age=15, public"
    known = {"if-none-match": first.headers["ETag"]}
    again = Client().get(path, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["Cache-Control"] == "max-age=15, public"
    saw(gas_price=3 * GWEI)
    assert Client().get(path, headers=known).status_code == 200


def test_what_one_user_or_theme_sees_is_no_others(no_node, monkeypatch):
    monkeypatch.setattr("explorer.lists.chain_views.time.time", lambda: 1_000_000.0)
    plain, dark, alice = Client(), Client(), Client()
    dark.cookies["theme"] = "dark"
    alice.force_login(User.objects.for_address(ALICE))
    seen = [client.get("/chains") for client in (plain, dark, alice)]
    assert len({answer.headers["ETag"] for answer in seen}) == 3
    assert all("Cookie" in answer.headers["Vary"] for answer in seen)
    assert seen[2].headers["Cache-Control"] == "max-age=15, private"


def test_who_signs_in_anew_is_not_told_that_nothing_has_changed(no_node, monkeypatch):
    monkeypatch.setattr("explorer.lists.chain_views.time.time", lambda: 1_000_000.0)
    alice = Client()
    alice.force_login(User.objects.for_address(ALICE))
    alice.cookies["csrftoken"] = "a" * 32
    before = {"if-none-match": alice.get("/chains").headers["ETag"]}
    assert alice.get("/chains", headers=before).status_code == 304
    alice.cookies["csrftoken"] = "b" * 32
    assert alice.get("/chains", headers=before).status_code == 200


def test_its_ages_are_made_anew_each_minute(no_node, monkeypatch):
    etags = set()
    for now in (1_000_000.0, 1_000_061.0):
        monkeypatch.setattr("explorer.lists.chain_views.time.time", lambda now=now: now)
        etags.add(Client().get("/chains").headers["ETag"])
    assert len(etags) == 2


def test_it_works_where_nothing_is_connected(settings, no_node):
    settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text().partition("[[connections]]")[0])
    forget_chains()
    assert "No chains are connected yet." in page()
    assert chains_json()["connections"] == []
