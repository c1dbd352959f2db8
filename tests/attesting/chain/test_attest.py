"""An attester's decisions to sign or refuse when its nodes lag, fail or disagree."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import Client

from attesting.models import SignedBlock
from devnet.devchain import DevChain
from tests.attesting.process import ALICE, BOB, block_hash, chains_file, question, signer_of
from tests.chains import geth_answers
from tests.chains.lying_node import ask, error, lying_node, result
from tests.proving.proxy import Proxy

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# Nothing listens on port 1.
DEAD_NODE, *OTHER_DEAD_NODES = (f"http://127.0.0.1:1/{number}" for number in range(4))
OTHER_DOMAINS = {"destinationChainId": "11"}, {"verifyingContract": BOB.address}


@pytest.fixture
def use(settings, tmp_path) -> Callable[..., None]:
    """Return a function that makes this process the attester of a chain with these nodes."""

    def configure(*urls: str, chain: str = "") -> None:
        settings.CHAINS_FILE = chains_file(tmp_path, *urls, chain=chain)

    settings.ROOT_URLCONF, settings.MIDDLEWARE = "attesting.urls", []
    return configure


@pytest.fixture(scope="module")
def other_chain() -> Iterator[DevChain]:
    """Yield a chain with the id of `devchain` and other blocks."""
    with DevChain() as chain:
        chain.rpc("anvil_setCoinbase", BOB.address)
        chain.mine(10)
        yield chain


@contextmanager
def proxies(chain: DevChain, count: int) -> Iterator[list[str]]:
    """Yield the URLs of `count` nodes of a chain."""
    with ExitStack() as stack:
        yield [stack.enter_context(Proxy(chain.url)).url for _ in range(count)]


@pytest.fixture(scope="module")
def honest(devchain) -> Iterator[list[str]]:
    """Yield four nodes of `devchain`."""
    with proxies(devchain, 4) as urls:
        yield urls


@pytest.fixture(scope="module")
def lying(other_chain) -> Iterator[list[str]]:
    """Yield three nodes that have `other_chain`'s blocks and `devchain`'s id."""
    with proxies(other_chain, 3) as urls:
        yield urls


def host(url: str) -> str:
    return urlsplit(url).netloc


def attested(number: int, **changed: str) -> bytes:
    """Return the block hash that the attester signs."""
    body = question(number, **changed)
    answer = Client().post("/attest", body, content_type="application/json")
    assert answer.status_code == 200, answer.text
    assert answer.json()["attester"] == signer_of(body, answer.json()) == ALICE.address
    return bytes.fromhex(answer.json()["blockHash"][2:])


class Refusal(NamedTuple):
    code: str
    sentence: str


def refused(number: int, **changed: str) -> Refusal:
    answer = Client().post("/attest", question(number, **changed), content_type="application/json")
    assert answer.status_code >= 400
    return Refusal(answer.json()["code"], answer.json()["error"])


def health() -> Any:
    return Client().get("/healthz")


@contextmanager
def without_finality(chain: DevChain, answer_of: Callable[[Any], Any]) -> Iterator[str]:
    """Yield a node that answers the request for the final block with `answer_of(body)`."""

    def answer(body: Any) -> Any:
        return answer_of(body) if "finalized" in body["params"] else ask(chain.url, body)

    with lying_node(answer) as url:
        yield url


def test_a_final_block_is_signed(devchain, use):
    use(devchain.url)
    assert attested(devchain.head() - 2) == block_hash(devchain, devchain.head() - 2)


def test_genesis_is_signed(devchain, use):
    use(devchain.url)
    assert attested(0) == block_hash(devchain, 0)


def test_a_block_that_is_not_final_is_refused(devchain, use):
    use(devchain.url)
    refusal = refused(devchain.head() - 1)
    assert refusal.code == "not_final"
    assert refusal.sentence == (
        f"Block {devchain.head() - 1} of chain 31337 is not final yet: the newest final block is {devchain.head() - 2}."
    )
    assert refused(10**9).code == "not_final"
    assert not SignedBlock.objects.exists()


def test_a_chain_that_is_not_configured_is_refused(devchain, use):
    use(devchain.url)
    refusal = refused(1, sourceChainId="1")
    assert refusal.code == "unknown_chain"
    assert "chain with id 1" in refusal.sentence


def test_another_hash_than_was_signed_is_refused_for_every_contract(devchain, other_chain, use, caplog):
    use(devchain.url)
    attested(5)
    use(other_chain.url)
    for domain in ({}, *OTHER_DOMAINS):
        assert refused(5, **domain).code == "conflict"
    signed = SignedBlock.objects.get()
    assert signed.hash == "0x" + block_hash(devchain, 5).hex()
    (record, *_) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    for chain in (devchain, other_chain):
        assert block_hash(chain, 5).hex() in record.getMessage()


def test_one_hash_is_stored_for_any_number_of_contracts(devchain, use):
    use(devchain.url)
    for domain in ({}, *OTHER_DOMAINS, {}):
        attested(5, **domain)
    assert SignedBlock.objects.count() == 1


# --- Number of nodes that must agree ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("named", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_more_than_half_of_the_nodes_must_agree(devchain, honest, use, named, needed):
    dead = [DEAD_NODE, *OTHER_DEAD_NODES]
    use(*honest[:needed], *dead[: named - needed])
    assert attested(5) == block_hash(devchain, 5)
    use(*honest[: needed - 1], *dead[: named - needed], "http://127.0.0.1:1/another")
    assert refused(6).code == "unavailable"


@pytest.mark.parametrize("named", [2, 3, 4, 5])
def test_a_minority_that_lies_gets_no_signature_while_all_others_are_down(lying, use, named):
    minority = named // 2
    use(*lying[:minority], *[DEAD_NODE, *OTHER_DEAD_NODES][: named - minority])
    refusal = refused(5)
    assert refusal == (
        "unavailable",
        f"Too few nodes of chain 31337 answer this attester: {minority} of {named}, and it needs {minority + 1}.",
    )
    assert not SignedBlock.objects.exists()


def test_so_many_nodes_must_agree_as_are_configured(devchain, honest, use):
    use(*honest[:2], DEAD_NODE, *OTHER_DEAD_NODES[:2], chain="node_quorum = 2")
    assert attested(5) == block_hash(devchain, 5)
    use(*honest, DEAD_NODE, chain="node_quorum = 5")
    assert refused(6).sentence == "Too few nodes of chain 31337 answer this attester: 4 of 5, and it needs 5."


def test_one_node_that_disagrees_is_enough_to_refuse_and_is_named_in_the_log(
    devchain, other_chain, honest, lying, use, caplog
):
    use(*honest[:2], lying[0])
    refusal = refused(5)
    assert refusal == (
        "unavailable",
        "The nodes of this attester disagree about block 5 of chain 31337.",
    )
    assert not SignedBlock.objects.exists()
    (record,) = [record for record in caplog.records if "disagree" in record.getMessage()]
    assert record.levelname == "ERROR"
    hashes = [f"{host(url)} has 0x{block_hash(devchain, 5).hex()}" for url in honest[:2]]
    hashes.append(f"{host(lying[0])} has 0x{block_hash(other_chain, 5).hex()}")
    assert record.getMessage() == (
        f"The nodes of Development chain (31337) disagree about block 5: {', '.join(hashes)}."
    )


def test_a_disagreement_is_told_though_too_few_nodes_answer(honest, lying, use):
    use(honest[0], lying[0], DEAD_NODE, *OTHER_DEAD_NODES[:2])
    assert "disagree" in refused(5).sentence


def test_without_a_node_nothing_is_signed_and_no_host_is_told(use):
    use(DEAD_NODE)
    refusal = refused(5)
    assert refusal == ("unavailable", "No node of chain 31337 answers this attester.")


def an_error(body: Any) -> Any:
    return error(body, *geth_answers.REFUSALS["no final block" if "finalized" in body["params"] else "a pruned block"])


def nothing(body: Any) -> Any:
    return result(body, None)


@pytest.mark.parametrize("answer_of", [an_error, nothing])
def test_a_node_that_lacks_a_final_block_is_no_answer(devchain, honest, use, answer_of):
    def pruned(body: Any) -> Any:
        return answer_of(body) if "0x5" in body["params"] else ask(devchain.url, body)

    with lying_node(pruned) as url:
        use(url)
        assert refused(5).sentence == "No node of chain 31337 answers this attester."
        use(url, *honest[:2])
        assert attested(5) == block_hash(devchain, 5)


@pytest.mark.long
def test_a_node_that_hangs_holds_up_no_other(devchain, honest, use, caplog):
    answered = threading.Event()

    def hang(body: Any) -> Any:
        answered.wait(60)
        return ask(devchain.url, body)

    with lying_node(hang) as url:
        use(url, *honest[:2])
        begun = time.monotonic()
        try:
            assert attested(5) == block_hash(devchain, 5)
            assert time.monotonic() - begun < 30
        finally:
            answered.set()
    assert [message for message in caplog.messages if host(url) in message]


@pytest.mark.parametrize(("down", "status"), [(1, 200), (2, 503)])
def test_its_health_is_that_enough_nodes_answer(devchain, honest, use, down, status):
    use(*honest[: 3 - down], *OTHER_DEAD_NODES[:down])
    answer = health()
    assert answer.status_code == status
    assert answer.json()["chains"]["31337"] == (
        {"newestFinalBlock": str(devchain.head() - 2)}
        if status == 200
        else {"error": "Too few nodes of chain 31337 answer this attester: 1 of 3, and it needs 2."}
    )


# --- Finality ---------------------------------------------------------------------------------------------------------


@contextmanager
def final_at(chain: DevChain, number: int) -> Iterator[str]:
    """Yield a node whose newest final block is `number`."""

    def answer(body: Any) -> Any:
        params = [hex(number) if param == "finalized" else param for param in body["params"]]
        return ask(chain.url, body | {"params": params})

    with lying_node(answer) as url:
        yield url


@pytest.mark.parametrize(("quorum", "final"), [(2, 6), (3, 3)])
def test_a_block_is_final_when_enough_nodes_say_so(devchain, use, quorum, final):
    """One node that lags delays nothing, and one node that runs ahead makes nothing final."""
    with final_at(devchain, 3) as lagging, final_at(devchain, 6) as usual, final_at(devchain, 9) as ahead:
        use(ahead, lagging, usual, chain=f"node_quorum = {quorum}")
        assert f"the newest final block is {final}." in refused(final + 1).sentence
        assert attested(final) == block_hash(devchain, final)
        answer = health().json()
    assert answer["chains"]["31337"] == {"newestFinalBlock": str(final)}


def test_a_node_that_has_another_block_contradicts_before_it_is_final_there(other_chain, honest, use):
    with final_at(other_chain, 3) as url:
        use(url, *honest[:2])
        assert "disagree" in refused(5).sentence


def test_of_blocks_that_no_node_calls_final_nodes_may_have_different_ones(devchain, honest, lying, use, caplog):
    use(*honest[:2], lying[0])
    assert refused(devchain.head()).code == "not_final"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_node_that_refuses_a_block_that_is_not_there_yet_only_lags(devchain, honest, use):
    def short(body: Any) -> Any:
        return error(body, -32000, "unknown block") if "0x7" in body["params"] else ask(devchain.url, body)

    with lying_node(short) as url:

        def lagging(body: Any) -> Any:
            params = ["0x3" if param == "finalized" else param for param in body["params"]]
            return ask(url, body | {"params": params})

        with lying_node(lagging) as first, lying_node(lagging) as two:
            use(first, two, honest[0])
            assert "the newest final block is 3." in refused(7).sentence


@pytest.mark.parametrize("answer_of", [an_error, nothing])
def test_without_finality_nothing_is_signed_unless_a_depth_is_configured(devchain, use, answer_of):
    with without_finality(devchain, answer_of) as first, without_finality(devchain, answer_of) as two:
        use(first, two, DEAD_NODE)
        refusal = refused(1)
        assert refusal.code == "no_finality"
        assert refusal.sentence == (
            "Too few nodes of chain 31337 report a final block: 0 of 3, and 2 are needed. If the chain has no "
            "finality, the attester's operator must set confirmations to a number."
        )
        # The head has one confirmation, its parent two, and the newest signed block three.
        use(first, two, DEAD_NODE, chain="confirmations = 3")
        assert f"the newest final block is {devchain.head() - 2}." in refused(devchain.head() - 1).sentence
        attested(devchain.head() - 2)


@pytest.mark.parametrize("answer_of", [an_error, nothing])
def test_a_node_that_tells_no_final_block_is_not_counted(devchain, honest, use, answer_of, caplog):
    with without_finality(devchain, answer_of) as first, without_finality(devchain, answer_of) as two:
        use(first, two, honest[0])
        refusal = refused(1)
        assert refusal == (
            "no_finality",
            "Too few nodes of chain 31337 report a final block: 1 of 3, and 2 are needed.",
        )
        assert f"{host(first)} does not report the final block of Development chain (31337)." in caplog.messages
        use(first, *honest[:2])
        attested(1)


def test_a_node_that_tells_no_final_block_may_contradict(other_chain, honest, use):
    with without_finality(other_chain, an_error) as url:
        use(url, *honest[:2])
        assert "disagree" in refused(5).sentence


def test_a_depth_does_not_overrule_the_finality_of_the_chain(devchain, use):
    use(devchain.url, chain="confirmations = 1")
    assert refused(devchain.head() - 1).code == "not_final"


def test_a_depth_may_ask_for_more_than_finality(devchain, use):
    use(devchain.url, chain="confirmations = 6")
    assert f"the newest final block is {devchain.head() - 5}." in refused(devchain.head() - 4).sentence
    attested(devchain.head() - 5)


def test_a_depth_counts_at_no_node_once_one_has_told_a_final_block(devchain, use):
    """Confirmations apply only to a chain without finality. A failing node must not make a chain count as one."""
    with ExitStack() as stack:
        refusing = [stack.enter_context(without_finality(devchain, answer_of)) for answer_of in (an_error, nothing)]
        proxy = stack.enter_context(Proxy(devchain.url))
        use(*refusing, proxy.url, chain="confirmations = 1")
        assert "1 of 3, and 2 are needed" in refused(1).sentence
        proxy.down()
        refusal = refused(1)
        proxy.up()
    assert refusal == (
        "no_finality",
        "Too few nodes of chain 31337 report a final block: 0 of 3, and 2 are needed.",
    )
    assert not SignedBlock.objects.exists()


@pytest.mark.sqlite_only(reason="PostgreSQL has no such pragma")
def test_the_attesters_database_syncs_each_commit_to_the_disk():
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA synchronous").fetchone() == (2,)  # 2 is FULL
