"""Users and who may sign in, API keys, webhook secrets, the users' log, sign-in nonces, and counts of the throttle."""

import re
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
_CHAIN_ID = re.compile("[1-9][0-9]{0,18}")
EVERY_DESTINATION = "*"  # in `User.daily_limits_wei`: every unlisted destination but test networks


def user_name(address: str, chain_id: int | None) -> str:
    """Return the user's name in settings and commands: `address`, or `chainId:address` for a contract wallet."""
    return address if chain_id is None else f"{chain_id}:{address}"


def read_user_name(text: str) -> str | None:
    """Return the `user_name` in the text, with the EIP-55 checksum. Return None if the text isn't one."""
    chain_id, colon, address = text.rpartition(":")
    signer = checksummed(address)
    return None if signer is None or (colon and not _CHAIN_ID.fullmatch(chain_id)) else f"{chain_id}{colon}{signer}"


def may_sign_in(name: str) -> bool:
    """Return whether `settings.ALLOWED_ADDRESSES` or `OPERATOR_ADDRESSES` admits a user of this `user_name`.

    If ALLOWED_ADDRESSES is empty, anyone may sign in as long as all destinations are test networks. Otherwise only
    operators may, because users spend the operator's money.
    """
    if is_operator(name):
        return True
    allowed = settings.ALLOWED_ADDRESSES
    if not allowed:
        return all(chain.test_network for chain in get_chains().destinations())
    return ANYONE in allowed or name in _user_names(tuple(allowed))


def is_operator(name: str) -> bool:
    """Return whether a user of this `user_name` is an operator of this service."""
    return name in _user_names(tuple(settings.OPERATOR_ADDRESSES))


@lru_cache(maxsize=8)
def _user_names(entries: tuple[str, ...]) -> frozenset[str | None]:
    """Return the entries with checksums. They are cached: each request needs them, and each checksum costs a hash."""
    return frozenset(map(read_user_name, entries))


def own_or(own: int | None, installations: int) -> int:
    """Return the user's own limit if there is one. It may be higher or lower than the installation's, even 0."""
    return installations if own is None else own


def daily_wei(own: Mapping[str, str] | None, chain: "Chain") -> int | None:
    """Return the user's spending limit on this destination for 24 hours, in wei. None: no limit."""
    every = None if chain.test_network else (own or {}).get(EVERY_DESTINATION)
    limit = (own or {}).get(str(chain.id), every)
    return chain.daily_limit_per_user_wei if limit is None else int(limit)


class UserManager(BaseUserManager["User"]):
    def for_address(self, address: str, chain_id: int | None = None) -> "User":
        """Return the user of an EIP-55 address, or of the contract wallet at it. The first call creates the user."""
        user, _ = self.get_or_create({"password": make_password(None)}, address=address, chain_id=chain_id)
        return user

    def get_by_natural_key(self, address: str | None, chain_id: int | None = None) -> "User":
        """Return the user with this natural key, for `loaddata`."""
        return self.get(address=address, chain_id=chain_id)


class User(AbstractBaseUser):
    """The holder of an address's own key, or a contract wallet of one chain. There is no password.

    Django's password field holds a random, unusable value. Django ties sessions to it, so a new value ends all
    sessions of the user.
    """

    address = models.CharField(max_length=42)  # with its EIP-55 checksum
    # The chain of the user's contract wallet. Null: the user signs in with the address's own key.
    chain_id = models.PositiveBigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    last_sign_in = models.DateTimeField(null=True)
    # The user's own limits, set by an operator. Null: the installation's limit, which is the setting of the same name.
    max_batches_per_minute = models.PositiveBigIntegerField(null=True, blank=True)
    max_queries_per_minute = models.PositiveBigIntegerField(null=True, blank=True)
    max_open_batches = models.PositiveBigIntegerField(null=True, blank=True)
    max_open_queries = models.PositiveBigIntegerField(null=True, blank=True)
    # Wei per 24 hours on each destination, as decimal strings. Keys are chain ids and `EVERY_DESTINATION`. The values
    # replace the chain's `daily_limit_per_user`.
    daily_limits_wei = models.JSONField(null=True, blank=True)
    last_login = None

    USERNAME_FIELD = "address"

    objects: ClassVar[UserManager] = UserManager()

    class Meta:
        constraints: ClassVar[list[Any]] = [
            models.UniqueConstraint(fields=["address"], condition=models.Q(chain_id=None), name="one_user_per_own_key"),
            models.UniqueConstraint(fields=["address", "chain_id"], name="one_user_per_contract_wallet"),
        ]

    def __str__(self) -> str:
        return self.name

    def get_short_name(self) -> str:
        """Return the user's name in the admin."""
        return self.name

    def natural_key(self) -> tuple[str, int | None]:  # type: ignore[override]  # the stubs have one field
        """Return the user's natural key, for `dumpdata`."""
        return self.address, self.chain_id

    @property
    def name(self) -> str:
        return user_name(self.address, self.chain_id)

    @property
    def chain_name(self) -> str:
        """Return the name of the contract wallet's chain; empty for an address that signs with its own key."""
        if self.chain_id is None:
            return ""
        return next(
            (chain.name for chain in get_chains().chains if chain.id == self.chain_id), f"chain {self.chain_id}"
        )

    @property
    def is_staff(self) -> bool:
        """Return whether the user may use Django's admin. Only operators may."""
        return is_operator(self.name)

    def has_perm(self, perm: str, obj: object = None) -> bool:
        """Return whether the user may do this in Django's admin. Operators may do everything."""
        return self.is_staff

    def has_module_perms(self, app_label: str) -> bool:
        """Return the same as `has_perm`."""
        return self.is_staff

    def end_sessions(self) -> None:
        """End all sessions of the user, on all devices. API keys keep working."""
        self.set_unusable_password()
        self.save(update_fields=["password"])


