"""Users, who may be one, their API keys, the log of both, nonces of pending sign-ins, and counts of the throttle."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import AbstractBaseUser, BaseUserManager
from django.db import models
from django.utils import timezone

from chains.encoding import checksummed
from config.configured_chains import get_chains

if TYPE_CHECKING:
    from chains.chains_file import Chain

ANYONE = "*"  # in `settings.ALLOWED_ADDRESSES`
EVERY_DESTINATION = "*"  # in `User.daily_limits_wei`: each that isn't named and is no test network


def may_sign_in(address: str) -> bool:
    """Return whether `settings.ALLOWED_ADDRESSES` or `OPERATOR_ADDRESSES` lets an EIP-55 address in.

    With an empty list, anyone may sign in if all destination chains are test networks, and nobody otherwise: a user
    with a key for another destination spends the operator's money.
    """
    if is_operator(address):
        return True
    allowed = settings.ALLOWED_ADDRESSES
    if not allowed:
        return all(chain.test_network for chain in get_chains().destinations())
    return ANYONE in allowed or address in _checksummed(tuple(allowed))


def is_operator(address: str) -> bool:
    """Return whether an EIP-55 address belongs to an operator of this service."""
    return address in _checksummed(tuple(settings.OPERATOR_ADDRESSES))


@lru_cache(maxsize=8)
def _checksummed(addresses: tuple[str, ...]) -> frozenset[str | None]:
    """Return the addresses with checksums. They are kept, because each request asks, and a checksum is a hash."""
    return frozenset(map(checksummed, addresses))


def own_or(own: int | None, installations: int) -> int:
    """Return the user's own limit if there is one. It may be higher or lower than the installation's, down to 0."""
    return installations if own is None else own


def daily_wei(own: Mapping[str, str] | None, chain: "Chain") -> int | None:
    """Return what the user's batches may cost in 24 hours on this destination, in wei. None: any amount."""
    every = None if chain.test_network else (own or {}).get(EVERY_DESTINATION)
    limit = (own or {}).get(str(chain.id), every)
    return chain.daily_limit_per_user_wei if limit is None else int(limit)


class UserManager(BaseUserManager["User"]):
    def for_address(self, address: str) -> "User":
        """Return the user of an EIP-55 address, made if there is none yet."""
        user, _ = self.get_or_create(address=address, defaults={"password": make_password(None)})
        return user


class User(AbstractBaseUser):
    """The holder of an address, proven by a signature. There is no password; Django's field holds an unusable one.

    The field is random for each user, and Django ties sessions to it: a new value ends all sessions of the user.
    """

    address = models.CharField(max_length=42, unique=True)  # with its EIP-55 checksum
    created_at = models.DateTimeField(default=timezone.now)
    last_sign_in = models.DateTimeField(null=True)
    # Limits of the user's own, which an operator has set; null: the installation's (`accounts.models`). They are
    # named for the settings that they stand instead of.
    max_batches_per_minute = models.PositiveBigIntegerField(null=True, blank=True)
    max_queries_per_minute = models.PositiveBigIntegerField(null=True, blank=True)
    max_open_batches = models.PositiveBigIntegerField(null=True, blank=True)
    max_open_queries = models.PositiveBigIntegerField(null=True, blank=True)
    # Keys are a destination's chain id, or `EVERY_DESTINATION`, all in decimal digits: wei, instead of the chain's
    # `daily_limit_per_user`.
    daily_limits_wei = models.JSONField(null=True, blank=True)
    last_login = None

    USERNAME_FIELD = "address"

    objects: ClassVar[UserManager] = UserManager()

    @property
    def is_staff(self) -> bool:
        """Return whether Django's admin lets the user in: only operators."""
        return is_operator(self.address)

    def has_perm(self, perm: str, obj: object = None) -> bool:
        """Return whether Django's admin lets the user do it. All operators may do the same."""
        return self.is_staff

    def has_module_perms(self, app_label: str) -> bool:
        """Return the same as `has_perm`."""
        return self.is_staff

    def end_sessions(self) -> None:
        """End all sessions of the user, on all devices. API keys keep working."""
        self.set_unusable_password()
        self.save(update_fields=["password"])


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def live(self, now: datetime) -> "ApiKeyQuerySet":
        return self.filter(models.Q(expires_at=None) | models.Q(expires_at__gt=now), revoked_at=None)


