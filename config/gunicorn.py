"""How gunicorn supervises the web server's processes. config/web_worker.py is what they run."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

worker_class = "config.web_worker.WebWorker"
timeout = 60
# A full disk or a network file system must not stop the heartbeat of the processes.
if Path("/dev/shm").is_dir():  # noqa: S108 (memory, and gunicorn makes a private file in it)
    worker_tmp_dir = "/dev/shm"  # noqa: S108 (same)
# By default it lies in the home folder, where two installations would share it. Nothing here uses it.
control_socket_disable = True
# As config/settings/logs_and_debugging.py reads it, which refuses anything else.
log_format = "json" if os.environ.get("LOG_FORMAT") == "json" else "line"
logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"redact": {"()": "config.logs.RedactKeys"}, "one_line": {"()": "config.logs.OneLine"}},
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
        # It logs an exception where the client of a refused request has gone.
        "waitress": {"handlers": ["console"], "filters": ["one_line"], "level": "WARNING", "propagate": False},
        # Otherwise each request that waits for a thread would get a line, which helps a client who sends many.
        "waitress.queue": {"level": "ERROR"},
        # Listens for the operator.
        "config.operator_listener": {"handlers": ["console"], "level": "INFO", "propagate": False},
    },
    "root": {"handlers": [], "level": "WARNING"},
}


def on_starting(server: Any) -> None:
    """Say once what is wrong with a setting, before each process would."""
    # The project can't be imported any earlier.
    from config import liveness, process_metrics  # noqa: PLC0415

    # Each process reads the settings itself, also when it is told to start anew: the supervisor must not have them.
    with ProcessPoolExecutor(1, get_context("fork")) as reader:
        where = reader.submit(_read_settings).result()
    server.metrics_folder = process_metrics.make_folder()
    server.liveness = where and liveness.serve(server, *where)


def _read_settings() -> tuple[str, int] | None:
    """Return where to tell that the server lives. Raises SystemExit with a sentence where a setting is wrong."""
    from config.environment import require_settings  # noqa: PLC0415 (as above)

    # An attester has none.
    where: tuple[str, int] | None = getattr(require_settings(), "LIVENESS_BIND", None)
    return where


def pre_fork(server: Any, worker: Any) -> None:
    """Give each process the first free place: the successor of a dead one goes on with its counts."""
    taken = {other.place for other in server.WORKERS.values()}
    worker.place = next(place for place in range(len(taken) + 1) if place not in taken)


def post_fork(server: Any, worker: Any) -> None:
    from config import process_metrics  # noqa: PLC0415 (as above)

    process_metrics.count_in(server.metrics_folder, worker.place)
    # Otherwise its port would stay open without an answer, should the supervisor be killed.
    if server.liveness:
        server.liveness.socket.close()


def on_exit(server: Any) -> None:
    from config import process_metrics  # noqa: PLC0415 (as above)

    process_metrics.remove_folder(server.metrics_folder)
