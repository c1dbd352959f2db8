"""`manage.py revoke_keys <address> ...` or `--all`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from accounts.models import AccountEvent, ApiKey, EventKind, User
from chains.address_checksum import checksummed


class Command(BaseCommand):
    help = (
        "Revokes all API keys of these users, or of everybody, at once. Their batches go on, and whoever may sign in "
        "can make new keys."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("address", nargs="*", help="addresses that the users sign in with")
        parser.add_argument("--all", action="store_true", help="everybody's keys")

    def handle(self, *, address: list[str], all: bool, **_: Any) -> None:  # noqa: A002 (the option's name)
        if bool(address) == all:
            raise CommandError("Name the users' addresses, or --all.")
        live = ApiKey.objects.filter(revoked_at=None)
        if not all:
            live = live.filter(user__in=[_user(each) for each in address])
        with transaction.atomic():
            revoked = list(live.order_by("pk").select_for_update(of=("self",), no_key=True).select_related("user"))
            now = timezone.now()
            ApiKey.objects.filter(pk__in=[key.pk for key in revoked]).update(revoked_at=now)
            AccountEvent.objects.bulk_create(
                AccountEvent(
                    user=key.user,
                    at=now,
                    kind=EventKind.KEY_REVOKED,
                    key_name=key.name,
                    key_ends=key.ends,
                    detail="by the operator",
                )
                for key in revoked
            )
        self.stdout.write(f"{len(revoked)} keys revoked.")


def _user(address: str) -> User:
    user = User.objects.filter(address=checksummed(address)).first()
    if user is None:
        raise CommandError(f"Nobody has signed in with {address}; no key was revoked.")
    return user
