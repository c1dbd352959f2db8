"""The chains of this installation and their RPC clients, made once per process."""

import os
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

# The modules about chains are slow to load. Every command loads this module, but few need chains.
if TYPE_CHECKING:
    from chains.beacon.beacon_client import BeaconClient
    from chains.beacon.era_files import EraFiles
    from chains.chains_file import Chains
    from chains.nodes.rpc import RpcClient

# Seconds after which a node counts as unavailable for a page. People are waiting, and a web process has few threads.
PAGE_TIMEOUT_SECONDS = 2


@cache
def get_chains() -> "Chains":
    """Return the chains of `settings.CHAINS_FILE`."""
    from chains.chains_file import load_chains  # noqa: PLC0415 (slow to load)

    _loaded_file()
    return load_chains(settings.CHAINS_FILE, os.environ)


@cache
def _loaded_file() -> bytes:
    """Return the file's content when this process loaded it. Empty if it could not be read."""
    return _file_now()


def _file_now() -> bytes:
    try:
        return settings.CHAINS_FILE.read_bytes()
    except OSError:
        return b""


def have_changed() -> bool:
    """Return whether the file has other chains than this process has loaded."""
    return _file_now() != _loaded_file()


@cache
def get_rpc(chain_id: int) -> "RpcClient":
    """Return the client of a chain. All threads share the client, and thus its record of failed nodes."""
    from chains.nodes.rpc import RpcClient  # noqa: PLC0415 (slow to load)

    return RpcClient(get_chains().chain(chain_id))


@cache
def get_page_rpc(chain_id: int) -> "RpcClient":
    """Return the client of a chain for pages, which waits only `PAGE_TIMEOUT_SECONDS` for a node."""
    from chains.nodes.rpc import RpcClient  # noqa: PLC0415 (slow to load)

    chain = get_chains().chain(chain_id)
    return RpcClient(chain, timeout_seconds=PAGE_TIMEOUT_SECONDS, ask_seconds=3 * PAGE_TIMEOUT_SECONDS)


@cache
def get_beacon_client(chain_id: int) -> "BeaconClient | None":
    """Return the client of a chain's beacon nodes. None if none is configured, or if its beacon chain isn't known."""
    from chains.beacon.beacon_client import BeaconClient  # noqa: PLC0415 (slow to load)

    chain = get_chains().chain(chain_id)
    return BeaconClient(chain, chain.beacon_chain) if chain.beacon_chain and chain.beacon_urls else None


@cache
def get_era_files(chain_id: int) -> "EraFiles | None":
    """Return the reader of a chain's era files. None if none are configured, or if its beacon chain isn't known."""
    from chains.beacon.era_files import EraFiles  # noqa: PLC0415 (slow to load)

    chain = get_chains().chain(chain_id)
    return EraFiles(chain.beacon_chain, chain.era_files) if chain.beacon_chain and chain.era_files else None


def forget_chains() -> None:
    """Forget the loaded chains, so that the next call reads the file again."""
    for made in (get_chains, _loaded_file, get_rpc, get_page_rpc, get_beacon_client, get_era_files):
        made.cache_clear()
