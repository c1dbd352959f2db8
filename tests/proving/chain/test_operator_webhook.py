"""The operator's webhook is told of each problem of `/healthz` when it begins and when it ends."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from standardwebhooks.webhooks import Webhook as Verifier

from proving.models import FactsRegistry, Problem, WorkerHeartbeat
from tests.chains.lying_node import Raw, lying_node
from tests.explorer.batches import SOURCE, beat, connect_source, deployed
from tests.factories import is_done, until
from tests.proving.receiver import OPERATOR_SECRET, Received, Receiver, receiver, tell_operator
from tests.service import ALICE, a_key, expire_leases, reconfigure, request, submit, work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]

SECONDS = 120
AWAY = "database_unavailable"


@pytest.fixture
def hook(settings, monkeypatch) -> Iterator[Receiver]:
    with receiver() as hook:
        tell_operator(settings, monkeypatch, hook.url)
        yield hook


def later(seconds: int = 31) -> None:
    """Let time pass for the problems that were seen, and the pause after a failure."""
    then = timezone.now() - timedelta(seconds=seconds)
    Problem.objects.update(began_at=then)
    Problem.objects.exclude(absent_since=None).update(absent_since=then)
    Problem.objects.exclude(due_at=None).update(due_at=then)


def told(hook: Receiver) -> list[tuple[str, str, str]]:
    """Return the type, the code and the chain of each message. All are signed."""
    messages = [Verifier(OPERATOR_SECRET).verify(got.body, got.headers) for got in hook.received]
    chain = ("chainId", "sourceChainId")
    return sorted(
        (message["type"], message["data"]["code"], next(filter(None, map(message["data"]["values"].get, chain)), ""))
        for message in messages
    )


@pytest.mark.story
def test_each_problem_is_told_once_when_it_has_lasted_and_when_it_has_ended(hook, unreachable_chain, tmp_path):
    connect_source(tmp_path, "http://127.0.0.1:1/secret-path")
    deployed()
    beat()
    work()
    assert hook.received == [], "A problem may be over in a moment."
    later()
    work()
    health = Client().get("/healthz").json()
    began = [
        ("problem.began", code, chain)
        for code, chain in zip(sorted(health["codes"]), ("31337", str(SOURCE), str(SOURCE)), strict=True)
    ]
    assert told(hook) == began
    assert sorted(got.data("problem") for got in hook.received) == sorted(health["problems"])
    (lacking,) = [got for got in hook.received if got.data("code") == "no_registry"]
    deployed(SOURCE)
    work()
    # The problem comes and goes.
    FactsRegistry.objects.filter(source_chain_id=SOURCE).update(deployed_at=None)
    work()
    deployed(SOURCE)
    work()
    later(seconds=120)
    work()
    assert told(hook) == began
    later(seconds=181)
    beat()
    work()
    assert told(hook) == [*began, ("problem.ended", "no_registry", str(SOURCE))]
    ended = hook.received[-1]
    assert (ended.data("id"), ended.data("problem")) == (lacking.data("id"), lacking.data("problem"))
    assert lacking.data("beganAt") < ended.data("endedAt")
    assert len({got.id for got in hook.received}) == 4
    assert not any(b"secret" in got.body for got in hook.received)


@pytest.mark.long
def test_a_problem_that_is_there_for_seconds_at_a_time_is_told_once_when_it_comes_again(hook, unreachable_chain):
    deployed()

    def flicker() -> None:
        """Show the problem once, and let two minutes without it pass."""
        FactsRegistry.objects.update(deployed_at=None)
        work()
        deployed()
        work()
        later(seconds=120)
        work()

    flicker()
    assert "no_registry" not in {code for _, code, _ in told(hook)}, "It may be over."
    for _ in range(3):
        flicker()
    assert [kind for kind, code, _ in told(hook) if code == "no_registry"] == ["problem.began"]
    later(seconds=181)
    work()
    assert [kind for kind, code, _ in told(hook) if code == "no_registry"] == ["problem.began", "problem.ended"]
    (severity,) = {got.data("severity") for got in hook.received if got.data("code") == "no_registry"}
    assert severity == "warning"


def test_another_cause_of_a_problem_is_told_too_and_other_numbers_are_not(hook, settings, chain, unreachable_chain):
    refusals = [Raw(b"quota of 100 used up", 401), Raw(b"quota of 99 used up", 401), Raw(b"", 503)]

    def lasts() -> None:
        """Let the problem last for long enough that it is told."""
        work()
        later()
        work()

    def causes(kind: str) -> list[str]:
        of_chain = [got for got in hook.received if (got.type, got.data("code")) == (kind, "chain_unavailable")]
        return [got.data("problem").partition(" can be used: ")[2] for got in of_chain]

    deployed()
    beat()
    lasts()
    with lying_node(lambda _: refusals[0]) as url:
        host = url.removeprefix("http://")
        reconfigure(settings, "http://127.0.0.1:1", url)
        lasts()
        del refusals[0]
        lasts()
        del refusals[0]
        lasts()
        told = [
            "127.0.0.1:1 can't be reached.",
            f"{host} answered with HTTP status 401; the node said: “quota of 100 used up”.",
            f"{host} answered with HTTP status 503.",
        ]
        assert (causes("problem.began"), causes("problem.ended")) == (told, [])
        # No further cause is told, and all of them end with the problem.
        refusals[0] = Raw(b"", 502)
        lasts()
        later(seconds=181)
        work()
        assert (causes("problem.began"), causes("problem.ended")) == (told, [])
    reconfigure(settings, url, chain.url)
    for _ in range(2):
        work()
        later(seconds=181)
    work()
    assert (causes("problem.began"), sorted(causes("problem.ended"))) == (told, sorted(told))
    assert len({got.data("id") for got in hook.received if got.data("code") == "chain_unavailable"}) == 3


@pytest.mark.long
def test_a_problem_whose_cause_changes_each_time_is_told(hook, settings, unreachable_chain):
    """The words of a node may be other ones at each answer."""
    deployed()
    beat()
    words = iter(range(10**6))

    def refuse(_: object) -> Raw:
        return Raw(
            f"Request ID: {'abcdefgh'[next(words) % 8]}{'ijklmnop'[next(words) // 8 % 8]}yKYwNwe==".encode(), 403
        )

    with lying_node(refuse) as url:
        reconfigure(settings, "http://127.0.0.1:1", url)
        for _ in range(4):
            work()
            later()
        work()
    began = [got for got in hook.received if got.data("code") == "chain_unavailable"]
    assert 1 <= len(began) <= 3


@pytest.mark.long
def test_no_end_is_told_of_what_a_disk_that_is_nearly_full_hides(hook, unreachable_chain, monkeypatch, pass_time):
    deployed()
    WorkerHeartbeat.objects.all().delete()
    work()
    later()
    work()
    assert ("problem.began", "no_worker", "") in told(hook)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=15_000_000))
        pass_time(11)
        for _ in range(2):
            work()
            later(seconds=181)
        work()
        assert "storage" in {code for _, code, _ in told(hook)}
    assert ("problem.ended", "no_worker", "") not in told(hook)
    beat()
    pass_time(22)
    for _ in range(2):
        work()
        later(seconds=181)
    work()
    assert ("problem.ended", "no_worker", "") in told(hook)


@pytest.mark.long
def test_a_message_comes_again_with_the_same_id_where_a_worker_is_killed_or_the_receiver_fails(
    settings, monkeypatch, unreachable_chain, start_worker
):
    workers: list[subprocess.Popen[bytes]] = []

    def kill_then_fail(_: Received) -> int:
        if len(failing.received) == 1:
            os.kill(workers[0].pid, signal.SIGKILL)
            workers[0].wait()
        return 500 if len(failing.received) == 2 else 204

    with receiver(kill_then_fail) as failing:
        tell_operator(settings, monkeypatch, failing.url)
        deployed()
        beat()
        work()
        later()
        workers.append(start_worker("--once"))
        until(lambda: workers[0].poll() is not None, "the death of the worker")
        expire_leases()
        for count in (2, 3, 3):
            work()
            assert len(failing.received) == count
    assert len({(got.id, got.body) for got in failing.received}) == 1


def test_the_row_that_0_4_0_kept_for_an_outage_goes_without_a_message(hook, unreachable_chain):
    now = timezone.now()
    Problem.objects.create(key=AWAY, code=AWAY, began_at=now, seen_at=now)
    beat()
    work()
    later(seconds=200)
    work()
    assert not Problem.objects.filter(code=AWAY).exists()
    assert AWAY not in {code for _, code, _ in told(hook)}


@pytest.mark.release
def test_two_workers_tell_it_once_and_go_on_while_the_receiver_hangs(
    service, settings, monkeypatch, start_worker, tmp_path
):
    answers = threading.Event()
    answers.set()

    def answer(_: Received) -> int:
        return 204 if answers.wait(SECONDS) else 500

    def is_told(code: str) -> bool:
        later()
        return Problem.objects.filter(code=code, is_told=True).exists()

    connect_source(tmp_path)
    with receiver(answer) as hanging:
        tell_operator(settings, monkeypatch, hanging.url)
        start_worker()
        start_worker()
        until(lambda: is_told("no_registry") and is_told("chain_unavailable"), "the first messages")
        assert [(kind, code) for kind, code, _ in told(hanging)] == [
            ("problem.began", "chain_unavailable"),
            ("problem.began", "no_registry"),
        ]
        answers.clear()
        call_command("stop", "31337", source=SOURCE, stdout=StringIO())
        until(lambda: is_told("connection_paused") or len(hanging.received) == 3, "the message that hangs")
        batch = submit(a_key(), request(ALICE, block=service.head()))
        until(lambda: is_done(batch), "DONE")
        assert not Problem.objects.filter(code="connection_paused", is_told=True).exists()
        answers.set()
        until(lambda: is_told("connection_paused"), "the last message")
    assert len({got.id for got in hanging.received}) == 3
