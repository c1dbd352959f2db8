"""`/healthz` in each state."""

import getpass
import socket
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.db.models import Model
from django.test import Client
from django.utils import timezone

import batch_query_client
from accounts.models import User
from config.configured_chains import forget_chains
from proving.models import (
    ChainWatch,
    FactsRegistry,
    Lane,
    Signer,
    Stop,
    StopCode,
    Transaction,
    TransactionState,
    WorkerHeartbeat,
)
from queries.models import Batch, BatchStatus, Block, Webhook, WebhookDelivery
from queries.waits import wait
from tests.explorer.batches import SOURCE, a_batch, beat, connect_source, deployed
from tests.metrics import value
from tests.service import ALICE, BOB, SIGNER, a_key, asking, balances, chains_toml, reconfigure, request, submit
from tests.stored_problems import saw

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# SQLite's clock counts whole milliseconds.
SILENCE = timedelta(seconds=20, milliseconds=1)
CONTRADICTED = wait("attester_conflict", problem="An attester contradicts rpc.example.org.")
UNFUNDED = ("signer_unfunded", "The signer holds nothing.")


@pytest.fixture(autouse=True)
def healthy_service(unreachable_chain, db) -> None:
    """Store rows of a healthy service."""
    beat()
    deployed()
    saw()


def problems() -> list[tuple[str, str]]:
    """Return each problem's code and sentence."""
    response = Client().get("/healthz")
    body = response.json()
    sentences_by_code = list(zip(body["codes"], body["problems"], strict=True))
    assert (response.status_code, body["status"]) == ((503, "degraded") if sentences_by_code else (200, "ok"))
    assert body["database"] == "ok"
    return sentences_by_code


def codes() -> list[str]:
    return [code for code, _ in problems()]


def test_health_is_ok_while_nothing_is_wrong():
    response = Client().get("/healthz")
    body = response.json()
    assert response.status_code == 200
    assert timezone.now() - datetime.fromisoformat(body["worker"].pop("lastBeat")) < timedelta(minutes=1)
    assert body == {
        "status": "ok",
        "database": "ok",
        "worker": {"running": True},
        "standstillSeconds": dict.fromkeys(("admission", "proving", "sending", "confirming", "webhooks"), 0.0),
        "version": batch_query_client.__version__,
        "problems": [],
        "codes": [],
        "critical": [],
        "notices": [],
    }
    assert "no-store" in response.headers["Cache-Control"]


@pytest.mark.parametrize("silent", [False, True])
def test_health_is_degraded_while_no_worker_runs(silent):
    last = None
    WorkerHeartbeat.objects.all().delete()
    if silent:
        beat()
        last = timezone.now() - SILENCE
        WorkerHeartbeat.objects.update(beat_at=last)
    assert problems() == [("no_worker", "No worker is running. The service keeps batches, but proves none.")]
    worker = Client().get("/healthz").json()["worker"]
    assert worker == {"running": False, "lastBeat": last.isoformat() if last else None}


def test_health_is_503_while_the_database_does_not_answer(caplog):
    def fail(_execute, _sql, _params, _many, _context):
        raise OperationalError("unable to open /somewhere/private.sqlite3")

    with connection.execute_wrapper(fail):
        response = Client().get("/healthz")
    assert response.status_code == 503
    body = response.json()
    assert (body["status"], body["database"]) == ("degraded", "unavailable")
    assert body["worker"] == {"running": False, "lastBeat": None}
    assert body["problems"] == ["The database does not answer, so the worker's state is unknown."]
    assert body["codes"] == ["database_unavailable"]
    assert "private" not in response.text
    assert "the database does not answer a health check" in caplog.text


def test_a_beat_from_the_future_tells_nothing():
    WorkerHeartbeat.objects.update(beat_at=timezone.now() + timedelta(hours=25))
    assert codes() == ["no_worker"]
    assert Client().get("/healthz").json()["worker"] == {"running": False, "lastBeat": None}


# --- Severity ---------------------------------------------------------------------------------------------------------


def critical() -> list[str]:
    return list(Client().get("/healthz").json()["critical"])


def of_chain(code: str, **values: str) -> tuple[str, str, dict[str, str]]:
    return code, "A sentence.", {"chainId": "31337", **values}


