"""Settings of gunicorn, which serves by threads. On the internet nginx is before it (docs/operating/nginx.conf)."""

import importlib
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gunicorn.glogging import Logger

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
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"redact": {"()": "config.logs.RedactKeys"}},
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
        "json": {"()": "config.logs.JsonLines"},
    },
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": log_format, "filters": ["redact"]},
    },
    "loggers": {
        "gunicorn.error": {"handlers": ["console"], "level": "INFO", "propagate": False},
        "gunicorn.access": {"handlers": ["console"], "level": "INFO", "propagate": False},
    },
    "root": {"handlers": [], "level": "WARNING"},
}


def on_starting(_: Any) -> None:
    """Check the settings once, before each process does."""
    # In a process of its own: a reload must read the settings again, so the supervisor must not have loaded them.
    with ProcessPoolExecutor(1, get_context("fork")) as reader:
        reader.submit(_read_settings).result()
    # Processes count in files of this folder, so that each of them can report the metrics of all.
    memory = "/dev/shm"  # noqa: S108 (the folder in it is private)
    prefix = f"batch-query-service-metrics.{os.getpid()}."
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(
        prefix=prefix, dir=memory if os.access(memory, os.W_OK) else None
    )


def _read_settings() -> None:
    """Raise SystemExit with a sentence for each wrong setting."""
    importlib.import_module(os.environ.get("DJANGO_SETTINGS_MODULE", "config.settings"))


def on_exit(_: Any) -> None:
    shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)
