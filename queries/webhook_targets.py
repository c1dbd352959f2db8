"""URLs and addresses to which webhooks may be sent. Users choose them, so they must not reach the operator's networks.

A URL's text is checked when a batch is submitted, without a name server. The addresses of its name are checked before
each request (`proving.webhooks.delivery`).

Only addresses that are known to be public are allowed: global unicast, without the networks that IANA reserves for
special purposes (https://www.iana.org/assignments/iana-ipv4-special-registry, …-ipv6-special-registry). An address that
translates to IPv4 counts as that IPv4 address. Tunnels are refused. `settings.WEBHOOK_ALLOW` allows further targets,
and `settings.WEBHOOK_REFUSE` refuses some.
"""

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Literal

from django.conf import settings
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from queries.strict_json import invalid

Address = IPv4Address | IPv6Address

MAX_URL_CHARS = 2048
_HTTPS_PORT, _HTTP_PORT = 443, 80

_SPECIAL_IPV4 = [
    IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        # Azure's virtual machines reach their host at this address, although it is public.
        "168.63.129.16/32",
    )
]
_GLOBAL_IPV6 = IPv6Network("2000::/3")
# The first network includes Teredo. 2002::/16 is 6to4, which leads to any IPv4 address. The others are documentation.
_SPECIAL_IPV6 = [IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
# RFC 6052: a gateway translates to the IPv4 address in the last 32 bits.
_NAT64 = IPv6Network("64:ff9b::/96")

_URL = re.compile(
    r"(?i:(?P<scheme>https?))://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?:[/?][A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]*)?",
    re.ASCII,
)
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*", re.ASCII)
# Browsers distinguish numbers from names like this (https://url.spec.whatwg.org/#ends-in-a-number-checker).
_ENDS_IN_A_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?", re.ASCII)


class NotAllowed(ValueError):
    """Nothing may be sent to the target. The message is a sentence that doesn't quote the URL."""


@dataclass(frozen=True)
class Target:
    url: str = field(repr=False)
    host: str
    """A name in lower case, or a literal address without brackets."""
    port: int

    @property
    def receiver(self) -> str:
        """Return host and port, for display and to count simultaneous deliveries."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def target(url: str) -> Target:
    """Return the target of a URL after a check of its text. Raises `NotAllowed`."""
    if len(url) > MAX_URL_CHARS:
        raise NotAllowed(f"A webhook's URL has at most {MAX_URL_CHARS} characters.")
    if not (parts := _URL.fullmatch(url)):
        raise NotAllowed(
            "A webhook's URL is https://host/path in ASCII (RFC 3986), without user name, password and fragment. An "
            "international name is written in its form with xn--."
        )
    host, is_https = parts["host"].strip("[]").lower(), parts["scheme"].lower() == "https"
    port = int(parts["port"] or (_HTTPS_PORT if is_https else _HTTP_PORT))
    if not 0 < port < 65536:
        raise NotAllowed("A webhook's port is from 1 to 65535.")
    is_exempt = _check_literal(parts["host"]) if _is_literal(parts["host"]) else _check_name(host)
    if not is_exempt and not is_https:
        raise NotAllowed("A webhook's URL must begin with https://.")
    if not is_exempt and port != _HTTPS_PORT:
        raise NotAllowed("Webhooks are sent to port 443 only.")
    return Target(url, host, port)


def is_named(host: str) -> bool:
    """Return whether the operator allows this host by name, whatever its addresses are."""
    return host.lower() in settings.WEBHOOK_ALLOW


def is_exempt(address: Address) -> bool:
    """Return whether the operator allows this address's network, public or not."""
    return any(_is_in(_led_to(address), network) for network in settings.WEBHOOK_ALLOW)


def is_allowed(address: Address) -> bool:
    """Return whether webhooks may be sent to this address."""
    led_to = _led_to(address)
    if any(_is_in(led_to, network) for network in settings.WEBHOOK_REFUSE):
        return False
    return is_exempt(led_to) or _is_public(led_to)


def _is_literal(host: str) -> bool:
    return host.startswith("[") or bool(_ENDS_IN_A_NUMBER.fullmatch(host))


def _check_literal(host: str) -> bool:
    """Check an address. Return whether it is exempt from further checks. Raises `NotAllowed`."""
    try:
        # Python accepts IPv4 addresses only in canonical form.
        address = IPv6Address(host[1:-1]) if host.startswith("[") else IPv4Address(host)
    except ValueError:
        raise NotAllowed("The address in a webhook's URL is not written as 192.0.2.1 or [2001:db8::1].") from None
    if not is_allowed(address):
        raise NotAllowed("A webhook's address must be public.")
    return is_exempt(address)


def _check_name(host: str) -> bool:
    """Check a name. Return whether it is exempt from further checks. Raises `NotAllowed`."""
    if is_named(host):
        return True
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise NotAllowed("The host in a webhook's URL is not a valid name.")
    if "." not in host:
        raise NotAllowed("The name in a webhook's URL must be a full one, such as hooks.example.org.")
    return False


def _led_to(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address translates to, or the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    # An IPv6 address with a zone, such as %eth0, belongs to a network of this machine.
    is_global = address in _GLOBAL_IPV6 and not address.scope_id
    return is_global and not any(address in network for network in _SPECIAL_IPV6)


def _is_in(address: Address, network: IPv4Network | IPv6Network | str) -> bool:
    return not isinstance(network, str) and address in network


# --- The field `webhook` of a batch query (docs/specification.md, "Webhooks") ---------------------------------------

# The URL and headers may contain credentials, so no fault quotes their values.
_MAX_HEADERS, _MAX_NAME_CHARS, _MAX_VALUE_CHARS = 16, 64, 1024
# RFC 9110: a token, and a value of visible ASCII characters with spaces in between. Obsolete text isn't allowed.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?|", re.ASCII)
# Headers of the connection (RFC 9110, 7.6.1) and of the body, and headers that this service sets itself.
_RESERVED = {
    *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "http2-settings"),
    *("host", "accept-encoding", "user-agent"),
}
_RESERVED_BEGINNINGS = ("content-", "proxy-", "webhook-")
# Clients of the service that this one replaces set this header, as its documentation says. Every event has it anyway.
_JSON = re.compile(r"application/json(?:[ \t]*;[ \t]*charset=\"?utf-8\"?)?", re.ASCII | re.IGNORECASE)


def _url(value: object) -> str:
    if not isinstance(value, str):
        raise invalid("A webhook's URL is a string.")
    try:
        target(value)
    except NotAllowed as error:
        raise invalid(str(error)) from None
    return value


def _header_name(value: object) -> str:
    name = value if isinstance(value, str) else ""
    if len(name) > _MAX_NAME_CHARS or not _TOKEN.fullmatch(name):
        raise invalid(f"A header's name has 1 to {_MAX_NAME_CHARS} letters, digits and signs as RFC 9110 allows.")
    if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_BEGINNINGS):
        raise invalid("Only the service may set this header: it belongs to the connection, the body or the signature.")
    return name


