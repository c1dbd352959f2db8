"""What the operator sees, and that nobody else does."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from chains.exchange_metrics import NODE_EXCHANGE_SECONDS, NODE_EXCHANGES, exchanges
from proving import stops
from proving.models import ChainWatch, FactsRegistry, Share, Signer, Transaction, WorkerHeartbeat
from proving.worker.worker import Worker
from queries import webhooks
from queries.models import Batch, Block, DeliveryStatus, Webhook
from tests.explorer.batches import DEAD_NODE, a_batch, accept, beat, deployed, finish, path, send
from tests.factories import client_of
from tests.service import ALICE, BOB, SIGNER, a_key, chains_toml, request, submit

pytestmark = pytest.mark.django_db

ETHER = 10**18
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
STATEMENTS = 29


@pytest.fixture(autouse=True)
def operated_by_bob(db, settings, tmp_path) -> None:
    """Nothing is wrong."""
    settings.CHAINS_FILE = chains_toml(tmp_path, f"{DEAD_NODE}/secret-path", chain='minimum_signer_balance = "0.5"')
    settings.OPERATOR_ADDRESSES = [BOB.lower()]
    beat()
    deployed()
    saw()


def saw(*problems: tuple[str, str], balance: int = 9 * ETHER, spent: int = 0) -> None:
    values = {"looked_at": timezone.now(), "problems": problems, "balances": {SIGNER: str(balance)}}
    ChainWatch.objects.update_or_create(chain_id=31337, defaults=values | {"spent_by_signer": {SIGNER: str(spent)}})


def page() -> str:
    """Without the space between its parts."""
    answer = client_of(BOB).get("/operator")
    assert answer.status_code == 200
    assert "secret" not in answer.text
    return " ".join(answer.text.split())


# --- Who may see it ---------------------------------------------------------------------------------------------------


def test_nobody_else_learns_that_there_is_such_a_page(settings):
    for client in (Client(), client_of(ALICE)):
        answer = client.get("/operator")
        assert (answer.status_code, "There is nothing here" in answer.text) == (404, True)
    assert client_of(BOB).get("/operator").status_code == 200
    settings.OPERATOR_ADDRESSES = []
    assert client_of(BOB).get("/operator").status_code == 404, "by default there is no operator"


def test_it_only_reads_and_is_neither_kept_nor_indexed():
    client = client_of(BOB)
    answer = client.get("/operator")
    assert "no-store" in answer.headers["Cache-Control"]
    assert "private" in answer.headers["Cache-Control"]
    assert answer.headers["X-Robots-Tag"] == "noindex"
    assert '<meta name="robots" content="noindex">' in answer.text
    assert client.post("/operator").status_code == 405
    assert "<form" not in answer.text.partition("<main")[2].partition("</main>")[0]


# --- What needs a person ----------------------------------------------------------------------------------------------


def test_nothing_needs_anybody_while_nothing_is_wrong():
    html = page()
    assert "<h1>Nothing needs you</h1>" in html
    assert "1 worker runs, 0 rows are due." in html
    assert 'class="needs"' not in html


def test_it_tells_the_problems_and_notices_of_healthz_with_where_to_go():
    saw(("signer_unfunded", "The signer holds nothing."))
    FactsRegistry.objects.update(notice="Attesters contradict the nodes.")
    stops.stop(31337, by=ALICE, reason="A test.")
    html = page()
    health = Client().get("/healthz").json()
    assert len(health["problems"]) == 2
    assert "<h1>3 things need you</h1>" in html
    assert all(sentence in html for sentence in (*health["problems"], *health["notices"]))
    assert '<a href="/admin/proving/stop/">In the admin</a>' in html
    assert html.count("Stops the service") == 2
    assert html.count("Look into it") == 1


def test_a_dead_node_is_told_as_a_worker_saw_it():
    saw(("chain_unavailable", "No node of Development chain (31337) can be used: 127.0.0.1:1 can't be reached."))
    assert "127.0.0.1:1 can&#x27;t be reached." in page()


# --- Queues and failing rows ------------------------------------------------------------------------------------------


def test_queues_are_told_by_kind_and_partition_with_the_age_of_the_oldest():
    a_batch()
    accept(a_batch(block=13))
    Batch.objects.update(due_at=timezone.now() - 5 * MINUTE)
    Block.objects.update(due_at=timezone.now() + 5 * MINUTE)
    html = page()
    name = "Development chain"
    assert f'<strong>batch</strong> <span class="under">{name}</span>' in html
    assert f'<strong>block</strong> <span class="under">{name} to {name}</span>' in html
    assert ">5 min" in html
    assert "2 rows are due." in html


def test_failing_rows_lead_to_their_batch_and_say_why_since_when():
    batch, other = a_batch(), a_batch(block=13)
    accept(batch)
    now = timezone.now()
    failing = {"failing_since": now - 14 * MINUTE, "attempts": 6, "due_at": now + MINUTE}
    Block.objects.filter(queries__batch=batch).update(**failing, waiting_for="No node serves the proof.")
    Batch.objects.filter(pk=other.pk).update(**failing | {"failing_since": now - 3 * MINUTE})
    html = page()
    assert "2 rows fail and are tried again." in html
    blocks, batches = html.index(f'href="{path(batch)}"'), html.index(f'href="{path(other)}"')
    assert blocks < batches, "the longest first"
    assert "No node serves the proof." in html
    assert ">14 min" in html
    assert f"/admin/queries/batch/{other.pk}/change/" in html
    # What nobody comes back to fails no more.
    Block.objects.update(due_at=None)
    Batch.objects.filter(pk=other.pk).update(status="REJECTED")
    assert "Failing rows" not in page()


# --- Workers and nodes ------------------------------------------------------------------------------------------------


def test_workers_are_told_and_those_that_fell_silent():
    now = timezone.now()
    WorkerHeartbeat.objects.create(worker="dead:1:ab", started_at=now - DAY, beat_at=now - 3 * MINUTE)
    html = page()
    assert "1 worker runs" in html
    assert "silent for <span" in html
    assert html.index(">worker</th>") < html.index(">dead:1:ab</th>")
    WorkerHeartbeat.objects.all().delete()
    assert "No worker was heard of within a day." in page()


def test_nodes_are_told_as_running_workers_have_counted_them():
    node = {"chain": "31337", "node": "127.0.0.1:1"}
    counted = [node | {"outcomes": {"answered": 90, "timed_out": 6, "unreachable": 4}, "seconds": 5.0}]
    gone = [{"chain": "99", "node": "elsewhere.example", "outcomes": {"answered": 5}, "seconds": 1.0}]
    now = timezone.now()
    WorkerHeartbeat.objects.update(exchanges=counted + gone)
    WorkerHeartbeat.objects.create(worker="second", started_at=now, beat_at=now, exchanges=counted)
    WorkerHeartbeat.objects.create(worker="dead", started_at=now, beat_at=now - 3 * MINUTE, exchanges=counted)
    # As one version before this one left it.
    WorkerHeartbeat.objects.create(worker="older", started_at=now, beat_at=now, exchanges=None)
    html = page()
    assert ">200</span>" in html
    assert "12 timed_out, 8 unreachable" in html
    assert '50&nbsp;<span class="unit">ms</span>' in html
    assert "elsewhere.example" not in html


def test_a_worker_stores_what_its_process_has_counted():
    NODE_EXCHANGES.labels("7", "counted.example", "answered").inc(3)
    NODE_EXCHANGES.labels("7", "counted.example", "timed_out").inc()
    NODE_EXCHANGE_SECONDS.labels("7", "counted.example").observe(0.25)
    worker = Worker()
    worker._say_that_it_runs()
    stored = WorkerHeartbeat.objects.get(worker=worker.name).exchanges
    assert stored == exchanges()
    (found,) = [one for one in stored or [] if one["chain"] == "7"]
    assert found["outcomes"] == {"answered": 3, "timed_out": 1}
    assert found["seconds"] == pytest.approx(0.25)


# --- Money ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("balance", "spent", "says", "needs"),
    [
        (9 * ETHER, 0, "nothing is spent", ""),
        (9 * ETHER, ETHER // 10, ">85 days", ""),
        # It stops below 0.5.
        (5 * ETHER, ETHER, ">4.5 days", f"The signer {SIGNER} on Development chain lasts 4.5 days. 25.5 ETH more"),
        (ETHER // 4, ETHER, ">0.0 days", "lasts 0.0 days."),
    ],
)
def test_signers_are_told_with_the_days_that_they_last(balance, spent, says, needs):
    Signer.objects.create(chain_id=31337, address=SIGNER, final_count=7, final_failures=2)
    saw(balance=balance, spent=spent)
    html = page()
    assert says in html.replace("</svg>", ">")
    assert ("things need you" in html or "1 thing needs you" in html) == bool(needs)
    assert needs in html
    assert "2 of 7</span>" in html


def test_a_signer_s_oldest_pending_transaction_is_told():
    tx = send(batch := a_batch())
    type(tx).objects.filter(pk=tx.pk).update(spent_at=timezone.now() - 14 * MINUTE, nonce=4118)
    assert '1<span class="under">nonce 4,118, <span' in page()
    assert batch.pk


def test_spend_is_told_by_user_and_of_today_alone():
    for address, wei, number in ((ALICE, ETHER // 4, 20), (BOB, ETHER // 2, 21), (ALICE, ETHER, 22)):
        batch = submit(a_key(address, f"key {number}"), request(address, block=number))
        tx = send(batch, tx_hash=f"0x{number:064x}")
        Share.objects.create(transaction=tx, batch=batch, gas=100_000, wei=wei, weight=1)
        state = {"state": "FINAL", "spent_at": timezone.now() - (2 * DAY if number == 22 else MINUTE)}
        type(tx).objects.filter(pk=tx.pk).update(**state)
    rows = page().partition('id="users"')[2].split("<tr")[2:]
    assert [("0.5" in row, "0.25" in row) for row in rows] == [(True, False), (False, True)], "the dearest first"
    alice = User.objects.get(address=ALICE)
    assert f"/admin/accounts/user/{alice.pk}/change/" in rows[1]
    assert ">1</span>" in rows[1], "her batch of the day before yesterday doesn't count"
    # Until it is pending again.
    Transaction.objects.filter(shares__wei=ETHER).update(state="PENDING")
    assert "1.25" in page().partition('id="users"')[2].split("<tr")[2]


def test_no_more_is_added_up_than_is_said(monkeypatch):
    monkeypatch.setattr("explorer.operator.operator_page._MOST_SHARES", 1)
    for number in (20, 21):
        tx = send(batch := a_batch(block=number), tx_hash=f"0x{number:064x}")
        Share.objects.create(transaction=tx, batch=batch, gas=100_000, wei=ETHER, weight=1)
    said = "There are more users, or more transactions than are added up here."
    assert said in page()
    Share.objects.filter(transaction__queries__batch=batch).delete()
    assert said not in page()


# --- Webhooks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_up", [True, False])
def test_webhooks_that_fail_are_told_without_their_urls(given_up):
    body = {**request(ALICE, block=12), "webhook": {"url": "https://hooks.example.org/secret-path"}}
    finish(batch := submit(a_key(), body))
    attempt = webhooks.Attempt(timezone.now(), None, "The receiver can't be reached.", 0.5)
    ends_as = DeliveryStatus.FAILED if given_up else None
    webhooks.note(batch.webhook.deliveries.earliest("pk"), attempt, ends_as=ends_as, pause=MINUTE)
    Webhook.objects.update(due_at=timezone.now())
    html = page()
    assert "The receiver can&#x27;t be reached." in html
    assert "hooks.example.org:443" in html
    assert ("given up" in html, "tried again</span>" in html) == (given_up, not given_up)
    assert ("1 delivery of webhooks failed for good within a day." in html) == given_up
    assert f'href="{path(batch)}"' in html


def test_it_says_where_more_deliveries_may_have_been_given_up_than_it_lists(monkeypatch):
    finish(batch := submit(a_key(), {**request(ALICE, block=12), "webhook": {"url": "https://hooks.example.org/"}}))
    attempt = webhooks.Attempt(timezone.now(), None, "The receiver can't be reached.", 0.5)
    webhooks.note(batch.webhook.deliveries.earliest("pk"), attempt, ends_as=DeliveryStatus.FAILED, pause=MINUTE)
    assert ">1 delivery of webhooks failed for good within a day." in page()
    monkeypatch.setattr("explorer.operator.operator_page._MOST_ROWS", 1)
    assert ">At least 1 delivery of webhooks failed for good within a day." in page()


# --- Cost -------------------------------------------------------------------------------------------------------------


def test_it_takes_the_same_statements_however_much_there_is_and_asks_no_chain(django_assert_num_queries, monkeypatch):
    monkeypatch.setattr("chains.bounded_http.post", lambda *_: pytest.fail("a chain was asked"))
    client = client_of(BOB)
    Signer.objects.create(chain_id=31337, address=SIGNER)
    client.get("/operator")  # Writes, at most every ten seconds.
    with django_assert_num_queries(STATEMENTS):
        client.get("/operator")
    for number in range(12, 16):
        accept(a_batch(block=number))
        Block.objects.update(due_at=timezone.now(), failing_since=timezone.now(), attempts=1)
    with django_assert_num_queries(STATEMENTS):
        client.get("/operator")
