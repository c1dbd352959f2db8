"""The chains of this installation and their RPC clients, made once per process."""

import os
from functools import cache

from django.conf import settings

from chains.chains_file import Chains, load_chains
from chains.rpc import RpcClient

# For pages, a node that takes longer counts as down: people are waiting, and a web process has few threads.
PAGE_TIMEOUT_SECONDS = 2


@cache
def get_chains() -> Chains:
    """The chains of `settings.CHAINS_FILE`."""
    return load_chains(settings.CHAINS_FILE, os.environ)


@cache
def get_rpc(chain_id: int) -> RpcClient:
    """The client of a configured chain. All threads share it, and with it what is known about the nodes' health."""
    return RpcClient(get_chains().chain(chain_id))


@cache
def get_page_rpc(chain_id: int) -> RpcClient:
    """As `get_rpc`, but with `PAGE_TIMEOUT_SECONDS` for a node, because somebody is waiting for a page."""
    return RpcClient(get_chains().chain(chain_id), timeout_seconds=PAGE_TIMEOUT_SECONDS)


def forget_chains() -> None:
    """The next call reads the file again."""
    get_chains.cache_clear()
    get_rpc.cache_clear()
    get_page_rpc.cache_clear()
