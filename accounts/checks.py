"""System checks of who may sign in."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 (Django's name for it)

from accounts.models import ANYONE
from chains.encoding import checksummed
from config.configured_chains import get_chains


@register("settings")
def check_allowed_addresses(**_: Any) -> Sequence[CheckMessage]:
    """Report as E001 an entry that is neither an address nor `*`, and as E002 an operator that is not an address."""
    allowed, operators = settings.ALLOWED_ADDRESSES, settings.OPERATOR_ADDRESSES
    hint = "Write an address as 0x and 40 hex digits. In mixed case its EIP-55 checksum must be right."
    return [
        Error(f"ALLOWED_ADDRESSES holds {entry!r}, which is neither an address nor *.", hint=hint, id="accounts.E001")
        for entry in allowed
        if entry != ANYONE and checksummed(entry) is None
    ] + [
        Error(f"OPERATOR_ADDRESSES holds {entry!r}, which is not an address.", hint=hint, id="accounts.E002")
        for entry in operators
        if checksummed(entry) is None
    ]


@register()
def check_somebody_may_sign_in(**_: Any) -> list[CheckMessage]:
    """Report as W001 that nobody may sign in."""
    if settings.ALLOWED_ADDRESSES or settings.OPERATOR_ADDRESSES:
        return []
    try:
        destinations = get_chains().destinations()
    except (ValueError, OSError):
        return []  # Who needs the chains says what is wrong with them, and `check_chains_file` says it before all do.
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
    """Report as E003 that the chains can't be read.

    Only `check --deploy` asks, for every command that reads them says it as well.
    """
    try:
        get_chains()
    except (ValueError, OSError) as error:
        return [Error(str(error), id="accounts.E003")]
    return []
