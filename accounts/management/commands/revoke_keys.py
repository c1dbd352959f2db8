"""`manage.py revoke_keys <user> ...` or `--all`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts import keys, operator_log
from accounts.models import User, read_user_name


class Command(BaseCommand):
    help = (
        "Revokes all API keys of these users, or of everybody, at once. The users' batches go on, and users who may "
        "sign in can make new keys."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("address", nargs="*", help="address, or chainId:address of a contract wallet")
        parser.add_argument("--all", action="store_true", help="everybody's keys")
        parser.add_argument("--reason", default="", help="a sentence for the operators' log")

    def handle(self, *, address: list[str], all: bool, reason: str, **_: Any) -> None:  # noqa: A002 (the option's name)
        if bool(address) == all:
            raise CommandError("Name the users' addresses, or --all.")
        whose = User.objects.all() if all else User.objects.filter(pk__in=[user_named(each).pk for each in address])
        with transaction.atomic():
            operator_log.record(
                whose.filter(api_keys__isnull=False, api_keys__revoked_at=None).distinct(),
                "Revoked all keys.",
                reason=reason,
            )
            revoked = keys.revoke_by_operator(whose)
        self.stdout.write(f"{revoked} keys revoked.")


def user_named(given: str) -> User:
    """Return the user with this name. Raises `CommandError` if nobody has signed in with it."""
    name = read_user_name(given)
    others = User.objects.filter(address=name.rpartition(":")[2]) if name else ()
    user = next((user for user in others if user.name == name), None)
    if user is None:
        names = " and ".join(other.name for other in others)
        hint = f" Did you mean {names}?" if names else ""
        raise CommandError(f"Nobody has signed in with {given}. Nothing was changed.{hint}")
    return user
