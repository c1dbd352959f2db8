"""What a chain's beacon nodes can do, for `manage.py check_chains`."""

from collections.abc import Callable

from chains.beacon.beacon_client import BeaconClient
from chains.chains_file import Chain
from chains.node_errors import NodeUnavailable
from proving.health.problems import Problem


def check(chain: Chain, say: Callable[[str], object]) -> list[Problem]:
    """Tell of each beacon node, in a line; returns what is wrong with all of them."""
    if chain.beacon_chain is None or not chain.beacon_urls:
        return []
    answers, tells_summaries = False, False
    for url, host in zip(chain.beacon_urls, chain.beacon_hosts, strict=True):
        client = BeaconClient(chain.model_copy(update={"beacon_urls": (url,)}), chain.beacon_chain)
        try:
            final = client.header("finalized")
        except NodeUnavailable as error:
            say(f"  Beacon node {host}: {'; '.join(error.reasons) or error}")
            continue
        answers = True
        try:
            count = len(client.summaries(final).summaries)
        except NodeUnavailable as error:
            say(f"  Beacon node {host}: slot {final.slot:,} is final. {error}")
        else:
            tells_summaries = True
            say(f"  Beacon node {host}: slot {final.slot:,} is final, and its state has {count:,} summaries.")
    if tells_summaries:
        return []
    lacking = "tells historical summaries, so no new jump can begin" if answers else "can be used"
    return [Problem("no_beacon_node", f"No beacon node of {chain.label} {lacking}.")]
