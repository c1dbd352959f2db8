from collections.abc import Callable

import pytest

from chains.chains_file import Chain
from chains.nodes.rpc import RpcClient


@pytest.fixture
def client_of() -> Callable[..., RpcClient]:
    """Return a function that makes a client of a chain from the chain's URLs."""

    def build(*urls: str, chain_id: int = 31337, timeout_seconds: float = 20, **options) -> RpcClient:
        chain = Chain(id=chain_id, name="Test chain", rpc_urls=urls)
        return RpcClient(chain, timeout_seconds=timeout_seconds, **options)

    return build
