"""Celery workers as processes, with PostgreSQL and Redis, lose nothing and repeat nothing."""

import re
import signal

import psycopg
import pytest
import redis
import requests
from celery import Celery

from devnet.ports import free_port
from tests.cluster.conftest import Machines, celery

pytestmark = pytest.mark.long

PASSWORD = "hunter2-of-the-broker"


def start(machines: Machines, *names: str) -> None:
    for name in names:
        machines.cluster.start_worker(name)


def test_two_workers_at_once_do_everything_once(machines):
    start(machines, "worker-1", "worker-2")
    machines.submit(24, per_block=3)
    machines.until_all_are_done()
    machines.assert_nothing_was_done_twice()


@pytest.mark.release
def test_the_last_worker_killed_another_one_goes_on_where_it_was(machines):
    start(machines, "worker-1")
    machines.submit(8)
    machines.until(lambda: machines.in_hand() > 0, "something in hand")
    machines.cluster.kill("worker-1")
    start(machines, "worker-2")
    machines.until_all_are_done()
    machines.assert_nothing_was_done_twice()


@pytest.mark.release
def test_a_broker_that_is_emptied_again_and_again_delays_and_loses_nothing(machines):
    start(machines, "worker-1", "worker-2")
    machines.submit(20)
    with redis.Redis.from_url(machines.broker.url()) as client:

        def are_done() -> bool:
            client.flushall()
            return bool(machines.done() == 20)

        machines.until(are_done, "DONE")
    machines.assert_nothing_was_done_twice()


@pytest.mark.release
def test_without_the_broker_all_goes_on_through_the_database(machines):
    """The broker is down before the workers start, and starts after all batches are done."""
    machines.broker.kill()
    start(machines, "worker-1", "worker-2")
    assert machines.submit(10) < 5
    machines.until_all_are_done()
    machines.assert_nothing_was_done_twice()
    machines.broker.start()
    machines.until(lambda: machines.waiting_messages() == 0, "an empty queue")
    machines.submit(2)
    machines.until_all_are_done()


def test_messages_of_older_versions_are_dropped_and_many_do_no_harm(machines):
    with Celery(broker=machines.broker.url(), set_as_current=False) as others:
        for _ in range(200):
            others.send_task("prove", ("batch", [31337]), queue="ticks")
            others.send_task("tick", queue="ticks")
    start(machines, "worker-1")
    machines.until(lambda: machines.waiting_messages() == 0, "every message taken")
    machines.submit(4)
    machines.until_all_are_done()


def test_a_worker_serves_what_it_counts(machines):
    port = free_port()
    machines.cluster.start_worker("worker-1", METRICS_PORT=str(port))
    machines.submit()
    machines.until_all_are_done()
    counted = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    assert re.search(r"^batchquery_node_exchanges_total\{.*\} [1-9]", counted, re.MULTILINE)


def test_asked_to_stop_it_finishes_what_it_has_in_hand(machines):
    start(machines, "worker-1")
    machines.submit(12)
    machines.until(lambda: machines.in_hand() > 0, "something in hand")
    process = machines.cluster.process("worker-1")
    process.send(signal.SIGTERM)
    assert process.wait(60) == 0
    assert machines.in_hand() == 0
    assert machines.count("proving_workerheartbeat WHERE beat_at > now() - interval '20 seconds'") == 0
    log = machines.cluster.log("worker-1").read_text()
    assert "Traceback" not in log
    machines.cluster.kill("worker-1")
    start(machines, "worker-2")
    machines.until_all_are_done()
    machines.assert_nothing_was_done_twice()


@pytest.mark.parametrize("is_away_from_the_start", [True, False])
def test_a_celery_worker_stops_while_the_broker_is_away(machines, is_away_from_the_start):
    if is_away_from_the_start:
        machines.broker.kill()
    start(machines, "worker-1")
    machines.until(lambda: "no_worker" not in machines.health()["codes"], "the first beat")
    machines.broker.kill()
    process = machines.cluster.process("worker-1")
    process.send(signal.SIGTERM)
    assert process.wait(60) == 0


@pytest.mark.parametrize("is_right", [True, False])
def test_no_password_of_the_broker_is_logged(machines, is_right):
    with redis.Redis.from_url(machines.broker.url()) as client:
        client.config_set("requirepass", PASSWORD if is_right else "another")
    url = machines.broker.url().replace("redis://", f"redis://:{PASSWORD}@")
    machines.cluster.start_worker("worker-1", BROKER_URL=url)
    machines.submit()
    machines.until_all_are_done()
    machines.broker.kill()
    log = machines.cluster.log("worker-1")
    machines.until(lambda: bool(re.search(r"ERROR|Error", log.read_text())), "the error")
    assert PASSWORD not in log.read_text()


# --- Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "variables", "sentence"),
    [
        (("-Q", "blocks.31337.1"), {}, "blocks.31337.1"),
        (("--pool", "solo"), {}, "The worker's tasks are threads of one process: leave out --pool, or name threads."),
        ((), {"BROKER_URL": ""}, "Without a broker, use manage.py runworker."),
    ],
)
def test_a_worker_that_would_not_do_all_work_is_refused(machines, arguments, variables, sentence):
    ended = celery(*arguments, **machines.cluster.environment | variables)
    assert ended.returncode != 0
    assert sentence in ended.stdout + ended.stderr


def test_a_database_without_this_versions_tables_is_refused(machines):
    with psycopg.connect(machines.postgres.url(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE empty")
    ended = celery(**machines.cluster.environment | {"DATABASE_URL": machines.postgres.url("empty")})
    assert ended.returncode != 0
    assert "The database lacks migrations of this version: run manage.py migrate." in ended.stderr
