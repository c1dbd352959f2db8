"""`manage.py runworker`."""

import signal
from contextlib import suppress
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError
from django.db import connection

from chains.chains_file import ChainsError, SignerError
from config import metrics_server
from config.configured_chains import get_chains
from proving.worker.worker import Worker
from queries import schema


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
        try:
            for chain in get_chains().destinations():
                chain.accounts()
        except (ChainsError, SignerError) as error:
            raise CommandError(str(error)) from None
        # A database that does not answer is waited for.
        with suppress(DatabaseError):
            if problem := schema.problem(connection):
                raise CommandError(problem)
        if metrics_port:
            metrics_server.serve(metrics_port)
        worker = Worker(threads=threads)

        def stop(number: int, frame: FrameType | None) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        worker.run()
