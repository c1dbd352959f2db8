"""`/healthz` in each state."""

from datetime import datetime, timedelta

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from proving import worker
from proving.models import FactsRegistry, WorkerHeartbeat
from tests.explorer.batches import beat

pytestmark = pytest.mark.django_db


def test_it_is_ok_while_a_worker_runs():
    beat()
    response = Client().get("/healthz")
    body = response.json()
    assert response.status_code == 200
    assert timezone.now() - datetime.fromisoformat(body["worker"].pop("lastBeat")) < timedelta(minutes=1)
    assert body == {
        "status": "ok",
        "database": "ok",
        "worker": {"running": True},
        "version": "0.1.0",
        "problems": [],
        "notices": [],
    }
    assert "no-store" in response.headers["Cache-Control"]


@pytest.mark.parametrize("silent", [False, True])
def test_it_is_degraded_while_no_worker_runs(silent):
    last = None
    if silent:
        beat()
        last = timezone.now() - worker.SILENCE
        WorkerHeartbeat.objects.update(beat_at=last)
    response = Client().get("/healthz")
    assert response.status_code == 503
    body = response.json()
    assert body["status"] == "degraded"
    assert body["worker"] == {"running": False, "lastBeat": last.isoformat() if last else None}
    assert body["problems"] == ["No worker is running: batches are stored, but none moves."]


def test_it_says_so_when_the_database_does_not_answer(caplog):
    def fail(_execute, _sql, _params, _many, _context):
        raise OperationalError("unable to open /somewhere/private.sqlite3")

    with connection.execute_wrapper(fail):
        response = Client().get("/healthz")
    assert response.status_code == 503
    body = response.json()
    assert (body["status"], body["database"]) == ("degraded", "unavailable")
    assert body["problems"] == ["The database does not answer, so nothing is known of the worker."]
    assert "private" not in response.text
    assert "private" in caplog.text


def test_it_tells_what_the_operator_must_look_into_and_works_on():
    beat()
    for source, notice in ((31337, "Attesters contradict the nodes."), (5, "Of a connection that is gone."), (6, "")):
        FactsRegistry.objects.create(destination_chain_id=31337, source_chain_id=source, notice=notice)
    response = Client().get("/healthz")
    assert response.status_code == 200
    assert response.json()["status"] == "ok"
    assert response.json()["notices"] == ["Attesters contradict the nodes."]


def test_it_is_degraded_while_a_registry_may_not_be_used():
    beat()
    refused = {"destination_chain_id": 31337, "refused": "The facts registry is not used."}
    FactsRegistry.objects.create(source_chain_id=5, **refused)  # of a connection that is gone
    FactsRegistry.objects.create(source_chain_id=31337, replaced_at=timezone.now(), **refused)
    assert Client().get("/healthz").status_code == 200
    FactsRegistry.objects.create(source_chain_id=31337, **refused)
    response = Client().get("/healthz")
    assert response.status_code == 503
    assert response.json()["status"] == "degraded"
    assert response.json()["problems"] == [
        "The facts registry is not used. The operator must run: manage.py deploy_registry 31337 31337 --replace"
    ]


def test_it_answers_plain_http_behind_a_proxy_that_ends_tls(settings):
    settings.SECURE_SSL_REDIRECT = True
    beat()
    assert Client().get("/healthz").status_code == 200
    assert Client().get("/healthz-x").status_code == 301


def test_it_only_reads():
    assert Client().post("/healthz").status_code == 405


def test_it_is_cheap(django_assert_max_num_queries):
    Client().get("/healthz")  # writes, at most every ten seconds
    with django_assert_max_num_queries(3):
        Client().get("/healthz")
