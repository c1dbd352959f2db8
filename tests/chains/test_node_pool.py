"""Nodes that differ in how far back they know states."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chains.rpc import AccountProof, ChainError, NodeUnavailable, ProofRequest, RpcClient, RpcRefused
from chains.trie import EMPTY_TRIE_ROOT
from devnet.devchain import ACCOUNTS, DevChain
from tests.chains.lying_node import Raw, ask, lying_node

ALICE = ACCOUNTS[0][0]
GENESIS_TIME = 1_700_000_000
HEAD = 20
PRUNED_BELOW = 15


@contextmanager
def anvil(*arguments: str) -> Iterator[DevChain]:
    """A chain of `HEAD` blocks, the same ones each time."""
    with DevChain(extra_args=("--timestamp", str(GENESIS_TIME), *arguments)) as chain:
        for number in range(1, HEAD + 1):
            chain.rpc("evm_mine", GENESIS_TIME + 12 * number)
        yield chain


@pytest.fixture(scope="module")
def archive() -> Iterator[DevChain]:
    with anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def pruned() -> Iterator[DevChain]:
    with anvil("--prune-history", str(HEAD - PRUNED_BELOW)) as chain:
        yield chain


class Counted:
    """A node whose proofs are counted, in front of a real one. It may stop answering."""

    def __init__(self, chain: DevChain) -> None:
        self._chain = chain
        self.asked: list[int | str] = []
        self.failed = 0
        self.down = False

    def __call__(self, body: Any) -> Any:
        if self.down:
            self.failed += 1
            return Raw(status=503)
        for one in body if isinstance(body, list) else [body]:
            if one["method"] == "eth_getProof":
                self.asked.append(one["params"][2])
        return ask(self._chain.url, body)

    def count(self) -> int:
        """Return how many proofs the node was asked for since the last count."""
        count = len(self.asked)
        self.asked.clear()
        return count


@pytest.fixture
def near(pruned) -> Counted:
    return Counted(pruned)


@pytest.fixture
def far(archive) -> Counted:
    return Counted(archive)


@pytest.fixture
def client(near, far, client_of) -> Iterator[RpcClient]:
    """Yield a client of a pruned node, with an archive behind it."""
    with lying_node(near) as first, lying_node(far) as second:
        yield client_of(first, second)


def prove(client: RpcClient, *numbers: int) -> list[AccountProof | ChainError]:
    headers = [header for header in client.headers(numbers) if header is not None]
    return client.proofs([ProofRequest(header.number, header.hash, header.state_root, ALICE) for header in headers])


def served(proofs: list[AccountProof | ChainError]) -> bool:
    return all(isinstance(proof, AccountProof) for proof in proofs)


def test_a_node_is_not_asked_again_first_for_proofs_that_it_lacks(client, near, far):
    assert served(prove(client, 10))
    assert (near.count(), far.count()) == (2, 1), "by number too, as long as it has answered nothing by hash"
    assert served(prove(client, 10, 9, 1))
    assert (near.count(), far.count()) == (0, 3)


def test_it_is_asked_in_the_end_when_the_others_fail(client, near, far):
    prove(client, 10)
    near.count()
    far.down = True
    (refused,) = prove(client, 10)
    assert isinstance(refused, RpcRefused)
    assert refused.may_pass, "the archive might serve it again"
    assert near.count() == 2, "by hash, and by number"


def test_a_node_that_fails_is_asked_once_in_a_call(client, near, far):
    prove(client, 10)
    near.down = far.down = True
    lacking = client.proofs([ProofRequest(number, b"\1" * 32, EMPTY_TRIE_ROOT, ALICE) for number in (HEAD, 10)])
    assert all(isinstance(answer, NodeUnavailable) for answer in lacking)
    assert (near.failed, far.failed) == (1, 1)
