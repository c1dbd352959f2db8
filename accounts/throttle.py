"""Rate limits of a minute: the one throttle of this service, counted in the database.

A minute begins with the first use and ends 60 seconds later; then counting begins anew. One conditional UPDATE decides,
so any number of requests at once, in any number of processes, get no more than the limit: where another transaction
has just changed the row, the database evaluates the condition again.
"""

import math
from datetime import timedelta
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import ThrottleCount
from database.statements import CompiledQuery, QueryParameter

PERIOD = timedelta(minutes=1)
# Counts are deleted when they are this old.
_KEPT = timedelta(hours=1)


def take(what: str, who: object, most: int, amount: int = 1) -> int:
    """Count `amount` and return 0. Or count nothing and return how many seconds to wait, if that would exceed `most`.

    Raises `ValueError` for an amount that no wait makes room for.
    """
    if amount > most:
        raise ValueError(f"An amount of {amount} never fits a limit of {most}.")
    # This only reads: a client who has to wait costs no write, unless others wait for this transaction already.
    if not connection.in_atomic_block and (seconds := seconds_to_wait(what, who, most, amount)):
        return seconds
    if not _count(what, who, most, amount):
        if seconds := seconds_to_wait(what, who, most, amount):
            return seconds
        # There is no row, or others took the rest meanwhile. Whether there is one by now says nothing of then.
        now = timezone.now()
        old = ThrottleCount.objects.filter(Q(began_at__lt=now - _KEPT) | Q(began_at__gt=now + _KEPT))
        # Locked rows are being used again.
        old.delete()
        ThrottleCount.objects.bulk_create(
            [ThrottleCount(what_and_who=_key(what, who), began_at=now)], ignore_conflicts=True
        )
        if not _count(what, who, most, amount):
            return max(1, seconds_to_wait(what, who, most, amount))
    return 0


# A minute that begins far in the future is over too: the clock was set back, and nobody waits for it.
_FULL = CompiledQuery(
    lambda: ThrottleCount.objects.filter(
        what_and_who=QueryParameter("key"),
        began_at__gt=QueryParameter("since"),
        began_at__lte=QueryParameter("until"),
        used__gt=QueryParameter("most"),
    ).values_list("began_at")
)
# With the time a minute ago, and in a minute.
_IS_OVER = "(began_at <= %s OR began_at > %s)"


def seconds_to_wait(what: str, who: object, most: int, amount: int = 1) -> int:
    """Return the seconds until there is room for `amount`; 0 if there is room now. Counts nothing."""
    now = timezone.now()
    full = _FULL.first(key=_key(what, who), since=now - PERIOD, until=now + PERIOD, most=most - amount)
    return max(1, math.ceil((full[0] + PERIOD - now).total_seconds())) if full else 0


def _count(what: str, who: object, most: int, amount: int) -> bool:
    """Count `amount` and return whether there was room for it. The database evaluates condition and change as one."""
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

# One subscriber usually has a whole /64 (RFC 6177), so a single IPv6 address identifies nobody.
_IPV6_PREFIX = 64
# A log keeps the network of a provider's customers, but not the customer (an IPv6 /48 is at most one site).
_LOGGED_PREFIX = {4: 24, 6: 48}


def client_address(request: HttpRequest) -> str:
    """Return an IPv4 address or an IPv6 network of 64 bits, as text; empty if there is none (a Unix socket).

    The reverse proxy tells it in the header `settings.CLIENT_ADDRESS_HEADER`, if that is set. Of a list, as in
    X-Forwarded-For, the last entry counts: the proxy wrote it, and the client may have written the others.
    """
    header = settings.CLIENT_ADDRESS_HEADER
    from_proxy = _subscriber(request.headers.get(header, "").rpartition(",")[2]) if header else ""
    return from_proxy or _subscriber(request.META.get("REMOTE_ADDR", ""))


def _subscriber(address: str) -> str:
    """Return the IPv4 address, or the IPv6 network of 64 bits; empty if the text is no address."""
    try:
        parsed = ip_address(address.strip())
    except ValueError:
        return ""
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), _IPV6_PREFIX), strict=False))


def client_network(request: HttpRequest) -> str:
    """Return the client's network, too wide to be one customer: a /24 of IPv4, a /48 of IPv6, or empty if unknown."""
    address = client_address(request)
    if not address:
        return ""
    network = ip_network(address)
    return str(network.supernet(new_prefix=_LOGGED_PREFIX[network.version]))
