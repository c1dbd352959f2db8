"""The chains of this installation and their RPC clients, made once per process."""

import os
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

# Each command loads this module, and few ask a chain. What reads the file and what asks nodes takes a while to load.
if TYPE_CHECKING:
    from chains.chains_file import Chains
    from chains.rpc import RpcClient

# For pages, a node that takes longer counts as down: people are waiting, and a web process has few threads.
PAGE_TIMEOUT_SECONDS = 2


@cache
def get_chains() -> "Chains":
    """Return the chains of `settings.CHAINS_FILE`."""
    from chains.chains_file import load_chains  # noqa: PLC0415 (as above)

    return load_chains(settings.CHAINS_FILE, os.environ)


@cache
def get_rpc(chain_id: int) -> "RpcClient":
    """Return the client of a chain. All threads share it, and with it what is known about the nodes' health."""
    from chains.rpc import RpcClient  # noqa: PLC0415 (as above)

    return RpcClient(get_chains().chain(chain_id))


@cache
def get_page_rpc(chain_id: int) -> "RpcClient":
    """Return a client as `get_rpc` does, with `PAGE_TIMEOUT_SECONDS` for a node, because a reader waits for a page."""
    from chains.rpc import RpcClient  # noqa: PLC0415 (as above)

    return RpcClient(get_chains().chain(chain_id), timeout_seconds=PAGE_TIMEOUT_SECONDS)


def forget_chains() -> None:
    """Make the next call read the file again."""
    get_chains.cache_clear()
    get_rpc.cache_clear()
    get_page_rpc.cache_clear()
