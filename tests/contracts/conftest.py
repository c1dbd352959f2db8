from collections.abc import Iterator

import pytest

from chains import history
from chains.devchain import DevChain
from tests.contracts.deployed import Deployed
from tests.contracts.harness import Harness

# Of the registry that tests write to; any will do.
SOURCE_CHAIN_ID = 1


@pytest.fixture(scope="session")
def chain() -> Iterator[DevChain]:
    """One chain for all tests of this folder that don't change the chain itself. Each deploys what it writes to."""
    with DevChain(extra_args=("--gas-limit", str(10**12))) as chain:
        yield chain


@pytest.fixture(scope="session")
def harness(chain: DevChain) -> Harness:
    return Harness(chain)


@pytest.fixture
def source(chain: DevChain) -> Deployed:
    """A block hash source that vouches for what it is told."""
    return Deployed(chain, "test/SettableBlockHashSource", SOURCE_CHAIN_ID)


@pytest.fixture
def registry(chain: DevChain, source: Deployed) -> Deployed:
    """A fresh registry that trusts `source`."""
    return Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, history.WINDOW)
