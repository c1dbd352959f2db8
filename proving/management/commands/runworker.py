"""`manage.py runworker`."""

import signal
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import metrics_server
from proving.worker.worker import Worker, obstacle


class Command(BaseCommand):
    help = "Moves batches forward until SIGTERM or SIGINT. Any number of workers may run."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--threads", type=int, default=4, help="how many rows to work on at once (default: 4)")
        parser.add_argument(
            "--metrics-port",
            type=int,
            default=settings.METRICS_PORT,
            help="where to serve /metrics (default: METRICS_PORT, else nowhere)",
        )

    def handle(self, *, threads: int, metrics_port: int, **_: Any) -> None:
        if problem := obstacle():
            raise CommandError(problem)
        if metrics_port:
            metrics_server.serve(metrics_port)
        worker = Worker(threads=threads)

        def stop(number: int, frame: FrameType | None) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        worker.run()
