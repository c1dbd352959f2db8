"""Settings of gunicorn, which serves by threads. On the internet nginx is before it (docs/operating/nginx.conf)."""

import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import django
from django.core.checks import run_checks
from django.core.management.base import CommandError
from django.db import connection
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger

from config.configured_chains import get_chains
from config.logs import to_console

worker_class = "gthread"
timeout = 60
# Longer than nginx keeps its connections, 60 s: otherwise one could be closed while a request is on its way.
keepalive = 75
# docs/specification.md, "Errors".
limit_request_line, limit_request_field_size = 8190, 32 * 1024
# No proxy's headers are trusted here. Django reads the headers that its settings name.
forwarded_allow_ips = ""
# A full disk or a network file system must not stop the heartbeat of the processes.
if Path("/dev/shm").is_dir():  # noqa: S108 (memory, and gunicorn makes a private file in it)
    worker_tmp_dir = "/dev/shm"  # noqa: S108 (same)
# The control socket lies in the home folder, where two installations would share it. It isn't needed.
control_socket_disable = True


class logger_class(Logger):  # noqa: N801 (gunicorn's name of the setting)
    """A logger that logs no requests, because `config.request_log` does so without the query string."""

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
    """Say once what is wrong with a setting, chains.toml or the schema, before each process would."""
    _check_apart()
    # Processes count in files of this folder, so that whichever is asked answers for all (`config.metrics_server`).
    memory = "/dev/shm"  # noqa: S108 (the folder in it is private)
    prefix = f"batch-query-service-metrics.{os.getpid()}."
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(
        prefix=prefix, dir=memory if os.access(memory, os.W_OK) else None
    )


def on_reload(_: Any) -> None:
    """End the server, after the requests that it has, where its new processes could not work."""
    try:
        _check_apart()
    except SystemExit as wrong:
        raise HaltServer(str(wrong).replace("\n", " "), 1) from None


def _check_apart() -> None:
    # Each process reads the settings itself, also after a reload. So the supervisor must not load them.
    with ProcessPoolExecutor(1, get_context("fork")) as reader:
        reader.submit(_check).result()


def _check() -> None:
    """Raise SystemExit with a sentence where a setting or chains.toml is wrong, or the database is too old."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    # A pool would wait for a database that is away.
    connection.settings_dict["OPTIONS"].pop("pool", None)
    try:
        wrong = [message for message in run_checks(tags=["settings"]) if message.is_serious()]
        get_chains()
    except (CommandError, ValueError) as error:
        raise SystemExit(str(error)) from None
    if wrong:
        raise SystemExit("\n".join(str(message) for message in wrong))


def on_exit(_: Any) -> None:
    shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)
