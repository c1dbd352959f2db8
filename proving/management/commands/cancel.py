"""`manage.py cancel (<batch> ... | --user <user>) --reason <sentence>`."""

from collections.abc import Collection
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts import operator_log
from accounts.management.commands.revoke_keys import user_named
from config.database import statements
from proving.management.reasons import reason_in
from queries import batch_states, columns
from queries.columns import RejectionCode
from queries.models import OPEN_STATUSES, Batch


class Command(BaseCommand):
    help = (
        "Rejects these batches, or all open batches of a user, as their users can by the API. Their users read the "
        "reason. Sent transactions stay paid. If a batch is unknown or no longer open, the command changes nothing."
    )

    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("batch", nargs="*", help="identifier of an open batch")
        parser.add_argument("--user", default="", help="address, or chainId:address of a contract wallet")
        parser.add_argument("--reason", default="", help="a sentence that the batches' users read")

    def handle(self, *, batch: list[str], user: str, reason: str, **_: Any) -> None:
        if bool(batch) == bool(user):
            raise CommandError("Name batches, or --user. Nothing was cancelled.")
        if not (why := reason_in(reason)):
            raise CommandError("Give a --reason: the batches' users read it. Nothing was cancelled.")
        sentence = f"The operator has cancelled the batch. The reason given: {why}"
        with transaction.atomic():
            batches = _locked(batch) if batch else _open_of(user)
            cancelled = batch_states.withdraw(batches, code=RejectionCode.CANCELLED_BY_OPERATOR, reason=sentence)
            if not cancelled:
                raise CommandError(f"{user} has no open batch.")
            operator_log.record([batches[pk] for pk in cancelled], "Cancelled.", reason=why)
        for pk in cancelled:
            self.stdout.write(f"{pk} was cancelled.")
        self.stdout.write("Sent transactions stay paid, and workers follow them.")


def _open_of(user: str) -> dict[str, Batch]:
    """Return the user's open batches by identifier. Raises `CommandError` if nobody has this name."""
    return Batch.objects.filter(user=user_named(user), status__in=OPEN_STATUSES).only("pk").in_bulk()


def _locked(names: Collection[str]) -> dict[str, Batch]:
    """Return the batches by identifier. Lock them, so that none of them ends before it is cancelled.

    Raises `CommandError` if a batch is unknown or not open.
    """
    identifiers = {name: columns.batch_id(name) for name in names}
    rows = Batch.objects.filter(pk__in=identifiers.values()).only("status")
    statements.lock(rows)
    batches = rows.in_bulk()
    problems = [
        f"The batch {batch} is {batch.status}." if (batch := batches.get(pk)) else f"There is no batch {name}."
        for name, pk in identifiers.items()
        if pk not in batches or not batches[pk].is_open
    ]
    if problems:
        raise CommandError(" ".join((*problems, "Nothing was cancelled.")))
    return batches