OF_CHAINS = ["chain_unavailable", "wrong_chain", "signer_unfunded", "signer_unreadable"]
IN_THE_MORNING = ["clock", "wrong_history", "head_went_back", "no_proofs", "node_doubtful"]


@pytest.mark.parametrize("of_value", [False, True])
def test_only_what_makes_batches_to_a_chain_of_value_stand_still_is_critical(settings, of_value):
    if of_value:
        reconfigure(settings, "test_network = true", 'daily_limit = "1"\ndaily_limit_per_user = "1"')
    saw(*(of_chain(code) for code in (*OF_CHAINS, *IN_THE_MORNING)))
    assert sorted(codes()) == sorted([*OF_CHAINS, *IN_THE_MORNING])
    assert critical() == (OF_CHAINS if of_value else [])
    metrics = Client().get("/metrics").text
    for code in OF_CHAINS:
        told = [value(metrics, "batchquery_problems", code=code, severity=word) for word in ("critical", "warning")]
        assert told == ([1, 0] if of_value else [0, 1])
    assert value(metrics, "batchquery_chain_severity", severity="critical" if of_value else "warning") == 1


def test_a_source_is_never_critical(settings, tmp_path):
    connect_source(tmp_path)
    saw(("chain_unavailable", "A sentence.", {"chainId": str(SOURCE)}), chain_id=SOURCE)
    assert "chain_unavailable" in codes()
    assert critical() == []


def test_a_signer_is_critical_where_no_other_one_sends(settings):
    reconfigure(settings, "test_network = true", 'daily_limit = "1"\ndaily_limit_per_user = "1"')
    key = '[chains.signer]\nkey_file = "signer.key"'
    reconfigure(
        settings,
        key,
        f'{key.replace("[chains.signer]", "[[chains.signers]]")}\n[[chains.signers]]\nkey_file = "second.key"',
    )
    saw(of_chain("signer_unfunded", signer=SIGNER))
    assert critical() == []
    saw(of_chain("signer_unfunded", signer=SIGNER), of_chain("signer_unreadable", signer="2"))
    assert critical() == ["signer_unfunded", "signer_unreadable"]


def test_a_worker_that_stops_the_only_signer_is_critical(settings):
    Stop.objects.create(chain_id=31337, signer=SIGNER, code=StopCode.NOT_BELIEVED)
    assert (codes(), critical()) == (["node_doubtful"], [])
    reconfigure(settings, "test_network = true", 'daily_limit = "1"\ndaily_limit_per_user = "1"')
    assert critical() == ["node_doubtful"]
    # A doubt about a signer with which work goes on.
    Stop.objects.all().delete()
    saw(of_chain("node_doubtful", signer=SIGNER))
    assert (codes(), critical()) == (["node_doubtful"], [])


def test_a_full_disk_is_one_problem_because_heartbeats_are_stored_too():
    def refuse_rows(execute, sql, params, many, context):
        if sql.startswith("INSERT"):
            raise OperationalError("database or disk is full")
        return execute(sql, params, many, context)

    WorkerHeartbeat.objects.all().delete()
    with connection.execute_wrapper(refuse_rows):
        answer = Client().get("/healthz").json()
        metrics = Client().get("/metrics").text
    assert (answer["codes"], answer["critical"]) == (["storage"], ["storage"])
    assert answer["worker"]["running"] is True
    assert value(metrics, "batchquery_problems", code="no_worker") == 0


def test_batches_of_a_connection_that_left_chains_toml_are_told(tmp_path):
    without = (tmp_path / "chains.toml").read_text()
    connect_source(tmp_path)
    deployed(SOURCE)
    saw()
    saw(chain_id=SOURCE)
    batch = submit(a_key(), asking(balances([12]), source=SOURCE))
    assert codes() == []
    (tmp_path / "chains.toml").write_text(without)
    forget_chains()
    ((code, sentence),) = problems()
    assert code == "connection_missing"
    assert sentence.startswith(f"1 open batch waits for facts of chain {SOURCE} on chain 31337.")
    Batch.objects.filter(pk=batch.pk).update(status=BatchStatus.DONE)
    assert codes() == []


