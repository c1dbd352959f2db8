"""A chain's name, currency and block explorer for pages."""

from dataclasses import dataclass
from typing import Annotated

from chains.chains_file import Chain, UnknownChain
from config.configured_chains import get_chains
from config.json_objects import PAGE_ONLY, JsonObject


@dataclass(frozen=True)
class ChainName(JsonObject):
    """A chain's name and links. A chain that is no longer configured has only its id."""

    id: int
    name: str
    currency: str
    explorer_url: str
    is_configured: Annotated[bool, PAGE_ONLY] = True
    is_test_network: bool = False

    @property
    def in_words(self) -> str:
        """Return the chain's name, or its id if it is no longer configured."""
        return self.name if self.is_configured else f"chain {self.id}"

    def explorer_page(self, kind: str, value: str | int) -> str:
        """Return the URL of a `block`, `tx` or `address` on the chain's explorer (EIP-3091). Empty: it has none."""
        return f"{self.explorer_url}/{kind}/{value}" if self.explorer_url else ""


def chain_name(chain_id: int) -> ChainName:
    try:
        chain: Chain = get_chains().chain(chain_id)
    except UnknownChain:
        return ChainName(chain_id, "Chain that is no longer configured", "native currency", "", is_configured=False)
    return ChainName(
        chain.id,
        chain.name,
        chain.native_currency,
        chain.explorer_url or "",
        is_test_network=chain.test_network,
    )
