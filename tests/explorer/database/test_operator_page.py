"""The operator's page, which only operators can see."""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db.models import QuerySet
from django.test import Client
from django.utils import timezone

from accounts.models import User
from proving.models import ChainWatch, Problem, Share, SignedTransaction, Signer, Stop, Transaction
from queries.models import Batch, Block, StepKind
from queries.waits import wait
from tests.explorer.batches import (
    DEAD_NODE,
    a_batch,
    accept,
    batch_at,
    beat,
    complete,
    deployed,
    finish,
    path,
    queries_of,
    reject,
    send,
    word,
)
from tests.factories import client_of, log_of_operators
from tests.service import ALICE, BOB, SIGNER, a_key, chains_toml, request, submit
from tests.stored_problems import saw

pytestmark = pytest.mark.django_db

ETHER = 10**18

STATEMENTS = 33


@pytest.fixture(autouse=True)
def operated_by_bob(db, settings, tmp_path) -> None:
    """Store rows of a healthy service whose operator is Bob."""
    settings.CHAINS_FILE = chains_toml(tmp_path, f"{DEAD_NODE}/secret-path", chain='minimum_signer_balance = "0.5"')
    settings.OPERATOR_ADDRESSES = [BOB.lower()]
    beat()
    deployed()
    saw()


def page() -> str:
    """Return the page's text with single spaces."""
    answer = client_of(BOB).get("/operator")
    assert answer.status_code == 200
    assert "secret" not in answer.text
    return " ".join(answer.text.split())


# --- Visitors ---------------------------------------------------------------------------------------------------------


def test_nobody_else_learns_that_there_is_such_a_page(settings):
    for client in (Client(), client_of(ALICE)):
        answer = client.get("/operator")
        assert (answer.status_code, "There is nothing here" in answer.text) == (404, True)
    assert client_of(BOB).get("/operator").status_code == 200
    settings.OPERATOR_ADDRESSES = []
    assert client_of(BOB).get("/operator").status_code == 404, "by default there is no operator"


def test_the_operator_page_only_reads_and_is_neither_cached_nor_indexed():
    client = client_of(BOB)
    answer = client.get("/operator")
    assert "no-store" in answer.headers["Cache-Control"]
    assert "private" in answer.headers["Cache-Control"]
    assert answer.headers["X-Robots-Tag"] == "noindex"
    assert '<meta name="robots" content="noindex">' in answer.text
    assert client.post("/operator").status_code == 405
    assert 'method="post"' not in answer.text.partition("<main")[2].partition("</main>")[0]


# --- Stops ------------------------------------------------------------------------------------------------------------

CHAIN = "Development chain (31337)"


@pytest.mark.parametrize(
    ("what", "subject"),
    [
        (CHAIN, "on chain 31337"),
        (f"{CHAIN} to {CHAIN}", "from chain 31337 to chain 31337"),
        (f"The signer {SIGNER} on {CHAIN}", f"by the signer {SIGNER} on chain 31337"),
    ],
)
def test_its_button_asks_once_stops_and_tells_who_stopped_and_why(what, subject):
    Signer.objects.create(chain_id=31337, address=SIGNER)
    client, form = client_of(BOB), f"/operator/stop?{urlencode({'what': what})}"
    assert f"<option>{what}</option>" in page()
    assert what in client.get(form).text
    assert not Stop.objects.exists()
    for faulty in ("", " ", "x" * 201):
        answer = client.post(form, {"reason": faulty})
        assert (answer.status_code, "Give a reason" in answer.text) == (400, True)
    assert not Stop.objects.exists()
    answer = client.post(form, {"reason": " A key\r\nleaked. "}, follow=True)
    assert answer.redirect_chain == [("/operator", 302)]
    sentence = f"The operator has stopped sending {subject}. The reason given: A key\r\nleaked. By {BOB}."
    assert sentence in re.sub("<[^>]+>", "", answer.text)
    assert sentence in Client().get("/healthz").json()["problems"]
    made = Stop.objects.get()
    # Another operator has given another reason meanwhile.
    for old in ({"by": BOB, "reason": "Another."}, {"by": ALICE, "reason": made.reason}, {"reason": "A test."}):
        answer = client.post(form, old)
        assert (answer.status_code, "Nothing was changed" in answer.text) == (409, True)
        assert Stop.objects.get() == made
    assert "Allow sending again" in client.get(form).text
    for _ in range(2):
        assert client.post(form, {"by": BOB, "reason": "A key\nleaked."}).status_code == 302
    assert not Stop.objects.exists()
    name = f"stop {subject}"
    assert log_of_operators() == [(BOB, name, "Stopped. Why: A key\r\nleaked."), (BOB, name, "Resumed.")]


