"""Who may use the service: users, their API keys, and the nonces of sign-ins that are under way."""

from typing import Any, ClassVar

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import AbstractBaseUser, BaseUserManager
from django.db import models
from django.utils import timezone


class UserManager(BaseUserManager["User"]):
    def for_address(self, address: str) -> "User":
        """The user of an EIP-55 address, made if there is none yet."""
        user, _ = self.get_or_create(address=address, defaults={"password": make_password(None)})
        return user


class User(AbstractBaseUser):
    """Whoever holds an address, proven by a signature. There is no password: Django's field holds an unusable one.

    That field is random for each user and Django ties sessions to it, so a new value ends all sessions of a user.
    """

    address = models.CharField(max_length=42, unique=True)  # with its EIP-55 checksum
    created_at = models.DateTimeField(default=timezone.now)
    last_sign_in = models.DateTimeField(null=True)
    last_login = None

    USERNAME_FIELD = "address"

    objects: ClassVar[UserManager] = UserManager()


class ApiKey(models.Model):
    """One key of a user. The key itself is stored nowhere: see `accounts.keys`."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=60)
    salt = models.BinaryField(max_length=32)  # 32 random bytes that the key is derived from
    key_hash = models.CharField(max_length=64, unique=True)  # SHA-256 of the key, in hex
    prefix = models.CharField(max_length=12)
    last_four = models.CharField(max_length=4)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)  # to the minute
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["pk"]
        constraints: ClassVar[list[Any]] = [
            models.UniqueConstraint(fields=["user", "name"], name="api_key_name_unique_per_user"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…{self.last_four})"


class SignInNonce(models.Model):
    """A nonce that a sign-in message was issued with. It answers for one try, by one address, until it expires.

    A consumed row stays until it expires, because the throttle counts rows.
    """

    nonce = models.CharField(max_length=40, unique=True)
    address = models.CharField(max_length=42)
    client_address = models.CharField(max_length=50)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    consumed_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["client_address", "created_at"])]

    def __str__(self) -> str:
        return f"nonce for {self.address}"
