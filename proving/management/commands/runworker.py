"""`manage.py runworker`."""

import signal
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import metrics_server
from proving.working.worker import Worker, obstacle, work_once


class Command(BaseCommand):
    help = "Moves batches forward until SIGTERM or SIGINT. Any number of workers may run."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="run one turn of all work, due or not, and end")
        parser.add_argument(
            "--metrics-port",
            type=int,
            default=settings.METRICS_PORT,
            help="port of /metrics (default: METRICS_PORT; 0: none)",
        )

    def handle(self, *, once: bool, metrics_port: int, **_: Any) -> None:
        if problem := obstacle():
            raise CommandError(problem)
        if once:
            if failed := work_once():
                raise CommandError(f"{failed} turns failed; the log says why.")
            return
        if metrics_port:
            metrics_server.serve(metrics_port)
        worker = Worker()

        def stop(number: int, frame: FrameType | None) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        worker.run()
