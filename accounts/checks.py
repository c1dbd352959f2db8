"""System checks of the schema, the allowed users, the secrets, and settings that are gone or too open."""

import os
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network
from itertools import combinations
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 (Django's name for it)
from django.core.checks.security.base import SECRET_KEY_INSECURE_PREFIX
from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.db import connection

from accounts.models import ANYONE, read_user_name
from config import static_files
from config.configured_chains import get_chains
from config.database import pooler, schema

# A random secret of 32 hex digits (`openssl rand -hex 16`) has fewer than 8 distinct ones less than once in a million.
_SECRET_CHARS, _DIFFERENT_CHARS = 32, 8
# Bits of the widest private networks: 10.0.0.0/8 (RFC 1918) and fc00::/7 (RFC 4193).
_WIDEST = {4: 8, 6: 7}
# Settings of the environment that 0.4.0 removed, and fields of `[[chains]]` that 0.5.0 removed. Without warnings they
# would silently have no effect. Version 0.6.0 forgets them.
_GONE = {
    "CONFIRM_ABOVE_QUERIES": "the form asks once more above 1000 queries.",
    "CONFIRM_ABOVE_WEI": "the form asks once more above 0.01 of a real currency.",
    "DOCUMENTATION_URL": "pages link to the documentation at SOURCE_URL.",
    "KEEP_WEBHOOK_DELIVERIES_DAYS": "ended deliveries to webhooks are kept for 30 days.",
    "MAX_OPEN_QUERIES": "open batches of a user may have ten times MAX_QUERIES_PER_BATCH.",
    "SENTRY_DSN": "errors are in the log.",
}
_GONE_FIELDS = {"gather_seconds": "blocks that are ready in the same turn share a transaction."}


@register("settings")
def check_allowed_addresses(**_: Any) -> Sequence[CheckMessage]:
    """Report an allowed entry that is neither a user nor `*` (E001), and an operator that isn't a user (E002)."""
    allowed, operators = settings.ALLOWED_ADDRESSES, settings.OPERATOR_ADDRESSES
    hint = (
        "Write an address as 0x and 40 hex digits. For a contract wallet, put the chain id and a colon first. In "
        "mixed case its EIP-55 checksum must be right."
    )
    return [
        Error(
            f"ALLOWED_ADDRESSES holds {entry!r}, which is neither an address, nor chainId:address, nor *.",
            hint=hint,
            id="accounts.E001",
        )
        for entry in allowed
        if entry != ANYONE and read_user_name(entry) is None
    ] + [
        Error(
            f"OPERATOR_ADDRESSES holds {entry!r}, which is neither an address nor chainId:address.",
            hint=hint,
            id="accounts.E002",
        )
        for entry in operators
        if read_user_name(entry) is None
    ]


@register("settings")
def check_database(**_: Any) -> list[CheckMessage]:
    """Refuse to run any command, even `migrate`, on a database that this version can't upgrade.

    Warn of time limits that are absent behind a pooler (W006).
    """
    # If the database doesn't answer, the command that needs it reports that itself.
    with suppress(DatabaseError):
        if reason := schema.why_too_old(connection):
            raise CommandError(reason)
        if lacking := pooler.problem():
            return [Warning(lacking, id="accounts.W006")]
    return []


@register("settings")
def check_gone_settings(**_: Any) -> list[CheckMessage]:
    """Warn of settings and fields of chains.toml that this version doesn't read any more (W007)."""
    gone = [
        f"{name} is no longer a setting: {instead} Remove it."
        for name, instead in _GONE.items()
        if name in os.environ or f"{name}_FILE" in os.environ
    ]
    # `check_chains_file` and the commands that read the file report its errors.
    with suppress(ValueError, OSError):
        gone += [
            f"{name} of {chain.label} in chains.toml has no effect any more: {instead} Remove it."
            for chain in get_chains().chains
            for name, instead in _GONE_FIELDS.items()
            if name in chain.model_fields_set
        ]
    return [Warning(sentence, id="accounts.W007") for sentence in gone]


@register()
def check_somebody_may_sign_in(**_: Any) -> list[CheckMessage]:
    """Warn that nobody may sign in (W001)."""
    if settings.ALLOWED_ADDRESSES or settings.OPERATOR_ADDRESSES:
        return []
    try:
        destinations = get_chains().destinations()
    except (ValueError, OSError):
        return []  # `check_chains_file` reports it.
    if real := [chain.name for chain in destinations if not chain.test_network]:
        return [
            Warning(
                f"Nobody may sign in: ALLOWED_ADDRESSES is empty, and proving to {', '.join(real)} costs real money.",
                hint="List in ALLOWED_ADDRESSES who may spend it, or * for anyone.",
                id="accounts.W001",
            )
        ]
    return []


@register(deploy=True)
def check_chains_file(**_: Any) -> list[CheckMessage]:
    """Report that chains.toml can't be used (E003).

    The check runs only with `check --deploy`, because every command that reads the file reports the same error.
    """
    try:
        get_chains()
    except (ValueError, OSError) as error:
        return [Error(str(error), id="accounts.E003")]
    return []


@register(deploy=True)
def check_static_files(**_: Any) -> list[CheckMessage]:
    """Report that the pages' files are not collected (E004)."""
    if lacking := static_files.problem():
        return [Error(lacking, hint=f"The folder is {settings.STATIC_ROOT}.", id="accounts.E004")]
    return []


@register(deploy=True)
def check_client_addresses(**_: Any) -> list[CheckMessage]:
    """Warn that all clients seem to have the proxy's address (W008)."""
    if not settings.IS_CLIENT_HIDDEN:
        return []
    sentence = "BEHIND_TLS_PROXY is set without CLIENT_ADDRESS_HEADER, so limits by address count all clients as one."
    return [Warning(sentence, hint="Name the header in which the proxy writes the address.", id="accounts.W008")]


@register(deploy=True)
def check_secrets(**_: Any) -> list[CheckMessage]:
    """Warn of secrets that can be guessed (W002) and of equal secrets (W003), without quoting them."""
    secrets = {name: getattr(settings, name) for name in ("SECRET_KEY", "API_KEY_SECRET", "METRICS_TOKEN")}
    weak = [
        f"{name} is short, or has few different characters, or repeats itself."
        for name, secret in secrets.items()
        if secret and _is_weak(secret)
    ]
    equal = [
        f"{name} and {other} are equal: anybody who learns one has both."
        for name, other in combinations(secrets, 2)
        if secrets[name] and secrets[name] == secrets[other]
    ]
    hint = "Make one with: openssl rand -hex 32"
    return [
        Warning(sentence, hint=hint, id=code)
        for code, sentences in (("accounts.W002", weak), ("accounts.W003", equal))
        for sentence in sentences
    ]


def _is_weak(secret: str) -> bool:
    repeats = secret in (secret + secret)[1:-1]
    is_short = len(secret) < _SECRET_CHARS or len(set(secret)) < _DIFFERENT_CHARS
    return repeats or is_short or secret.startswith(SECRET_KEY_INSECURE_PREFIX)


@register(deploy=True)
def check_openness(**_: Any) -> list[CheckMessage]:
    """Warn if requests for any host are answered (W004), and if webhooks may go to a wide private network (W005)."""
    warnings: list[CheckMessage] = []
    if "*" in settings.ALLOWED_HOSTS:
        hint = "Name the hosts, such as the address that probes use. BASE_URL's host is always allowed."
        warnings.append(
            Warning("ALLOWED_HOSTS holds *: the service answers to any name.", hint=hint, id="accounts.W004")
        )
    wide = [str(item) for item in settings.WEBHOOK_ALLOW if not isinstance(item, str) and _is_wide(item)]
    if wide:
        hint = "Name the hosts or the small networks that receive webhooks. Public ones need no entry."
        sentence = f"WEBHOOK_ALLOW holds {', '.join(wide)}: users' webhooks may reach this machine's own networks."
        warnings.append(Warning(sentence, hint=hint, id="accounts.W005"))
    return warnings


def _is_wide(network: IPv4Network | IPv6Network) -> bool:
    return network.prefixlen < _WIDEST[network.version]
