"""Celery workers with RabbitMQ, where it differs from Redis."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.conftest import Machines
from tests.cluster.rabbitmq import RabbitMQ

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not RabbitMQ.is_installed(), reason="RabbitMQ is missing: apt-get install rabbitmq-server"),
]


@pytest.fixture(scope="module")
def on_rabbitmq(tmp_path_factory) -> Iterator[Machines]:
    with ExitStack() as running:
        yield Machines(running, tmp_path_factory, RabbitMQ())


@pytest.fixture
def machines(on_rabbitmq: Machines) -> Iterator[Machines]:
    on_rabbitmq.begin()
    yield on_rabbitmq
    on_rabbitmq.kill_workers()


def test_two_workers_hear_of_work_by_messages_and_do_everything_once(machines):
    for name in ("worker-1", "worker-2"):
        machines.cluster.start_worker(name)
    machines.submit(24, per_block=3)
    machines.until_all_are_done()
    machines.assert_nothing_was_done_twice()
    machines.until(lambda: machines.waiting_messages() == 0, "every message taken")
    for name in ("worker-1", "worker-2"):
        assert "amqp://guest:**@127.0.0.1" in machines.cluster.log(name).read_text()
