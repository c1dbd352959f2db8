"""Sign in as an account of a development chain, so that a visitor of a demo needs no wallet.

Everybody knows the account's key. So this is offered only if the chains have no value and only this machine can
connect. `is_offered` checks every condition at each request.
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

# The chain ids of anvil, Hardhat and the demos' other chains. A node with another chain id is refused.
_DEVELOPMENT_CHAINS = frozenset({31337, 31338, 31339})


def is_offered(request: HttpRequest) -> bool:
    """Return whether all chains are development chains, and server, client and requested host are this machine."""
    return (
        all(chain.test_network and chain.id in _DEVELOPMENT_CHAINS for chain in get_chains().chains)
        # Gunicorn sets SERVER_NAME to the address that it listens on.
        and _is_loopback(request.META["SERVER_NAME"])
        and _is_loopback(request.META.get("REMOTE_ADDR", ""))
        and _is_loopback(urlsplit(f"//{request.get_host()}").hostname or "")
        # A reverse proxy or a tunnel on this machine lets others in.
        and not any(name in request.headers for name in PROXY_HEADERS)
    )


def _is_loopback(host: str) -> bool:
    """Return whether the host is `localhost` or a loopback address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def sign(message: str) -> str:
    """Sign a sign-in message with the account's key, as a wallet does (EIP-191)."""
    return str(Account.sign_message(encode_defunct(text=message), _KEY).signature.to_0x_hex())
