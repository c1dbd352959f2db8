from collections.abc import Callable, Iterable

import pytest
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from chains.encoding import HISTORY_WINDOW
from chains.tries import packed
from devnet.devchain import DevChain
from tests.chain_fixtures import chain_fixture
from tests.contracts import decoder, tries
from tests.contracts.deployed import Deployed
from tests.contracts.harness import Harness
from tests.contracts.simulator import Call, Simulator
from tests.contracts.walks import ShownProof, anyone_reader, refusals

# Chain id for the registries of these tests. Any number would do.
SOURCE_CHAIN_ID = 1
# Number of the block that most proofs are about.
BLOCK = 77

# A function of a state root and operations. It returns whether the registry accepts them.
Accepts = Callable[[bytes, bytes], bool]


# One chain for all tests of this folder. Tests only deploy contracts and send transactions on it. The states of its
# thousands of blocks would fill a disk of twelve gigabytes.
chain = chain_fixture(scope="session", extra_args=("--gas-limit", str(10**12), "--max-persisted-states", "100"))


@pytest.fixture(scope="session")
def harness(chain: DevChain) -> Harness:
    return Harness(chain)


@pytest.fixture(scope="session")
def simulator(chain: DevChain) -> Simulator:
    return Simulator(chain)


@pytest.fixture(scope="module")
def reader(chain: DevChain) -> Deployed:
    """Return a reader for which each number of a block is the root below which something is shown."""
    return anyone_reader(chain)


@pytest.fixture(scope="module")
def refused(simulator: Simulator, reader: Deployed) -> Callable[[Iterable[ShownProof]], list[str]]:
    """Return a function that returns the model's refusals of walks, after the contract has agreed."""
    return lambda all_walks: refusals(simulator, reader, all_walks)


@pytest.fixture
def source(chain: DevChain) -> Deployed:
    """Return a block hash source that vouches for the hashes set by a test."""
    return Deployed(chain, "test/SettableBlockHashSource", SOURCE_CHAIN_ID)


@pytest.fixture
def registry(chain: DevChain, source: Deployed) -> Deployed:
    """Return a new registry that trusts `source`."""
    return Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, HISTORY_WINDOW, NO_CONTRACT)


@pytest.fixture(scope="session")
def accepts(chain: DevChain, simulator: Simulator) -> Accepts:
    """Return a function that tries operations with the contract and in Python, and compares the results.

    Each state root is that of the only block of a new registry.
    """
    source = Deployed(chain, "test/SettableBlockHashSource", SOURCE_CHAIN_ID)
    registry = Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, HISTORY_WINDOW, NO_CONTRACT)
    invalid, unproven = (keccak(text=error)[:4] for error in ("InvalidProof()", "HeaderFieldNotProven(uint256,uint8)"))

    def both(root: bytes, operations: bytes) -> bool:
        header, proof = tries.header(BLOCK, root), bytes([1, BLOCK]) + operations
        accumulate = [
            Call(source.address, source.calldata("set", BLOCK, keccak(header))),
            Call(registry.address, packed.encode(header, root)),
        ]
        [outcome] = simulator.run([Call(registry.address, proof)], first=accumulate)
        try:
            decoder.decode(proof, block_hash=lambda _: None, state_root=lambda _: root)
        except decoder.InvalidPacked:
            # No root of receipts or transactions is proven here.
            other = proof[2:3] in {bytes([packed.RECEIPTS]), bytes([packed.TRANSACTIONS])}
            assert (outcome.succeeded, outcome.data[:4]) == (False, unproven if other else invalid)
            return False
        assert outcome.succeeded
        return True

    return both
