"""The Celery worker for installations with `BROKER_URL`: `celery -A proving.celery_app -q worker`.

Its process does the work of `manage.py runworker`. It polls less often, and also when it gets a message.
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

if not apps.ready:  # Celery's command imports this module before Django is set up
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    try:
        get_chains()
    except ChainsError as error:
        sys.exit(str(error))

from django.conf import settings
from django.db import connections

from proving.working.broker_wakeup import TASK, app
from proving.working.worker import Worker, obstacle

logger = logging.getLogger(__name__)

# Seconds between two polls without a message. Polls find work whose message was lost, and rows that become due later.
_POLL_SECONDS = 1.0


@signals.setup_logging.connect
def _keep_our_logs(**_: object) -> None:
    """Do nothing.

    Celery sets up its own logs unless a receiver is connected. Log lines must pass the filters of `config.logs`.
    """


class Work(bootsteps.StartStopStep):
    """The worker of a Celery process, in a thread."""

    requires = ("celery.worker.components:Pool",)
    worker: Worker | None = None

    def __init__(self, parent: Any, **_: object) -> None:
        if not settings.BROKER_URL:
            raise SystemExit("BROKER_URL is not set. Without a broker, use manage.py runworker.")
        if not issubclass(parent.pool_cls, TaskPool):
            raise SystemExit("The worker's tasks are threads of one process: leave out --pool, or name threads.")
        if problem := obstacle():
            raise SystemExit(problem)
        connections.close_all()  # this thread doesn't need the database any more
        self._thread: threading.Thread | None = None

    def start(self, parent: Any) -> None:
        if settings.METRICS_PORT:
            metrics_server.serve(settings.METRICS_PORT)
        Work.worker = Worker(poll_seconds=_POLL_SECONDS)
        self._thread = threading.Thread(target=self._run, name="work")
        self._thread.start()

    def stop(self, parent: Any) -> None:
        """Finish the running turns."""
        if self.worker and self._thread:
            self.worker.stop()
            self._thread.join()

    terminate = stop

    @staticmethod
    def _run() -> None:
        assert Work.worker is not None
        try:
            Work.worker.run()
        except Exception:
            # Without its worker the process does nothing, so it must end.
            logger.critical("the worker has ended; so does its process", exc_info=True)
            state.should_stop = 1  # type: ignore[assignment]  # the exit code


app.steps["worker"].add(Work)


@app.task(name=TASK)
def wake_worker() -> None:
    if Work.worker:
        Work.worker.wake()
