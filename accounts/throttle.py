"""Rate limits per minute, counted in the database. This is the service's only throttle.

A minute begins with the first use and ends 60 seconds later. Then counting restarts. One conditional UPDATE decides. If
another transaction has just changed the row, the database evaluates the condition again. So simultaneous requests in
any number of processes never exceed the limit.
"""

import math
from datetime import timedelta
from ipaddress import ip_network

from django.db import connection
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import ThrottleCount
from config import client_addresses
from config.database.statements import CompiledQuery, QueryParameter

PERIOD = timedelta(minutes=1)
# Counts are deleted when they are this old.
_KEPT = timedelta(hours=1)


def take(what: str, who: object, most: int, amount: int = 1) -> int:
    """Count `amount` and return 0. If that would exceed `most`, count nothing and return the seconds to wait.

    Raises `ValueError` if the amount alone exceeds `most`.
    """
    if amount > most:
        raise ValueError(f"An amount of {amount} never fits a limit of {most}.")
    # A client that has to wait costs only this read. A caller's transaction has locks already, so it goes on to write.
    if not connection.in_atomic_block and (seconds := seconds_to_wait(what, who, most, amount)):
        return seconds
    if not _count(what, who, most, amount):
        if seconds := seconds_to_wait(what, who, most, amount):
            return seconds
        # There was no row, or others used up the limit meanwhile. Create the row if it is missing, and try again.
        now = timezone.now()
        ThrottleCount.objects.filter(Q(began_at__lt=now - _KEPT) | Q(began_at__gt=now + _KEPT)).delete()
        ThrottleCount.objects.bulk_create(
            [ThrottleCount(what_and_who=_key(what, who), began_at=now)], ignore_conflicts=True
        )
        if not _count(what, who, most, amount):
            return max(1, seconds_to_wait(what, who, most, amount))
    return 0


# A minute that begins more than a minute in the future counts as over: the clock was set back meanwhile.
_FULL = CompiledQuery(
    lambda: ThrottleCount.objects.filter(
        Q(what_and_who=QueryParameter("key"), used__gt=QueryParameter("most"))
        | Q(what_and_who=QueryParameter("other"), used__gt=QueryParameter("most_of_other")),
        began_at__gt=QueryParameter("since"),
        began_at__lte=QueryParameter("until"),
    ).values_list("began_at")
)
# Parameters: the times a minute ago and in a minute.
_IS_OVER = "(began_at <= %s OR began_at > %s)"


def seconds_to_wait(what: str, who: object, most: int, amount: int = 1, *, also: tuple[str, int] = ("", 0)) -> int:
    """Return the seconds until there is room for `amount`; 0 if there is room now. This counts nothing.

    `also` is what else must have room, and its `most`.
    """
    now, (other, most_of_other) = timezone.now(), also
    limits = {"most": most - amount, "other": _key(other, who), "most_of_other": most_of_other - amount}
    full = _FULL.all(key=_key(what, who), since=now - PERIOD, until=now + PERIOD, **limits)
    return max((max(1, math.ceil((began_at + PERIOD - now).total_seconds())) for (began_at,) in full), default=0)


def _count(what: str, who: object, most: int, amount: int) -> bool:
    """Count `amount` if there is room, and return whether there was. One statement checks and changes the row."""
    now, stored = timezone.now(), connection.ops.adapt_datetimefield_value
    over = stored(now - PERIOD), stored(now + PERIOD)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE accounts_throttlecount SET used = CASE WHEN {_IS_OVER} THEN %s ELSE used + %s END, "  # noqa: S608
            f"began_at = CASE WHEN {_IS_OVER} THEN %s ELSE began_at END "
            f"WHERE what_and_who = %s AND ({_IS_OVER} OR used <= %s)",
            (*over, amount, amount, *over, stored(now), _key(what, who), *over, most - amount),
        )
        return bool(cursor.rowcount)


def _key(what: str, who: object) -> str:
    return f"{what}:{who}"


# --- The client's address, by which limits count ---------------------------------------------------------------------

# Prefix lengths of logged networks, which show the provider but usually not the customer.
_LOGGED_PREFIX = {4: 24, 6: 48}


def client_address(request: HttpRequest) -> str:
    return client_addresses.of(request.META)


def client_network(request: HttpRequest) -> str:
    """Return the client's network for logs: an IPv4 /24, an IPv6 /48, or empty if the address is unknown."""
    try:
        network = ip_network(client_address(request))
    except ValueError:
        return ""
    return str(network.supernet(new_prefix=_LOGGED_PREFIX[network.version]))
