"""Where webhooks may be sent to beside the public Internet, and where never."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network

from django.core.exceptions import ImproperlyConfigured

from config.environment import env_list

# The last label of a name is not a number: then it would be an odd spelling of an address.
_NAME = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z_-][A-Za-z0-9_-]{0,62}", re.ASCII)


def _receivers(variable: str, *, names: bool) -> list[IPv4Network | IPv6Network | str]:
    """Read networks, and with `names` also names of hosts, in lower case."""
    found: list[IPv4Network | IPv6Network | str] = []
    for entry in env_list(variable):
        try:
            found.append(ip_network(entry))
        except ValueError as error:
            if not (names and _NAME.fullmatch(entry)):
                what = "networks such as 10.0.0.0/8, or names of hosts" if names else "networks such as 10.0.0.0/8"
                raise ImproperlyConfigured(f"{variable} must be {what}: {error}.") from None
            found.append(entry.lower())
    return found


# For development: networks, and names of hosts, that may be sent to although they are not public; by http and at other
# ports, too.
WEBHOOK_ALLOW = _receivers("WEBHOOK_ALLOW", names=True)
# The operator's own networks that have public addresses.
WEBHOOK_REFUSE = _receivers("WEBHOOK_REFUSE", names=False)