def test_only_operators_stop_and_only_by_a_form_of_this_site():
    form = f"/operator/stop?{urlencode({'what': CHAIN})}"
    forged = Client(enforce_csrf_checks=True)
    forged.force_login(User.objects.for_address(BOB))
    for client, status in ((Client(), 404), (client_of(ALICE), 404), (forged, 403)):
        assert client.post(form, {"reason": "A test."}).status_code == status
    assert client_of(ALICE).get(form).status_code == 404
    assert client_of(BOB).get("/operator/stop?what=Chain+5").status_code == 404
    assert not Stop.objects.exists()
    # A stop of a chain that is no longer configured can be removed.
    Stop.objects.create(chain_id=5, by=BOB)
    assert "on chain 5" in page()
    client_of(BOB).post("/operator/stop?what=on+chain+5", {"by": BOB, "reason": ""})
    assert not Stop.objects.exists()


# --- Figures ----------------------------------------------------------------------------------------------------------


def test_the_operator_page_shows_how_long_the_funds_last_and_what_waits():
    """`golden/operator.html` has the other figures."""
    ChainWatch.objects.update(balances={SIGNER: str(2 * ETHER)})
    assert "nothing spent" in page()
    signer, now = Signer.objects.create(chain_id=31337, address=SIGNER), timezone.now()
    for nonce, (days, state, finney) in enumerate(
        ((8, "FINAL", 900), (3, "FINAL", 120), (0.5, "FINAL", 10), (0.1, "MINED", 10), (2, "PENDING", 500))
    ):
        values = {"state": state, "spent_at": now - timedelta(days=days), "reserved_gwei": finney * 10**6}
        Transaction.objects.create(signer=signer, nonce=nonce, data=b"", gas_limit=1, **values)
    # The minimum balance is 0.5 ETH, and 0.5 ETH are reserved. So 1 ETH is left, and 0.02 or 0.14 / 7 are spent a day.
    text = re.sub(r"<[^>]*>", "", page()).replace("\xa0", " ").replace("&nbsp;", " ")
    for figure in ("2 ETH", "0.5 ETH", "0.02 ETH", "about 50 days at the pace of 7 days: about 50 days"):
        assert figure in text, text
    now = timezone.now()
    values = {"key": "no_worker", "began_at": now, "seen_at": now, "failing_since": now - timedelta(minutes=9)}
    Problem.objects.create(**values)
    assert "Your webhook has accepted no message for 9 min" in re.sub(r"<[^>]*>", "", page())


def test_the_operator_page_counts_the_batches_of_the_last_day_and_names_who_used_most_gas():
    assert page().count('<dd class="quiet">none</dd>') == 2
    for block, ago, minutes, gas in ((12, 2, 1, 5), (13, 3, 30, 70), (14, 30, 90, 900)):
        finish(batch := a_batch(block=block))
        ended = timezone.now() - timedelta(hours=ago)
        created_at = ended - timedelta(minutes=minutes)
        Batch.objects.filter(pk=batch.pk).update(created_at=created_at, finished_at=ended, gas_used=gas)
    reject(submit(a_key(BOB), request(ALICE, block=15)))
    Batch.objects.filter(user__address=BOB).update(gas_used=74)
    day = page().partition('id="day"')[2].partition("</dl>")[0]
    assert re.findall("<dd>([0-9]+)</dd>", day) == ["2", "1", "75"]
    (slowest, took), (user, _) = re.findall(r'<a href="([^"]+)">(.+?)</a>', day)
    assert (slowest, took) == (path(Batch.objects.get(queries__block__number=13)), "30 min")
    assert user == f"/admin/accounts/user/{User.objects.get(address=ALICE).pk}/change/"


def test_the_counts_of_waiting_batches_lead_to_the_oldest():
    received, _, accepted, _ = a_batch(), a_batch(), accept(a_batch(block=13)), accept(a_batch(block=14))
    assert re.findall(r'<a href="([^"]+)">oldest</a>', page()) == [path(received), path(accepted)]


def test_the_operator_page_ends_with_the_form_that_stops_sending():
    headings = re.findall(r"<h2[^>]*>([^<]+)</h2>", page())
    assert headings[-1] == "Sending"
    assert headings[0] == "Batches of the last 24 hours"


# --- Failing and pending rows -----------------------------------------------------------------------------------------


def failing(rows: QuerySet[Any], minutes: int, **more: object) -> None:
    now = timezone.now()
    since = now - timedelta(minutes=minutes)
    problem = wait("node_fails", problem=f"A node fails for {minutes} minutes.")
    rows.update(failing_since=since, due_at=now + timedelta(minutes=1), attempts=minutes, wait=problem, **more)


def table(name: str) -> str:
    """Return the table with this heading, and what is next to the heading. Empty: there is none."""
    return page().partition(f' id="{name}"')[2].partition("</table>")[0]


def test_batches_that_fail_are_listed_with_what_they_wait_for():
    assert table("failing-batches") == ""
    older, newer, ended, _ = (a_batch(block=number) for number in (12, 13, 14, 15))
    for batch, minutes in ((newer, 2), (older, 5), (ended, 9)):
        failing(Batch.objects.filter(pk=batch.pk), minutes)
    Batch.objects.filter(pk=ended.pk).update(due_at=None)
    listed = table("failing-batches")
    assert re.findall(r'href="(/explorer/query/[^"]+)"', listed) == [path(older), path(newer)]
    assert listed.count(f'href="/admin/accounts/user/{older.user_id}/change/"') == 2
    for text in ("A node fails for 5 minutes.", "5 min", "5 attempts", "in 59 s"):
        assert text in listed


