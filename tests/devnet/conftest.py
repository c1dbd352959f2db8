from collections.abc import Iterator

import pytest

from devnet.devchain import DevChain


@pytest.fixture(scope="module")
def devchain() -> Iterator[DevChain]:
    with DevChain() as chain:
        yield chain