def test_nobody_is_asked_to_fund_a_signer_whose_key_is_used_elsewhere():
    a_batch()
    waits = {"wait": wait("signer_cant_pay"), "wait_seen_at": timezone.now()}
    robbed = {"foreign_since": timezone.now(), "foreign_count": 1}
    Signer.objects.create(chain_id=31337, address=SIGNER, **waits, **robbed)
    empty = [(*UNFUNDED, {"chainId": "31337", "signer": address}) for address in (SIGNER, BOB)]
    saw(*empty)
    assert codes() == ["signer_unfunded", "foreign_transactions"]
    Signer.objects.update(wait=wait("gas_above_cap", chain=31337, cap=1))
    assert codes() == ["signer_unfunded", "foreign_transactions", "signer_waits"]
    Signer.objects.update(foreign_is_suspected=True, wait=wait("signer_cant_pay"))
    assert codes() == ["signer_unfunded", "signer_unfunded", "foreign_transactions", "signer_waits"]
    Signer.objects.update(foreign_since=None, foreign_count=0)
    assert codes() == ["signer_unfunded", "signer_unfunded", "signer_waits"]


def test_a_worker_that_began_before_chains_toml_was_changed_is_named():
    WorkerHeartbeat.objects.update(has_old_chains=True)
    ((code, sentence),) = problems()
    assert code == "chains_file_changed"
    assert WorkerHeartbeat.objects.get().worker in sentence
    assert critical() == []


def test_webhooks_that_all_fail_are_a_notice_until_one_is_delivered():
    def submitted() -> Webhook:
        batch = submit(a_key(), request(ALICE, block=12) | {"webhook": {"url": "https://receiver.example.org"}})
        return Webhook.objects.get(pk=batch.pk)

    def notices() -> list[str]:
        answer = Client().get("/healthz")
        assert (answer.status_code, answer.json()["codes"]) == (200, [])
        return list(answer.json()["notices"])

    webhook = submitted()
    now = timezone.now()
    failing = {"attempts": 3, "due_at": now + timedelta(minutes=1), "failing_since": now - timedelta(minutes=9)}
    Webhook.objects.update(**failing)
    assert notices() == []
    Webhook.objects.update(failing_since=now - timedelta(minutes=11))
    (notice,) = notices()
    assert notice.startswith("No webhook of users was delivered for 11 minutes.")
    assert value(Client().get("/metrics").text, "batchquery_problems", code="webhooks_failing") == 1
    WebhookDelivery.objects.create(
        webhook=webhook, user=webhook.user, event="DONE", body="", status="DELIVERED", ended_at=now, gives_up_at=now
    )
    assert notices() == []


# --- Progress ---------------------------------------------------------------------------------------------------------


