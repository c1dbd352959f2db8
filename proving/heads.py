"""How far a chain is, and how much of that counts."""

from dataclasses import dataclass

from django.utils import timezone

from chains.chains_file import Chain
from chains.header import Header
from chains.rpc import InvalidReply, RpcClient, RpcRefused
from proving.models import ChainHead

# Where a chain has no `finalized` tag: two epochs of Ethereum, the depth that finality usually takes.
_FINAL_DEPTH = 64


@dataclass(frozen=True)
class Heads:
    """The newest block, the newest that counts as confirmed, and the number of the newest that is final."""

    latest: Header
    confirmed: Header
    final: int

    @classmethod
    def read(cls, chain: Chain, rpc: RpcClient) -> "Heads":
        """Ask the chain, and note what it says for the pages. Raises `NodeUnavailable`."""
        latest = rpc.head()
        try:
            finalized = rpc.header("finalized")
        except RpcRefused:
            finalized = None
        final = finalized.number if finalized else max(0, latest.number - _FINAL_DEPTH)
        if final > latest.number:
            raise InvalidReply(f"A node of chain {chain.id} says that block {final} is final, above its own head.")
        depth = latest.number - final if chain.confirmations == "finalized" else chain.confirmations - 1
        # What is final can't need more confirmations.
        number = max(latest.number - depth, final, 0)
        confirmed = latest if number == latest.number else rpc.known_header(number)
        heads = cls(latest, confirmed, final)
        heads.note(chain)
        return heads

    def note(self, chain: Chain) -> None:
        """Keep it for the pages, written once a block."""
        known = ChainHead.objects.filter(pk=chain.id, number=self.latest.number, final=self.final)
        if not known.exists():
            values = {"number": self.latest.number, "final": self.final, "seen_at": timezone.now()}
            ChainHead.objects.update_or_create(pk=chain.id, defaults=values)


def poll_seconds(chain: Chain) -> float:
    """How often to ask what the next block brings: a few times per block, so that no node is hammered."""
    return min(4, max(0.2, chain.block_seconds / 4))
