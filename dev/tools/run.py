"""Run the web server and a worker until Ctrl-C, for `make run`. Production uses a service manager instead.

If the worker can't work, for example without a signer's key, the web server continues: pages need no key.
"""

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PROJECT = Path(__file__).resolve().parents[2]

_WORKER_ENDED = """\
The worker has ended, for the reason above. The web server goes on, and batches wait until a worker runs:
    .venv/bin/python manage.py runworker"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bind", default="127.0.0.1:8000", help="address and port (%(default)s)")
    parser.add_argument("--processes", default="2", help="of the web server (%(default)s)")
    parser.add_argument("--threads", default="8", help="of each of them (%(default)s)")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)  # a closed terminal, which gunicorn outlives

    python = sys.executable
    gunicorn = [python, "-m", "gunicorn", "--config", "config/gunicorn.py", "--bind", options.bind]
    gunicorn += ["--workers", options.processes, "--threads", options.threads, "config.wsgi"]
    worker = subprocess.Popen([python, "manage.py", "runworker"], cwd=PROJECT)
    web = subprocess.Popen(gunicorn, cwd=PROJECT)
    try:
        while web.poll() is None and worker.poll() is None:
            time.sleep(0.2)
        if web.returncode is None:
            print(_WORKER_ENDED, file=sys.stderr)
        return web.wait() or 1  # the web server should not end by itself
    except KeyboardInterrupt:
        return 0
    finally:
        for process in (web, worker):
            process.terminate()
        for process in (web, worker):
            process.wait()


def _stop(_number: int, _frame: FrameType | None) -> None:
    # A second signal must not interrupt the shutdown.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
