"""Settings of gunicorn with threads. On the internet, nginx is in front of it (deploy/nginx)."""

import logging
import os
import re
import shutil
import tempfile
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from weakref import WeakSet

import django
from django.conf import settings
from django.core.checks import run_checks
from django.core.management.base import CommandError
from django.db import connection
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker

from config import static_files
from config.configured_chains import get_chains
from config.logs import to_console

# Seconds, and connections of a process at the same time. gunicorn accepts at most 1,000.
_PAUSE_SECONDS, _MAX_PAUSED = 1, 200


class worker_class(ThreadWorker):  # noqa: N801 (gunicorn's name of the setting)
    """A worker with threads that makes pauses between the requests of a client that is ahead of its share.

    Endless cheap requests would also delay other clients, such as requests that are refused. No thread waits.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pausing = WeakSet[Any]()
        """Sockets whose next request has to wait."""
        self._paused = deque[tuple[float, Any, Any]]()
        self.metrics_folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR", "")

    def finish_request(self, conn: Any, fs: Any) -> None:
        pauses = conn.sock in self.pausing and self.alive and len(self._paused) < _MAX_PAUSED
        self.pausing.discard(conn.sock)
        if pauses:
            self._paused.append((time.monotonic() + _PAUSE_SECONDS, conn, fs))
        else:
            super().finish_request(conn, fs)

    def murder_pending(self) -> None:
        """Also continue with connections whose pause is over. The server calls this at least once a second."""
        super().murder_pending()
        while self._paused and (self._paused[0][0] <= time.monotonic() or not self.alive):
            super().finish_request(*self._paused.popleft()[1:])


def post_request(worker: worker_class, _: Any, environ: dict[str, Any], __: Any) -> None:
    # `config.processor_rate` sets it.
    if environ.get("batch_query_service.pauses"):
        worker.pausing.add(environ["gunicorn.socket"])


timeout = 60
# This is longer than nginx's 60 s. Otherwise a connection could be closed while a request is on its way.
keepalive = 75
# Source: docs/specification.md, "Errors".
limit_request_line, limit_request_field_size = 8190, 32 * 1024
# gunicorn trusts no proxy's headers. Django reads the headers that its settings name.
forwarded_allow_ips = ""
# The folder is in memory, because a full disk or a network file system must not stop the processes' heartbeat.
if Path("/dev/shm").is_dir():  # noqa: S108 (memory, and gunicorn makes a private file in it)
    worker_tmp_dir = "/dev/shm"  # noqa: S108 (same)
# The control socket isn't needed. It is in the home folder, so two installations would share it.
control_socket_disable = True


class logger_class(Logger):  # noqa: N801 (gunicorn's name of the setting)
    """A logger without requests, because `config.request_log` logs them without the query string."""

    def access(self, *_: Any) -> None:
        pass


# config/settings.py reads the same variable, and refuses other values.
log_format = "json" if os.environ.get("LOG_FORMAT") == "json" else "line"
logconfig_dict = {
    **to_console(log_format),
    "loggers": {
        "gunicorn.error": {"handlers": ["console"], "level": "INFO", "propagate": False},
        "gunicorn.access": {"handlers": ["console"], "level": "INFO", "propagate": False},
    },
    "root": {"handlers": [], "level": "WARNING"},
}


def on_starting(_: Any) -> None:
    """Report a fault of a setting, chains.toml or the schema once, before every process would."""
    _check_apart()
    for folder in Path(_MEMORY).glob(f"{_METRICS}.*"):
        made = re.fullmatch(rf"{_METRICS}\.(\d+)\.\w+", folder.name)
        # Another server that starts may remove the folder first.
        with suppress(FileNotFoundError):
            if made and folder.lstat().st_uid == os.getuid() and not Path("/proc", made[1]).exists():
                shutil.rmtree(folder, ignore_errors=True)
    _make_metrics_folder()


def on_reload(_: Any) -> None:
    """End the server after its current requests if its new processes couldn't work."""
    try:
        _check_apart()
    except SystemExit as wrong:
        raise HaltServer(str(wrong).replace("\n", " "), 1) from None
    # The new processes count from 0, as after a start. Prometheus expects that, and no count that becomes lower.
    _make_metrics_folder()


_MEMORY, _METRICS = "/dev/shm", "batch-query-service-metrics"  # noqa: S108 (folders in it are private)


def _make_metrics_folder() -> None:
    """Have new processes store their metrics in a folder, so that each can answer for all (`config.metrics_server`)."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(
        prefix=f"{_METRICS}.{os.getpid()}.", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None
    )


def child_exit(server: Any, worker: worker_class) -> None:
    """Remove the metrics of the processes from before a reload when the last of these processes has ended."""
    in_use = {os.environ["PROMETHEUS_MULTIPROC_DIR"], *(each.metrics_folder for each in server.WORKERS.values())}
    if worker.metrics_folder not in in_use:
        shutil.rmtree(worker.metrics_folder, ignore_errors=True)


def _check_apart() -> None:
    # Each process reads the settings itself, even after a reload. So the supervisor must not load them.
    with ProcessPoolExecutor(1, get_context("fork")) as reader:
        reader.submit(_check).result()


def _check() -> None:
    """Raise SystemExit with a sentence if a setting or chains.toml is wrong, or the database is too old."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    # A pool would wait for a database that doesn't answer.
    connection.settings_dict["OPTIONS"].pop("pool", None)
    try:
        messages = run_checks(tags=["settings"])
        get_chains()
    except (CommandError, ValueError) as error:
        raise SystemExit(str(error)) from None
    if wrong := [str(message) for message in messages if message.is_serious()]:
        raise SystemExit("\n".join(wrong))
    logger = logging.getLogger("config.gunicorn")
    for message in messages:
        logger.warning(message.msg)
    # An attester has no files.
    if settings.STATIC_ROOT and (lacking := static_files.problem()):
        logger.error("%s The folder is %s.", lacking, settings.STATIC_ROOT)


def on_exit(_: Any) -> None:
    shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)
