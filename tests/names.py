"""ENS on a development chain: a registry, resolvers, and the universal resolver at the address that the library
expects.
"""

from collections.abc import Sequence

from ens import BaseENS
from ens.constants import UNIVERSAL_RESOLVER_ADDR
from ens.utils import dns_encode_name
from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed


class Names:
    def __init__(self, chain: DevChain) -> None:
        self.chain = chain
        self._registry = Deployed(chain, "test/EnsRegistryStandIn")
        self.universal = Deployed(chain, "test/UniversalResolverStandIn", self._registry.address)
        chain.rpc("anvil_setCode", UNIVERSAL_RESOLVER_ADDR, "0x" + self.universal.code.hex())
        self.universal.address = UNIVERSAL_RESOLVER_ADDR

    def set(self, name: str, address: str) -> Deployed:
        """Set a name's address. Return the name's resolver."""
        resolver = self.resolver_of(name)
        resolver.send("setAddr", _node(name), address)
        return resolver

    def set_below(self, name: str, address: str) -> Deployed:
        """Set the address of all names below this one (ENSIP-10). Return the resolver."""
        resolver = self.extended(name)
        resolver.send("setAddr", keccak(dns_encode_name(name)), address)
        return resolver

    def refer(self, name: str, urls: Sequence[str]) -> Deployed:
        """Make the name's resolver refer to gateways (EIP-3668). Return the resolver."""
        resolver = self.extended(name)
        resolver.send("refer", urls, False)
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
