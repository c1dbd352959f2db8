"""Celery as distributor of the work, where `BROKER_URL` names a broker: `celery -A proving.worker.celery_app worker`.

Each process of it is a `Worker` whose polls are rare, and a message is a task that has it look at one route. Whatever
is lost of the messages, or the broker itself, is made up for by those polls.
"""

import logging
import os
import sys
import threading
from typing import Any

import django
from celery import Celery, bootsteps, signals
from celery.concurrency.thread import TaskPool
from celery.worker import state
from django.apps import apps
from kombu import Connection, Producer, Queue

from chains.chains_file import ChainsError
from config import metrics_server
from config.configured_chains import get_chains
from config.environment import require_settings

if not apps.ready:  # Celery's command imports this first.
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    require_settings()
    django.setup()
    try:
        get_chains()
    except ChainsError as error:
        sys.exit(str(error))

from django.conf import settings

from proving.worker import routes
from proving.worker.doorbell import doorbell
from proving.worker.routes import Route
from proving.worker.worker import Worker, obstacle

logger = logging.getLogger(__name__)

# For the broker's answers, in seconds: one that hangs holds up no shutdown. Celery waits for messages by other means.
_CONNECT_SECONDS, _ANSWER_SECONDS = 3, 5
# A message that a killed worker had comes back after this, in seconds, and finds that the sweeps were there before.
_BACK_SECONDS = 600

_OF_REDIS: dict[str, object] = {
    "visibility_timeout": _BACK_SECONDS,
    "socket_connect_timeout": _CONNECT_SECONDS,
    "socket_timeout": _ANSWER_SECONDS,
    "socket_keepalive": True,
}
_OF_RABBITMQ: dict[str, object] = {"read_timeout": _ANSWER_SECONDS, "write_timeout": _ANSWER_SECONDS}


def _transport_options() -> dict[str, object]:
    return _OF_REDIS if settings.BROKER_URL.startswith("redis") else _OF_RABBITMQ


def _queue(route: Route) -> Queue:
    return Queue(route.queue, routing_key=route.queue)


# Celery's own ways of setting up Django serve processes that it forks.
app = Celery("proving", broker=settings.BROKER_URL, fixups=[], set_as_current=False)
app.conf.update(
    task_queues=[_queue(route) for route in routes.every()],
    # A misspelt queue in `-Q` is refused.
    task_create_missing_queues=False,
    # Tasks wait for nodes, and share their exchanges by greenlets inside of threads.
    worker_pool="threads",
    worker_concurrency=4,
    # A process has as many messages as threads. It gives one back, unanswered, when it has done what it stands for:
    # until then it takes no other, which an idle process could answer.
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    # Messages are names of routes, and rows tell how things went.
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_default_delivery_mode="transient",
    # Nobody who can write to the broker can do more than ring.
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    # The broker is waited for, as long as it takes, at the start as well.
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_connection_timeout=_CONNECT_SECONDS,
    broker_transport_options=_transport_options(),
    worker_redirect_stdouts=False,
)


@signals.setup_logging.connect
def _keep_our_logs(**_: object) -> None:
    """Celery sets up no logs where somebody listens: lines go through the filters of `config.logs`."""


class Sweep(bootsteps.StartStopStep):
    """The worker of a process of Celery, in a thread: its beats, and its rare polls of the process's queues."""

    requires = ("celery.worker.components:Pool",)
    worker: Worker | None = None

    def __init__(self, parent: Any, **_: object) -> None:
        if not settings.BROKER_URL:
            raise SystemExit("BROKER_URL is not set. Without a broker, run the worker by manage.py runworker.")
        if not issubclass(parent.pool_cls, TaskPool):
            raise SystemExit("The worker's tasks are threads of one process: leave out --pool, or name threads.")
        if problem := obstacle():
            raise SystemExit(problem)
        self._thread: threading.Thread | None = None

    def start(self, parent: Any) -> None:
        consumed = [route for route in routes.every() if route.queue in parent.app.amqp.queues.consume_from]
        if settings.METRICS_PORT:
            metrics_server.serve(settings.METRICS_PORT)
        Sweep.worker = Worker(threads=parent.concurrency, routes=consumed, doorbell=doorbell)
        self._thread = threading.Thread(target=self._run, name="sweep")
        self._thread.start()

    def stop(self, parent: Any) -> None:
        """Finishes what is in hand, what was begun by messages included."""
        if self.worker and self._thread:
            self.worker.stop()
            self._thread.join()

    terminate = stop

    @staticmethod
    def _run() -> None:
        assert Sweep.worker is not None
        try:
            Sweep.worker.run()
        except BaseException:
            # Without it nothing tells that this process runs, and nothing finds what messages have missed.
            logger.critical("the worker has ended; so does its process", exc_info=True)
            state.should_stop = 1  # type: ignore[assignment]  # its exit code


app.steps["worker"].add(Sweep)


@app.task(name="prove")
def prove(kind: str, lane: list[int]) -> None:
    """Do one group of what is due on the route."""
    route = Route(kind, tuple(lane))
    if Sweep.worker and route in routes.every():
        Sweep.worker.answer(route)


def connect() -> Connection:
    """A connection that is open, or raises."""
    connection: Connection = app.connection_for_write(settings.BROKER_URL, transport_options=_transport_options())
    connection.connect()
    return connection


def ring(route: Route, producer: Producer) -> None:
    """Send the message, once."""
    prove.apply_async((route.kind, route.lane), queue=route.queue, producer=producer, retry=False)
