"""`manage.py hand_over <chainId:address>`."""

from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.db.models import ForeignObjectRel

from accounts import keys, operator_log, webhook_secrets
from accounts.models import User, read_user_name
from database import statements
from queries.models import Block, IdempotencyKey


class Command(BaseCommand):
    help = (
        "Hands over to a contract wallet all that a version before 0.3.0 has stored for its address: keys, "
        "batches, log and limits. Keys keep working, open batches go on, and their webhooks are sent. A name that "
        "two keys have gets a number. The secret of webhooks stays, and one that the wallet has by now signs "
        "beside it for seven days. Limits that the wallet has by now go before those of the user of before. Its "
        "sessions end: it signs in again. First make sure that the wallet of this chain is the user of before, "
        "because others may have its address on other chains. There is no way back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("wallet", help="chainId:address of the contract wallet, which has signed in")
        parser.add_argument("--reason", default="", help="a sentence, for the log of operators")

    def handle(self, *, wallet: str, reason: str, **_: Any) -> None:
        name = read_user_name(wallet)
        if name is None or ":" not in name:
            raise CommandError(f"Name the contract wallet as chainId:address, instead of {wallet}.")
        done = statements.retried(partial(_hand_over, name, reason))
        self.stdout.write(
            f"The keys and batches of before are those of {name}."
            if done
            else f"No user of before has the address of {name}: nothing is left to hand over."
        )


@transaction.atomic
def _hand_over(name: str, reason: str) -> bool:
    """Turn the old user into the contract wallet's user, with the wallet's rows. False: there is no old user.

    The old user has many rows. They stay unchanged, so workers can go on with them.
    """
    # While a user's row is locked, no row that refers to it can be added.
    locked = User.objects.filter(address=name.rpartition(":")[2]).order_by("pk").select_for_update()
    users = {user.name: user for user in locked}
    wallet, before = users.get(name), users.get(name.rpartition(":")[2])
    if wallet is None:
        raise CommandError(f"{name} hasn't signed in: it does so first. Nothing was handed over.")
    if before is None:
        return False
    if before.own_key_known:
        raise CommandError(f"{before.name} signs in with a key of its own, and keeps what it has.")
    webhook_secrets.hand_over(wallet, before)
    for key in wallet.api_keys.filter(revoked_at=None):
        taken = before.api_keys.filter(revoked_at=None, name=key.name).exists()
        wallet.api_keys.filter(pk=key.pk).update(
            user=before, name=keys.free_name(before, key.name) if taken else key.name
        )
    # If both users have used the same key, the wallet's row stays, because it is newer.
    IdempotencyKey.objects.filter(
        user=before, key__in=IdempotencyKey.objects.filter(user=wallet).values("key")
    ).delete()
    # Rows of all models that refer to a user. Some relations are hidden. Blocks are locked before batches.
    relations = User._meta.get_fields(include_hidden=True)
    for relation in sorted(relations, key=lambda relation: relation.related_model is not Block):
        if isinstance(relation, ForeignObjectRel):
            rows = relation.related_model._base_manager.filter(**{relation.field.name: wallet})
            rows.update(**{relation.field.name: before})
    wallet.delete()
    if before.daily_limits_wei is not None and wallet.daily_limits_wei is not None:
        wallet.daily_limits_wei = before.daily_limits_wei | wallet.daily_limits_wei
    # The nullable columns are the chain, the last sign-in and the user's own limits.
    for column in User._meta.concrete_fields:
        if column.null and (value := getattr(wallet, column.attname)) is not None:
            setattr(before, column.attname, value)
    before.set_unusable_password()
    before.save()
    operator_log.record([before], "Handed over the keys and batches of before.", reason=reason)
    return True
