"""ENS names in a request, the rows stored for them, and refusals of names that can't be resolved."""

from collections.abc import Iterator
from typing import Any

import pytest

from devnet.devchain import DevChain
from queries.models import Batch, Query
from tests.chains.lying_node import ask, lying_node, recording
from tests.names import Names
from tests.queries.submissions import faults
from tests.service import ALICE, BOB, chains_toml, request

pytestmark = pytest.mark.outside

SENTENCE = "Invalid account address or ENS"


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    with DevChain() as chain:
        names = Names(chain)
        names.set("alice.eth", ALICE)
        names.set_below("below.eth", BOB)
        yield names


@pytest.fixture
def resolving(names: Names, settings, tmp_path):
    """Return a function that configures ENS, by default on the chain with the names."""

    def configure(*urls: str) -> None:
        path = chains_toml(tmp_path, *(urls or [names.chain.url]))
        path.write_text("[ens]\nchain = 31337\n" + path.read_text())
        settings.CHAINS_FILE = path

    configure()
    return configure


def at_blocks(**blocks: list[str]) -> dict[str, Any]:
    """Return a request for accounts at blocks. Keywords are selectors with `_` for the colon."""
    data = {
        name.replace("_", ":"): request(*accounts, block=1)["data"]["31337"]["block:1"]
        for name, accounts in blocks.items()
    }
    return request(ALICE, block=1) | {"data": {"31337": data}}


def pointer(account: str, block: int = 1) -> str:
    return f"/data/31337/block:{block}/accounts/{account}"


def test_a_name_is_stored_with_the_address_that_it_had(post, resolving):
    body = at_blocks(block_1=["Alice.eth", BOB], block_2=["alice.eth"])
    assert post(body).status_code == 200
    rows = Query.objects.order_by("position").values_list("address", "name", "block__number")
    assert list(rows) == [(ALICE, "alice.eth", 1), (BOB, "", 1), (ALICE, "alice.eth", 2)]
    assert '"Alice.eth"' in Batch.objects.get().request


def test_names_that_stand_for_nobody_are_faults_beside_all_others(post, resolving):
    body = at_blocks(block_1=["nobody.eth", "alice.eth", "a..eth", "0x12"], block_2=["nobody.eth"]) | {"fee": "x"}
    response = post(body)
    fault_by_path = faults(response)
    assert set(fault_by_path) == {
        *(pointer("nobody.eth"), pointer("a..eth"), pointer("0x12"), pointer("nobody.eth", 2)),
        "/fee",
    }
    assert fault_by_path[pointer("nobody.eth")] == (
        "invalid_request",
        f"{SENTENCE}: the name 'nobody.eth' has no address on chain Development chain (31337).",
    )
    assert fault_by_path[pointer("a..eth")][1].startswith(
        f"{SENTENCE}: the name 'a..eth' is not a valid name (ENSIP-15): "
    )
    assert response.json()["error"].startswith(SENTENCE)
    assert not Batch.objects.exists()


@pytest.mark.parametrize("path", ["/submit-batch-query", "/estimate-batch-query"])
@pytest.mark.parametrize(("most", "statuses"), [(20, [400, 400, 429]), (19, [400, 429]), (5, [400, 429])])
def test_each_letter_of_a_name_counts_as_a_query(post, resolving, settings, path, most, statuses):
    settings.MAX_QUERIES_PER_MINUTE = most
    assert [post(at_blocks(block_1=["nobody.eth"]), path=path).status_code for _ in statuses] == statuses


def test_an_account_may_stand_under_its_names_and_its_address(post, resolving):
    """The replaced service's example names an account by its name and by its address. Each becomes a query."""
    accounts = ["alice.eth", ALICE.lower(), "one.below.eth", "two.below.eth", BOB]
    assert post(at_blocks(block_1=accounts)).status_code == 200
    rows = Query.objects.order_by("position").values_list("address", "name")
    names = ("alice.eth", "", "one.below.eth", "two.below.eth", "")
    assert list(rows) == list(zip((ALICE, ALICE, BOB, BOB, BOB), names, strict=True))


def test_two_spellings_of_a_name_at_a_block_are_one_too_many(post, resolving):
    fault_by_path = faults(post(at_blocks(block_1=["alice.eth", BOB, "ALICE.eth"])))
    assert fault_by_path["/data/31337/block:1/accounts"][1] == "The account 'ALICE.eth' is named twice at this block."
    assert post(at_blocks(block_1=["alice.eth"], block_2=["ALICE.eth"])).status_code == 200


def test_each_name_is_resolved_once_and_all_of_them_together(post, names, resolving):
    node_requests: list[Any] = []
    with lying_node(recording(node_requests, lambda body: ask(names.chain.url, body))) as url:
        resolving(url)
        names_below = [f"{number}.below.eth" for number in range(10)]
        assert (
            post(
                at_blocks(**{f"block_{number}": [name, "alice.eth"] for number, name in enumerate(names_below)})
            ).status_code
            == 200
        )
    assert [len(body) for body in node_requests if isinstance(body, list)] == [13]
    assert len(node_requests) == 2


TOO_LONG = {
    "51 names are too many; a batch may have 50.": [f"{number}.eth" for number in range(51)],
    # Each of these Han letters is in several groups of ENSIP-15, which costs the library milliseconds.
    "The names have over 200 letters beyond ASCII, which are slow to check.": [
        "".join(chr(0x4E00 + 100 * row + column) for column in range(21)) + ".eth" for row in range(10)
    ],
    "The names are longer than 2000 bytes in all.": ["a" * 250 + f"{row}.eth" for row in range(10)],
}


@pytest.mark.parametrize(("sentence", "named"), TOO_LONG.items())
def test_names_are_counted_before_any_is_looked_at(post, resolving, sentence, named):
    resolving("http://127.0.0.1:1")
    fault_by_path = faults(post(at_blocks(block_1=named[:5], block_2=named[5:])))
    assert {path: message for path, (_, message) in fault_by_path.items()} == {"/data": sentence}


def test_nothing_is_stored_while_nodes_are_down(post, names, resolving, key):
    resolving("http://127.0.0.1:1/secret-key")
    response = post(at_blocks(block_1=["alice.eth"]))
    assert (response.status_code, response.json()["code"]) == (503, "names_unavailable")
    assert response.headers["Retry-After"] == "5"
    assert "secret" not in response.text
    # A request without names works without ENS.
    assert post(request(ALICE, block=1)).status_code == 200
    assert not Query.objects.exclude(name="").exists()


def test_a_name_that_gateways_answer_for_is_unsupported(post, names, resolving):
    names.refer("elsewhere.eth", ["https://gateway.example/{data}"])
    response = post(at_blocks(block_1=["elsewhere.eth"]))
    code, message = faults(response)[pointer("elsewhere.eth")]
    assert (code, response.json()["code"]) == ("unsupported", "unsupported")
    assert message == (
        f"{SENTENCE}: the name 'elsewhere.eth' has a resolver that refers to a gateway (EIP-3668), and this service "
        f"asks no gateways."
    )


def test_malformed_bodies_with_names_are_refused_in_words(post, resolving):
    for accounts in (["a.eth"], "a.eth", None, {"a.eth": 5}, {"a.eth": {"props": ["a.b"]}}):
        body = at_blocks(block_1=["alice.eth"])
        body["data"]["31337"]["block:1"]["accounts"] = accounts
        body["data"]["x.eth"] = {"y.eth": {"z.eth": {"accounts": []}}}
        assert post(body).status_code == 400
    assert not Batch.objects.exists()
