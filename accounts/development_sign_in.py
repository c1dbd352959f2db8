"""Sign in as an account of a development chain, so that a visitor of a demo needs no wallet.

Everybody knows the account's key. So this is offered only where nothing has a value and nobody else can come:
`is_offered` asks each condition anew at each request.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from django.http import HttpRequest
from eth_account import Account
from eth_account.messages import encode_defunct

from config.configured_chains import get_chains
from config.metrics_server import PROXY_HEADERS

# The first account of anvil and Hardhat.
ADDRESS = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"

# The ids of anvil and Hardhat, and of the demos' other chains. Nodes of other chains are refused by their own id.
_DEVELOPMENT_CHAINS = frozenset({31337, 31338, 31339})


def is_offered(request: HttpRequest) -> bool:
    """Return whether every chain is a development chain, and server, client and the host asked for are this machine."""
    return (
        all(chain.test_network and chain.id in _DEVELOPMENT_CHAINS for chain in get_chains().chains)
        # Gunicorn sets it: the address that it listens on.
        and _is_loopback(request.META["SERVER_NAME"])
        and _is_loopback(request.META.get("REMOTE_ADDR", ""))
        and _is_loopback(urlsplit(f"//{request.get_host()}").hostname or "")
        # A reverse proxy or a tunnel on this machine lets others in.
        and not any(name in request.headers for name in PROXY_HEADERS)
    )


def _is_loopback(host: str) -> bool:
    """Return whether an address, or the name `localhost`, means this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def sign(message: str) -> str:
    """Return the account's signature of a sign-in message, as a wallet makes it (EIP-191)."""
    return str(Account.sign_message(encode_defunct(text=message), _KEY).signature.to_0x_hex())