def _header_value(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_VALUE_CHARS or not _VALUE.fullmatch(value):
        raise invalid(
            f"A header's value has at most {_MAX_VALUE_CHARS} printable ASCII characters, without spaces around them."
        )
    return value


def _headers(value: object) -> object:
    if isinstance(value, dict):
        if len(value) > _MAX_HEADERS:
            raise invalid(f"A webhook has at most {_MAX_HEADERS} headers.")
        return {name: text for name, text in value.items() if not _is_sent_anyway(name, text)}
    return value


def _is_sent_anyway(name: object, value: object) -> bool:
    is_content_type = isinstance(name, str) and name.lower() == "content-type"
    return is_content_type and isinstance(value, str) and _JSON.fullmatch(value) is not None


def _events(value: list[str]) -> list[str]:
    if not value:
        raise invalid("Name at least one event, or leave out the list of events.")
    return list(dict.fromkeys(value))


Event = Literal["DONE", "REJECTED", "WENT_BACK", "STEP"]
_HeaderName = Annotated[str, BeforeValidator(_header_name)]
_HeaderValue = Annotated[str, BeforeValidator(_header_value, json_schema_input_type=str)]


class WebhookRequest(BaseModel):
    """The receiver of the batch's events. Each event is a POST with a signature as in Standard Webhooks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Annotated[str, BeforeValidator(_url, json_schema_input_type=str)] = Field(
        repr=False,
        description="An https URL with a public host, port 443.",
        json_schema_extra={"maxLength": MAX_URL_CHARS, "examples": ["https://hooks.example.org/batches"]},
    )
    headers: Annotated[dict[_HeaderName, _HeaderValue], BeforeValidator(_headers)] = Field(
        default={}, repr=False, description="Headers for each request, such as a token."
    )
    events: Annotated[list[Event], AfterValidator(_events)] = Field(
        default=["DONE", "REJECTED", "WENT_BACK"],
        max_length=16,
        description="What is told. STEP: each step that all queries of the batch have completed.",
    )
