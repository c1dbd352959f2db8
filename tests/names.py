"""ENS on a development chain: a registry, the universal resolver where the library expects it, and resolvers."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from ens import BaseENS
from ens.constants import UNIVERSAL_RESOLVER_ADDR
from ens.utils import dns_encode_name
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed
from tests.http_server import serving


class Names:
    def __init__(self, chain: DevChain) -> None:
        self.chain = chain
        self._registry = Deployed(chain, "test/EnsRegistryStandIn")
        self.universal = Deployed(chain, "test/UniversalResolverStandIn", self._registry.address)
        chain.rpc("anvil_setCode", UNIVERSAL_RESOLVER_ADDR, "0x" + self.universal.code.hex())
        self.universal.address = UNIVERSAL_RESOLVER_ADDR

    def set(self, name: str, address: str) -> Deployed:
        """The name, normalised, has this address; its resolver."""
        resolver = self.resolver_of(name)
        resolver.send("setAddr", _node(name), address)
        return resolver

    def set_below(self, name: str, address: str) -> Deployed:
        """All names below this one have this address (ENSIP-10); its resolver."""
        resolver = self.extended(name)
        resolver.send("setAddr", keccak(dns_encode_name(name)), address)
        return resolver

    def refer(self, name: str, urls: Sequence[str], *, is_endless: bool = False) -> Deployed:
        """The resolver of the name refers to gateways (EIP-3668)."""
        resolver = self.extended(name)
        resolver.send("refer", urls, is_endless)
        return resolver

    def extended(self, name: str) -> Deployed:
        resolver = self.resolver_of(name)
        resolver.send("extend")
        return resolver

    def resolver_of(self, name: str) -> Deployed:
        resolver = Deployed(self.chain, "test/ResolverStandIn")
        self.resolved_by(name, resolver.address)
        return resolver

    def resolved_by(self, name: str, resolver: str) -> None:
        self._registry.send("setResolver", _node(name), resolver)


def _node(name: str) -> bytes:
    return bytes(BaseENS.namehash(name))


Asked = tuple[str, str, str]
"""Method, path and body."""


@contextmanager
def gateway(answer: Callable[[Asked], str | tuple[int, bytes]]) -> Iterator[str]:
    """The origin of a gateway that gives an address, or a status and content."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = answer((self.command, self.path, self._body()))
            data = "0x" + encode(["address"], [given]).hex() if isinstance(given, str) else ""
            status, content = (200, json.dumps({"data": data}).encode()) if isinstance(given, str) else given
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if 300 <= status < 400:
                self.send_header("Location", content.decode())
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def _body(self) -> str:
            return self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url