class ApiKey(models.Model):
    """One key of a user. The key itself is stored nowhere: see `accounts.keys`.

    A key that was revoked or has expired stays, because batches refer to it. Its name may be given again.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=60)
    salt = models.BinaryField(max_length=32)  # 32 random bytes that the key is derived from
    key_hash = models.CharField(max_length=64, unique=True)  # SHA-256 of the key, in hex
    prefix = models.CharField(max_length=12)
    last_four = models.CharField(max_length=4)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)  # to a minute
    expires_at = models.DateTimeField(null=True)  # when it expires, set when it is rotated
    revoked_at = models.DateTimeField(null=True)

    objects: ClassVar[models.Manager["ApiKey"]] = ApiKeyQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints: ClassVar[list[Any]] = [
            models.UniqueConstraint(
                fields=["user", "name"], condition=models.Q(revoked_at=None), name="api_key_name_unique_per_user"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.ends})"

    @property
    def ends(self) -> str:
        """Return the part of the key that anyone may see: enough to tell it from others."""
        return f"{self.prefix}…{self.last_four}"


class WebhookSecret(models.Model):
    """A secret that signs a user's webhooks, see `accounts.webhook_secrets`. The current one has no end."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="webhook_secrets")
    sealed = models.BinaryField()  # see `accounts.webhook_secrets`
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)  # until when it signs beside its successor

    class Meta:
        constraints: ClassVar[list[Any]] = [
            models.UniqueConstraint(
                fields=["user"], condition=models.Q(expires_at=None), name="one_webhook_secret_without_end"
            ),
        ]

    def __str__(self) -> str:
        return f"webhook secret of {self.created_at:%Y-%m-%d}"


class EventKind(models.TextChoices):
    SIGNED_IN = "signed_in", "Signed in"
    SIGNED_OUT = "signed_out", "Signed out"
    SIGNED_OUT_EVERYWHERE = "signed_out_everywhere", "Signed out everywhere"
    KEY_MADE = "key_made", "Key made"
    KEY_SHOWN = "key_shown", "Key shown or copied"
    KEY_ROTATED = "key_rotated", "Key rotated"
    KEY_REVOKED = "key_revoked", "Key revoked"
    WEBHOOK_SECRET_SHOWN = "webhook_secret_shown", "Webhook secret shown or copied"
    WEBHOOK_SECRET_ROTATED = "webhook_secret_rotated", "Webhook secret rotated"


class AccountEvent(models.Model):
    """An event of a user's keys or sessions, which the user can read."""

    KEPT_DAYS = 90

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    kind = models.CharField(max_length=30, choices=EventKind.choices)
    key_name = models.CharField(max_length=60, default="")  # empty: not about a key
    key_ends = models.CharField(
        max_length=20, default=""
    )  # its prefix and last four characters, because a name may be used again
    detail = models.CharField(max_length=200, default="")
    client_network = models.CharField(max_length=50, default="")  # a network too wide to identify a person

    class Meta:
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["user", "-id"])]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.key_name}".rstrip()


class ThrottleCount(models.Model):
    """A count of one kind of action by one client since a minute began, see `accounts.throttle`."""

    what_and_who = models.CharField(max_length=100, primary_key=True)
    began_at = models.DateTimeField(db_index=True)
    used = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.what_and_who}: {self.used} since {self.began_at:%H:%M:%S}"


class SignInNonce(models.Model):
    """The nonce of a sign-in message. It is good for one attempt, by one address, until it expires."""

    nonce = models.CharField(max_length=40, unique=True)
    address = models.CharField(max_length=42)
    message_hash = models.CharField(max_length=64)  # SHA-256 of the message as it was handed out, in hex
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    consumed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"nonce for {self.address}"
