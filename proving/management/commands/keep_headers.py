"""`manage.py keep_headers [<destination> <source>]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chains.chains_file import SignerError
from config.configured_chains import get_chains
from proving.models import FactsRegistry
from proving.paths import upkeep
from proving.transactions import transaction_monitor


class Command(BaseCommand):
    help = (
        "Accumulates a header in the newest window of each connection that has none yet, and waits until it is there. "
        "Workers do the same where chains.toml says keep_headers = true."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, nargs="?", help="only this destination")
        parser.add_argument("source", type=int, nargs="?", help="and only this source")
        parser.add_argument(
            "--timeout",
            type=float,
            default=transaction_monitor.WAIT_SECONDS,
            help="seconds to wait for each (default: %(default)s)",
        )

    def handle(self, *, destination: int | None, source: int | None, timeout: float, **_: Any) -> None:
        rows = FactsRegistry.in_use.exclude(deployed_at=None).order_by("pk")
        if destination is not None:
            rows = rows.filter(destination_chain_id=destination)
        if source is not None:
            rows = rows.filter(source_chain_id=source)
        if not rows:
            raise CommandError("No facts registry is deployed there; manage.py deploy_registry does that.")
        try:
            for row in rows:
                self._keep(row, timeout)
        except SignerError as error:
            raise CommandError(str(error)) from None

    def _keep(self, row: FactsRegistry, seconds: float) -> None:
        chain = get_chains().chain(row.destination_chain_id)
        if self._is_kept(row) or any(self._is_kept(row) for _ in transaction_monitor.monitor_for(chain, seconds)):
            self.stdout.write(f"{row}: kept.")
        else:
            raise CommandError(f"{row}: {row.waiting_for or 'A worker has it.'}")

    def _is_kept(self, row: FactsRegistry) -> bool:
        """Try again to keep one, and return whether it is kept."""
        is_kept = upkeep.keep(row.pk)
        row.refresh_from_db()
        if row.refused:
            raise CommandError(row.refused_with_remedy)
        return is_kept
