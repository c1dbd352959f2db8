"""Celery as distributor of work, where `BROKER_URL` names a broker: `celery -A proving.worker.celery_app -q worker`.

Each process of it is a `Worker` whose polls are rare, and a message is a task that has it look at one route. Whatever
is lost of the messages, or the broker itself, is made up for by those polls.
"""

import logging
import os
import sys
import threading
from typing import Any

import django
from celery import bootsteps, signals
from celery.concurrency.thread import TaskPool
from celery.worker import state
from django.apps import apps

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
from django.db import connections

from proving.worker import routes
from proving.worker.broker_queues import PROVE, app
from proving.worker.notifier import notifier
from proving.worker.routes import Route
from proving.worker.worker import Worker, obstacle

logger = logging.getLogger(__name__)


@signals.setup_logging.connect
def _keep_our_logs(**_: object) -> None:
    """Keep Celery from setting up logs, by listening to its signal: lines go through the filters of `config.logs`."""


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
        connections.close_all()  # this thread needs the database no more
        self._thread: threading.Thread | None = None

    def start(self, parent: Any) -> None:
        consumed = [route for route in routes.every() if route.queue in parent.app.amqp.queues.consume_from]
        if settings.METRICS_PORT:
            metrics_server.serve(settings.METRICS_PORT)
        Sweep.worker = Worker(threads=parent.concurrency, routes=consumed, notifier=notifier)
        self._thread = threading.Thread(target=self._run, name="sweep")
        self._thread.start()

    def stop(self, parent: Any) -> None:
        """Finish what is in hand, what was begun by messages included."""
        if self.worker and self._thread:
            self.worker.stop()
            self._thread.join()

    terminate = stop

    @staticmethod
    def _run() -> None:
        assert Sweep.worker is not None
        try:
            Sweep.worker.run()
        except Exception:
            # Without it nothing tells that this process runs, and nothing finds what messages have missed.
            logger.critical("the worker has ended; so does its process", exc_info=True)
            state.should_stop = 1  # type: ignore[assignment]  # its exit code


app.steps["worker"].add(Sweep)


@app.task(name=PROVE)
def prove(kind: str, lane: list[int]) -> None:
    """Do one group of what is due on the route."""
    route = Route(kind, tuple(lane))
    if Sweep.worker and route in routes.every():
        Sweep.worker.answer(route)
