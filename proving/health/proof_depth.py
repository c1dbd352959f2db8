"""How far back a source chain's nodes prove accounts: measured when a worker starts, and once a day.

Nodes keep different numbers of states, and refuse older ones in words of their own. The measurement asks for proofs
ever further below the head until one fails (`chains.nodes.node_abilities`). A page and `/chains.json` show it for each
node, and rejections for the chain.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial

from django.db.models import F
from django.db.models.functions import Now

from chains.chains_file import Chain
from chains.nodes.node_abilities import patient_client, provable
from chains.nodes.node_errors import ChainError
from config.configured_chains import get_chains, get_rpc
from proving.models import ChainWatch
from proving.working.lanes import HeldLane

_EACH = timedelta(days=1)
# Seconds after which no older block is tried, because the observation of other chains waits.
_SECONDS = 20


def forget() -> None:
    """Have all chains measured again, because chains.toml may have changed."""
    ChainWatch.objects.update(proofs_measured_at=None)


def measure_next(lane: HeldLane) -> None:
    """Measure one source chain that wasn't measured for a day. A chain may take half a minute, so others come later.

    A chain whose head the last observation didn't see isn't measured. The earlier measurement stays.
    """
    sources = {connection.source_id for connection in get_chains().connections}
    watches = ChainWatch.objects.filter(pk__in=sources).filter(seen_at=F("looked_at"))
    # A time in the future was stored by a clock that was ahead.
    watch = watches.exclude(proofs_measured_at__range=(Now() - _EACH, Now() + _EACH)).order_by("looked_at").first()
    if watch is None:
        return
    try:
        head = get_rpc(watch.chain_id).head()
    except ChainError:
        return
    nodes = list(_proving_nodes(get_chains().chain(watch.chain_id)))
    oldest = min((node["oldest"] for node in nodes if node["oldest"] is not None), default=None)
    measured = {"measured_head": head.number, "oldest_provable": oldest, "proving_nodes": nodes}
    update = partial(ChainWatch.objects.filter(pk=watch.pk).update, proofs_measured_at=Now(), **measured)
    lane.write(update)


def _proving_nodes(chain: Chain) -> Iterator[dict[str, str | int | None]]:
    """Measure one node after another, because each keeps states of its own."""
    for url, host in zip(chain.rpc_urls, chain.hosts, strict=True):
        client = patient_client(chain.model_copy(update={"rpc_urls": (url,)}))
        oldest = None
        with suppress(ChainError):
            oldest = provable(client, client.head(), _SECONDS / len(chain.rpc_urls)).oldest
        yield {"host": host, "oldest": oldest}


def in_words(watch: ChainWatch | None) -> str:
    """Return a sentence about how far back the chain's nodes prove accounts. It is empty if that isn't known."""
    if watch is None or watch.proves_back is None or watch.oldest_provable is None:
        return ""
    if watch.oldest_provable <= 1:
        return "The nodes prove accounts at every block."
    return f"The nodes prove accounts at least {watch.proves_back:,} blocks back."
