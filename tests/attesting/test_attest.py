"""What an attester signs, and what it refuses, beside real nodes that lag, fail or disagree."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from attesting.attest import Refused, attest
from attesting.models import SignedBlock
from chains.attestation import Domain, Question, recover
from chains.devchain import DevChain
from config.chains import forget_chains
from tests.attesting.process import ALICE, BOB, CONTRACT, chains_file
from tests.chains.lying_node import ask, error, lying_node, result

pytestmark = pytest.mark.django_db

DEAD_NODE = "http://127.0.0.1:1"  # Nothing listens on port 1.
DOMAIN = Domain(10, CONTRACT)


@pytest.fixture
def use(settings, tmp_path) -> Callable[..., None]:
    """Makes this process the attester of a chain with these nodes."""

    def configure(*urls: str, chain: str = "") -> None:
        settings.CHAINS_FILE = chains_file(tmp_path, *urls, chain=chain)
        forget_chains()

    return configure


@pytest.fixture(scope="module")
def other_chain() -> Iterator[DevChain]:
    """As `devchain`, with other blocks."""
    with DevChain() as chain:
        chain.rpc("anvil_setCoinbase", BOB.address)
        chain.mine(10)
        yield chain


def block_hash(chain: DevChain, number: int) -> bytes:
    return bytes.fromhex(chain.rpc("eth_getBlockByNumber", hex(number), False)["hash"][2:])


def refused(number: int, *, chain_id: int = 31337, domain: Domain = DOMAIN) -> Refused:
    with pytest.raises(Refused) as caught:
        attest(Question(domain, chain_id, number))
    return caught.value


@contextmanager
def without_finality(chain: DevChain, said: Callable[[Any], Any]) -> Iterator[str]:
    """A node that says this when it is asked for the final block."""

    def answer(body: Any) -> Any:
        return said(body) if "finalized" in body["params"] else ask(chain.url, body)

    with lying_node(answer) as url:
        yield url


def test_a_final_block_is_signed(devchain, use):
    use(devchain.url)
    question = Question(DOMAIN, 31337, devchain.head() - 2)
    attestation = attest(question)
    assert attestation.attester == ALICE.address
    assert attestation.block_hash == block_hash(devchain, devchain.head() - 2)
    assert recover(question.message(attestation.block_hash), attestation.signature) == ALICE.address


def test_genesis_is_signed(devchain, use):
    use(devchain.url)
    assert attest(Question(DOMAIN, 31337, 0)).block_hash == block_hash(devchain, 0)


def test_what_is_not_final_is_refused(devchain, use):
    use(devchain.url)
    told = refused(devchain.head() - 1)
    assert told.code == "not_final"
    assert str(told) == (
        f"Block {devchain.head() - 1} of chain 31337 is not final yet: the newest final block is {devchain.head() - 2}."
    )
    assert refused(10**9).code == "not_final"
    assert not SignedBlock.objects.exists()


def test_a_chain_that_is_not_configured_is_refused(devchain, use):
    use(devchain.url)
    told = refused(1, chain_id=1)
    assert told.code == "unknown_chain"
    assert "chain with id 1" in str(told)


def test_another_hash_than_was_signed_is_refused_for_every_contract(devchain, other_chain, use, caplog):
    use(devchain.url)
    attest(Question(DOMAIN, 31337, 5))
    use(other_chain.url)
    for domain in (DOMAIN, Domain(11, CONTRACT), Domain(10, BOB.address)):
        assert refused(5, domain=domain).code == "conflict"
    signed = SignedBlock.objects.get()
    assert signed.hash == f"0x{block_hash(devchain, 5).hex()}"
    (record, *_) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    for one in (devchain, other_chain):
        assert block_hash(one, 5).hex() in record.getMessage()


def test_one_hash_is_stored_for_any_number_of_contracts(devchain, use):
    use(devchain.url)
    for domain in (DOMAIN, Domain(11, CONTRACT), DOMAIN):
        attest(Question(domain, 31337, 5))
    assert SignedBlock.objects.count() == 1


def test_nodes_that_disagree_sign_nothing(devchain, other_chain, use):
    use(devchain.url, other_chain.url)
    told = refused(5)
    assert (told.code, str(told)) == (
        "unavailable",
        "The nodes of this attester disagree about block 5 of chain 31337.",
    )
    assert not SignedBlock.objects.exists()


def test_a_block_is_final_when_every_node_says_so(devchain, use):
    with lying_node(lambda body: ask(devchain.url, body | {"params": before(body["params"])})) as lagging:
        use(devchain.url, lagging)
        assert "the newest final block is 3." in str(refused(4))
        attest(Question(DOMAIN, 31337, 3))


def before(params: list[Any]) -> list[Any]:
    return ["0x3" if param == "finalized" else param for param in params]


def test_a_node_that_fails_leaves_the_others_to_answer(devchain, use):
    use(DEAD_NODE, devchain.url)
    assert attest(Question(DOMAIN, 31337, 5)).block_hash == block_hash(devchain, 5)


def test_without_a_node_nothing_is_signed_and_no_host_is_told(use):
    use(DEAD_NODE)
    told = refused(5)
    assert (told.code, str(told)) == ("unavailable", "No node of chain 31337 answers this attester.")


def test_a_node_that_lacks_a_final_block_is_no_answer(devchain, use):
    def pruned(body: Any) -> Any:
        return result(body, None) if "0x5" in body["params"] else ask(devchain.url, body)

    with lying_node(pruned) as url:
        use(url)
        assert refused(5).code == "unavailable"
        use(url, devchain.url)
        assert attest(Question(DOMAIN, 31337, 5)).block_hash == block_hash(devchain, 5)


def an_error(body: Any) -> Any:
    return error(body, -39001, "finalized block not found")


def nothing(body: Any) -> Any:
    return result(body, None)


@pytest.mark.parametrize("said", [an_error, nothing])
def test_without_finality_nothing_is_signed_unless_a_depth_is_configured(devchain, use, said):
    with without_finality(devchain, said) as url:
        use(url)
        told = refused(1)
        assert told.code == "no_finality"
        assert "doesn't tell which block is final" in str(told)
        # The head has one confirmation, its parent two.
        use(url, chain="confirmations = 3")
        assert f"the newest final block is {devchain.head() - 2}." in str(refused(devchain.head() - 1))
        attest(Question(DOMAIN, 31337, devchain.head() - 2))


def test_a_depth_does_not_overrule_the_finality_of_the_chain(devchain, use):
    use(devchain.url, chain="confirmations = 1")
    assert refused(devchain.head() - 1).code == "not_final"


def test_what_is_stored_is_synced_to_the_disk():
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
