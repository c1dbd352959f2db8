"""`manage.py runworker`."""

import signal
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chains.chains_file import ChainsError, SignerError
from config.configured_chains import get_chains
from proving.worker.worker import Worker


class Command(BaseCommand):
    help = "Moves batches forward until SIGTERM or SIGINT. Any number of workers may run."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--threads", type=int, default=4, help="how many rows to work on at once (default: 4)")

    def handle(self, *, threads: int, **_: Any) -> None:
        try:
            for chain in get_chains().destinations():
                chain.accounts()
        except (ChainsError, SignerError) as error:
            raise CommandError(str(error)) from None
        worker = Worker(threads=threads)

        def stop(number: int, frame: FrameType | None) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        worker.run()