def test_blocks_that_fail_are_listed_with_a_batch_that_waits_for_them():
    assert table("failing-blocks") == ""
    entry = {"accounts": {ALICE: {"props": ["BALANCE"]}}}
    waits_for_another = accept(batch_at(block_12=entry, block_13=entry))
    complete(waits_for_another, *StepKind, of=queries_of(waits_for_another)[:1])
    rejected, waiting = accept(a_batch()), accept(a_batch())
    reject(rejected)
    failing(Block.objects.filter(number=12), 7)
    listed = table("failing-blocks")
    assert re.findall(r'href="(/explorer/query/[^"]+)"', listed) == [path(waiting)]
    text = " ".join(re.sub("<[^>]+>", " ", listed).split())
    for part in (" 12 Development chain → to Development chain ", "A node fails for 7 minutes. 7 min", "7 attempts"):
        assert part in text
    reject(waiting)
    assert "/explorer/query/" not in table("failing-blocks")


def test_a_pending_transaction_is_listed_with_its_newest_versions():
    assert table("pending") == ""
    tx = send(accept(batch := a_batch()), tx_hash=word(1))
    Share.objects.create(transaction=tx, batch=batch, gas=1, wei=1, weight=1)
    Transaction.objects.update(data=b"secret", error=wait("node_fails", problem="Nodes refuse it."))
    tx.versions.all().delete()
    for minutes in range(1, 8):
        SignedTransaction.objects.create(
            transaction=tx,
            hash=word(minutes) if minutes < 7 else None,
            raw=b"secret",
            max_fee_per_gas=minutes * 10**9,
            max_priority_fee_per_gas=minutes * 10**8,
            is_cancellation=minutes == 7,
            created_at=timezone.now() - timedelta(minutes=10 - minutes),
            refused_at=timezone.now() - timedelta(seconds=30) if minutes == 6 else None,
            broadcast_at=timezone.now() if minutes != 5 else None,
        )
    listed = table("pending")
    text = " ".join(re.sub("<[^>]+>", " ", listed).split())
    assert f"Nonce {tx.nonce} of {SIGNER[:6]} " in text
    assert f"for {batch.pk[:10]} " in text
    assert "Nodes refuse it." in text
    rows = [re.findall(r"<td[^>]*>(?:<[^>]+>)?([^<]+)<", row) for row in listed.split("<tr")[3:]]
    assert rows == [[str(n), f"0.{n}", f"{10 - n} min"] for n in (7, 6, 5, 4, 3)]
    assert re.findall('data-copy="([^"]+)"', listed) == [word(n) for n in (6, 5, 4, 3)]
    for note in ("not signed yet a cancellation", "nodes refused it 30 s ago", "no node has it"):
        assert text.count(note) == 1
    Transaction.objects.update(state="MINED")
    assert table("pending") == ""


def test_each_list_is_bounded_and_says_how_many_there_are():
    signer = Signer.objects.create(chain_id=31337, address=SIGNER)
    for number in range(12, 34):
        accept(a_batch(block=number))
        Transaction.objects.create(signer=signer, nonce=number, data=b"", gas_limit=1)
    failing(Batch.objects.all(), 3)
    failing(Block.objects.all(), 3)
    for name in ("failing-batches", "failing-blocks", "pending"):
        assert "The oldest 20 of 22" in table(name)
    assert table("failing-batches").count("<tr") == table("failing-blocks").count("<tr") == 1 + 20
    assert table("pending").count("<tr") == 1 + 20


def test_its_links_into_the_admin_lead_somewhere():
    failing(Batch.objects.filter(pk=a_batch().pk), 3)
    client, links = client_of(BOB), set(re.findall(r'href="(/admin/[^"]*)"', page()))
    assert len(links) == 2
    for address in links:
        assert client.get(address).status_code == 200, address


# --- Cost -------------------------------------------------------------------------------------------------------------


def test_the_operator_page_takes_a_fixed_number_of_statements_and_asks_no_chain(django_assert_num_queries, monkeypatch):
    monkeypatch.setattr("chains.bounded_http.send_all", lambda *_: pytest.fail("a chain was asked"))
    client = client_of(BOB)
    send(accept(a_batch(block=11)))
    client.get("/operator")  # writes, at most every ten seconds
    with django_assert_num_queries(STATEMENTS):
        client.get("/operator")
    for number in range(12, 16):
        accept(batch := a_batch(block=number))
        failing(Block.objects.all(), 1)
        failing(Batch.objects.all(), 1)
        send(batch, tx_hash=word(number))
    with django_assert_num_queries(STATEMENTS):
        client.get("/operator")
