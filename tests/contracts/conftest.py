from collections.abc import Iterator

import pytest

from chains.devchain import DevChain
from tests.contracts.deployed import Deployed


@pytest.fixture(scope="session")
def chain() -> Iterator[DevChain]:
    """One chain for all tests of this folder that don't change the chain itself. Each deploys what it writes to."""
    with DevChain() as chain:
        yield chain


@pytest.fixture(scope="session")
def harness(chain: DevChain) -> Iterator[Deployed]:
    """The proof and RLP libraries. Without state."""
    harness = Deployed(chain, "test/ProofHarness")
    yield harness
    harness.close()
