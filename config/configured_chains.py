"""The configured chains and their clients, made once per process."""

import os
from functools import cache

from django.conf import settings

from chains.chains_file import Chains, load_chains
from chains.rpc import RpcClient

# People wait for a page, and a web process has few threads: a node that takes longer is as good as down.
PAGE_TIMEOUT_SECONDS = 2


@cache
def get_chains() -> Chains:
    """The chains of `settings.CHAINS_FILE`."""
    return load_chains(settings.CHAINS_FILE, os.environ)


@cache
def get_rpc(chain_id: int) -> RpcClient:
    """The client of a configured chain, shared by all threads so that they share what is known of its URLs' health."""
    return RpcClient(get_chains().chain(chain_id))


@cache
def get_page_rpc(chain_id: int) -> RpcClient:
    """As `get_rpc`, for what is read while somebody waits for a page: it gives a node `PAGE_TIMEOUT_SECONDS`."""
    return RpcClient(get_chains().chain(chain_id), timeout_seconds=PAGE_TIMEOUT_SECONDS)


def forget_chains() -> None:
    """The next call reads the file again."""
    get_chains.cache_clear()
    get_rpc.cache_clear()
    get_page_rpc.cache_clear()
