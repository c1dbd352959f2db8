from collections.abc import Iterator

import pytest

from devnet.devchain import DevChain


@pytest.fixture(scope="module")
def devchain() -> Iterator[DevChain]:
    """Yield a chain whose newest final block is two below its head."""
    with DevChain() as chain:
        chain.mine(10)
        yield chain