class KeyAccess(models.TextChoices):
    FULL = "full", "Full access"
    READ = "read", "Read only"


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def live(self, now: datetime) -> "ApiKeyQuerySet":
        return self.filter(models.Q(expires_at=None) | models.Q(expires_at__gt=now), revoked_at=None)


class ApiKey(models.Model):
    """One key of a user. The key itself is stored nowhere: see `accounts.keys`.

    Revoked and expired keys stay, because batches refer to them. Their names may be reused.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=60)
    salt = models.BinaryField(max_length=32)  # 32 random bytes that the key is derived from
    key_hash = models.CharField(max_length=64, unique=True)  # SHA-256 of the key, in hex
    prefix = models.CharField(max_length=12)
    last_four = models.CharField(max_length=4)
    # Only endpoints that say so accept a key without full access, see `accounts.keys.authenticate_and_read`.
    access = models.CharField(
        max_length=4, choices=KeyAccess.choices, default=KeyAccess.FULL, db_default=KeyAccess.FULL.value
    )
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)  # accurate to a minute
    expires_at = models.DateTimeField(null=True)  # set at rotation
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
    def is_read_only(self) -> bool:
        return self.access != KeyAccess.FULL

    @property
    def ends(self) -> str:
        """Return the public part of the key, by which users recognize it."""
        return f"{self.prefix}…{self.last_four}"


class WebhookSecret(models.Model):
    """A secret that signs a user's webhooks, see `accounts.webhook_secrets`. The current secret has no `expires_at`."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="webhook_secrets")
    sealed = models.BinaryField()  # encrypted by `accounts.webhook_secrets`
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)  # until then, it and its successor sign

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
    KEY_MADE = "key_made", "Key created"
    KEY_SHOWN = "key_shown", "Key shown or copied"
    KEY_ROTATED = "key_rotated", "Key rotated"
    KEY_REVOKED = "key_revoked", "Key revoked"
    WEBHOOK_SECRET_SHOWN = "webhook_secret_shown", "Webhook secret shown or copied"
    WEBHOOK_SECRET_ROTATED = "webhook_secret_rotated", "Webhook secret rotated"


class AccountEvent(models.Model):
    """An event about a user's keys or sessions, which the user can read."""

    KEPT_DAYS = 90

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    kind = models.CharField(max_length=30, choices=EventKind.choices)
    key_name = models.CharField(max_length=60, default="")  # empty: not about a key
    key_ends = models.CharField(
        max_length=20, default=""
    )  # the key's prefix and last four characters, because names may be reused
    detail = models.CharField(max_length=200, default="")
    client_network = models.CharField(max_length=50, default="")  # a network too wide to identify a person

    class Meta:
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["user", "-id"])]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.key_name}".rstrip()


class ThrottleCount(models.Model):
    """The number of one client's actions of one kind in the current minute, see `accounts.throttle`."""

    what_and_who = models.CharField(max_length=100, primary_key=True)
    began_at = models.DateTimeField(db_index=True)
    used = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.what_and_who}: {self.used} since {self.began_at:%H:%M:%S}"


class SignInNonce(models.Model):
    """The nonce of a sign-in message. It is valid for one attempt by one address until it expires."""

    nonce = models.CharField(max_length=40, unique=True)
    address = models.CharField(max_length=42)
    message_hash = models.CharField(max_length=64)  # SHA-256 of the issued message, in hex
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    consumed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"nonce for {self.address}"
