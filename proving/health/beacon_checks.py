"""What a chain's beacon nodes and era files can do, for `manage.py check_chains`."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from chains.beacon import shipped
from chains.beacon.beacon_client import BeaconClient
from chains.beacon.era_files import EraFiles
from chains.beacon.jumps import BeaconChain
from chains.chains_file import Chain
from chains.node_errors import NodeUnavailable
from proving.health.findings import Problem


def check(chain: Chain, say: Callable[[str], object]) -> list[Problem]:
    """Tell of each beacon node and each place of era files, in a line; returns what is wrong with all of them."""
    if chain.beacon_chain is None:
        return []
    return [*_check_nodes(chain, chain.beacon_chain, say), *_check_era_files(chain, chain.beacon_chain, say)]


def _check_nodes(chain: Chain, beacon_chain: BeaconChain, say: Callable[[str], object]) -> list[Problem]:
    answers, tells_summaries = False, False
    for url, host in zip(chain.beacon_urls, chain.beacon_hosts, strict=True):
        client = BeaconClient(chain.model_copy(update={"beacon_urls": (url,)}), beacon_chain)
        try:
            final = client.header("finalized")
        except NodeUnavailable as error:
            say(f"  Beacon node {host}: {'; '.join(error.reasons) or error}")
            continue
        answers, newest = True, _said(beacon_chain, final.slot)
        try:
            count = len(client.summaries(final).summaries)
        except NodeUnavailable as error:
            say(f"  Beacon node {host}: {newest} is final. {error}")
        else:
            tells_summaries = True
            say(f"  Beacon node {host}: {newest} is final, and its state has {count:,} summaries.")
    if tells_summaries or not chain.beacon_urls:
        return []
    lacking = "tells historical summaries, so no new jump can begin" if answers else "can be used"
    return [Problem("no_beacon_node", f"No beacon node of {chain.label} {lacking}.")]


def _said(chain: BeaconChain, slot: int) -> str:
    """Return a slot with its time, which shows a node that lags. Nothing verifies the number."""
    try:
        return f"slot {slot:,}, of {datetime.fromtimestamp(chain.time_of(slot), UTC):%Y-%m-%d %H:%M} UTC,"
    except (ValueError, OverflowError, OSError):
        return f"slot {slot:,}"


def _check_era_files(chain: Chain, beacon_chain: BeaconChain, say: Callable[[str], object]) -> list[Problem]:
    can_be_read = False
    for place in chain.era_files:
        label = f"folder {place.name}" if isinstance(place, Path) else urlsplit(place).netloc.rpartition("@")[2]
        if isinstance(place, Path) and not place.is_dir():
            say(f"  Era files, {label}: there is no such folder.")
            continue
        files = EraFiles(beacon_chain, [place])
        try:
            sizes = {name: files.size(name) for name in _newest(beacon_chain, files)}
        except NodeUnavailable as error:
            say(f"  Era files, {label}: {error}")
            continue
        can_be_read = True
        said = (f"no {name}" if size is None else f"{name}, {size / 1e6:,.0f} MB" for name, size in sizes.items())
        say(f"  Era files, {label}: {'; '.join(said)}.")
    if can_be_read or not chain.era_files:
        return []
    return [Problem("no_era_files", f"No place of era_files of {chain.label} can be read.")]


def _newest(chain: BeaconChain, files: EraFiles) -> list[str]:
    """Return the names of the newest files of each kind that are known without asking; or one that nobody has."""
    names = []
    if epochs := shipped.epochs(chain):
        names.append(files.era1_name(len(epochs) - 1, epochs[-1]))
    if roots := shipped.historical_roots(chain):
        names.append(files.era_name(len(roots) - 1, roots[-1]))
    return names or [files.era_name(0, bytes(4))]