DUE: dict[str, tuple[type[Model], str]] = {
    "admission": (Batch, "large-admission:31337"),
    "proving": (Block, "connection:31337>31337"),
    "sending": (Signer, "destination:31337"),
    "confirming": (Signer, "destination:31337"),
    "webhooks": (Webhook, "webhooks"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", DUE)
def test_a_standstill_is_told_by_its_kind_although_a_worker_beats(kind):
    (model, lane), hour = DUE[kind], timedelta(hours=1)
    submit(a_key(), request(ALICE, block=12) | {"webhook": {"url": "https://receiver.example.org"}})
    signer = Signer.objects.create(chain_id=31337, address=SIGNER)
    state = TransactionState.PENDING if kind == "sending" else TransactionState.CONFIRMED
    Transaction.objects.create(signer=signer, nonce=0, data=b"", gas_limit=1, state=state)
    Batch.objects.update(due_at=None, block_count=101)

    def told(*, due: timedelta, advanced: timedelta) -> tuple[list[str], float]:
        """Return the codes, and the seconds of this kind, in tens. Assert that other kinds have none."""
        now = timezone.now()
        model._default_manager.update(due_at=now - due)
        Lane.objects.update_or_create(name=lane, defaults={"advanced_at": now - advanced})
        seconds = Client().get("/healthz").json()["standstillSeconds"]
        assert {other for other, value in seconds.items() if value} <= {kind}
        return codes(), seconds[kind] // 10 * 10

    assert told(due=hour, advanced=timedelta(seconds=31)) == (["standstill"], 30)
    assert problems()[0][1].startswith(f"No worker has advanced {kind} for 3")
    assert problems()[0][1].endswith(f" s, although work is due in: {lane}.")
    # A backlog moves on, or the lane had nothing to do.
    assert told(due=hour, advanced=timedelta(seconds=20)) == ([], 20)
    assert told(due=timedelta(seconds=1), advanced=hour) == ([], 0)
    assert told(due=-hour, advanced=hour) == ([], 0)
    # A clock that was ahead has stored the time.
    assert told(due=hour, advanced=-hour) == (["standstill"], 3600)


# --- Chains -----------------------------------------------------------------------------------------------------------


def test_health_has_the_problems_that_a_worker_saw_of_a_chain():
    other = ("chain_unavailable", "No node can be used.")
    saw(UNFUNDED, other)
    assert problems() == [other, UNFUNDED]


def test_old_problems_of_a_chain_are_replaced_by_chain_not_watched():
    saw(UNFUNDED, ago=timedelta(minutes=4))
    WorkerHeartbeat.objects.update(started_at=timezone.now() - timedelta(hours=1))
    ((code, sentence),) = problems()
    assert code == "chain_not_watched"
    assert sentence.startswith("No worker has observed Development chain (31337) for 3 minutes")


def test_a_worker_has_a_minute_for_its_first_observations():
    ChainWatch.objects.all().delete()
    WorkerHeartbeat.objects.update(started_at=timezone.now() - timedelta(seconds=50))
    assert codes() == []
    WorkerHeartbeat.objects.update(started_at=timezone.now() - timedelta(seconds=61))
    assert codes() == ["chain_not_watched"]


def test_a_chain_that_is_configured_no_more_is_of_no_interest():
    saw(UNFUNDED, chain_id=SOURCE)
    assert codes() == []


def test_a_method_that_one_worker_or_several_find_unanswered_twice_is_named(settings):
    host = "127.0.0.1:1"

    def silent(times: int, words: str = "no answer within 10 s") -> list[dict[str, str | int]]:
        return [{"chain": 31337, "host": host, "method": "eth_estimateGas", "times": times, "words": words}]

    WorkerHeartbeat.objects.update(unanswered=silent(1))
    assert codes() == []
    named = ("node_fails", f"eth_estimateGas: no answer within 10 s from {host}, a node of Development chain (31337).")
    WorkerHeartbeat.objects.update(unanswered=silent(2))
    assert (problems(), critical()) == ([named], [])
    WorkerHeartbeat.objects.update(unanswered=silent(1))
    now = timezone.now()
    WorkerHeartbeat.objects.create(worker="another", started_at=now, beat_at=now, unanswered=silent(1))
    assert problems() == [named]
    # One request may have hung in both.
    WorkerHeartbeat.objects.update(unanswered=silent(2))
    assert (problems(), critical()) == ([named], [])
    WorkerHeartbeat.objects.update(unanswered=silent(1))
    WorkerHeartbeat.objects.filter(worker="another").update(beat_at=now - SILENCE)
    assert codes() == []
    # No other node answers it, and it is needed.
    WorkerHeartbeat.objects.update(unanswered=silent(4))
    everywhere = "eth_estimateGas: no answer within 10 s from any node of Development chain (31337)."
    assert problems() == [("chain_unavailable", everywhere)]
    reconfigure(settings, f'"http://{host}"', f'"http://{host}", "http://127.0.0.1:2"')
    assert problems() == [named]
    # The node has left chains.toml.
    WorkerHeartbeat.objects.update(unanswered=[silent(2)[0] | {"host": "gone.example.org"}])
    assert codes() == []


# --- Signers ----------------------------------------------------------------------------------------------------------


def test_a_stop_is_told_once():
    a_batch()
    Signer.objects.create(chain_id=31337, address=SIGNER)
    call_command("stop", "31337", reason="A test.", stdout=StringIO())
    sentence = "The operator has stopped sending on chain 31337. The reason given: A test."
    sentence += f" By manage.py ({getpass.getuser()})."
    assert problems() == [("signing_stopped", sentence)]
    call_command("resume", "31337", stdout=StringIO())
    assert codes() == []


def test_a_signers_wait_is_told_only_while_something_is_to_be_sent():
    batch = a_batch()
    Signer.objects.create(chain_id=31337, address=SIGNER, wait=wait("signer_cant_pay"), wait_seen_at=timezone.now())
    assert problems() == [("signer_waits", "The signer can't pay for it.")]
    Batch.objects.filter(pk=batch.pk).update(status=BatchStatus.DONE)
    assert codes() == [], "nothing is to be sent, so nobody looks whether it is still so"


# --- Registries -------------------------------------------------------------------------------------------------------


def test_notices_for_the_operator_leave_the_health_ok():
    FactsRegistry.objects.create(destination_chain_id=31337, source_chain_id=5)  # its connection is gone
    FactsRegistry.objects.update(risk=CONTRADICTED, risk_seen_at=timezone.now())
    response = Client().get("/healthz")
    assert response.status_code == 200
    assert response.json()["status"] == "ok"
    assert response.json()["notices"] == [str(CONTRADICTED)]


def test_health_is_degraded_while_a_connection_has_no_registry(tmp_path):
    connect_source(tmp_path)
    ((code, sentence),) = problems()
    assert code == "no_registry"
    assert sentence.endswith("manage.py deploy_registry 31337 5")
    deployed(SOURCE)
    assert codes() == []
    FactsRegistry.objects.filter(source_chain_id=31337).update(deployed_at=None)
    assert codes() == ["no_registry"]


def test_health_is_degraded_while_a_refused_registry_is_in_use():
    refused = {"deployed_at": timezone.now(), "refused": "The facts registry is not used."}
    FactsRegistry.objects.create(
        destination_chain_id=31337, source_chain_id=5, **refused
    )  # a connection that was removed from the chains file
    FactsRegistry.objects.create(
        destination_chain_id=31337, source_chain_id=31337, replaced_at=timezone.now(), **refused
    )
    assert codes() == []
    FactsRegistry.in_use.filter(source_chain_id=31337).update(**refused)
    remedy = "The operator must run: manage.py deploy_registry 31337 31337 --replace"
    assert problems() == [("registry_refused", f"The facts registry is not used. {remedy}")]


# --- Readers ----------------------------------------------------------------------------------------------------------


BALANCE = ("signer_unfunded", f"The signer {SIGNER} holds 0.01 ETH.")
NODE = ("chain_unavailable", "No node can be used: rpc.example.org can't be reached.")
ELSEWHERE = "203.0.113.9"


def degraded(client: Client, peer: str = "127.0.0.1", **headers: str) -> dict[str, Any]:
    answer = client.get("/healthz", headers=headers, REMOTE_ADDR=peer)
    assert answer.status_code == 503
    body: dict[str, Any] = answer.json()
    assert body["codes"] == ["chain_unavailable", "signer_unfunded"]
    assert (body["status"], body["worker"]["running"]) == ("degraded", True)
    return body


def test_strangers_read_the_codes_and_no_sentence():
    saw(BALANCE, NODE)
    FactsRegistry.objects.update(risk=CONTRADICTED, risk_seen_at=timezone.now())
    alice = Client()
    alice.force_login(User.objects.create(address=ALICE))
    for stranger in (Client(), alice):
        body = degraded(stranger, ELSEWHERE)
        assert (body["problems"], body["notices"]) == ([], [])
        # The service doesn't know this proxy, so the request doesn't count as one from this machine.
        assert degraded(stranger, **{"X-Forwarded-For": "127.0.0.1"})["problems"] == []


def test_this_machine_the_token_and_the_operator_read_the_sentences(settings):
    settings.METRICS_TOKEN, settings.OPERATOR_ADDRESSES = "token", [ALICE]
    saw(BALANCE, NODE)
    FactsRegistry.objects.update(risk=CONTRADICTED, risk_seen_at=timezone.now())
    operator = Client()
    operator.force_login(User.objects.create(address=ALICE))
    bodies = [
        degraded(Client()),
        degraded(Client(), ELSEWHERE, authorization="Bearer token"),
        degraded(operator, ELSEWHERE),
    ]
    for body in bodies:
        assert body["problems"] == [NODE[1], BALANCE[1]]
        assert body["notices"] == [str(CONTRADICTED)]
    assert degraded(Client(), ELSEWHERE, authorization="Bearer other")["problems"] == []


# --- Cost -------------------------------------------------------------------------------------------------------------


def test_healthz_takes_few_statements_and_asks_no_chain(django_assert_max_num_queries, settings, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as node:
        settings.CHAINS_FILE = chains_toml(tmp_path, f"http://127.0.0.1:{node.getsockname()[1]}")
        Client().get("/healthz")  # writes, at most every ten seconds
        with django_assert_max_num_queries(18):
            Client().get("/healthz")
        node.setblocking(False)
        with pytest.raises(BlockingIOError):
            node.accept()
