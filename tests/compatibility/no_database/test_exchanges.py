"""Public clients of the replaced service are served byte for byte, until DONE or another answer that they expect."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import requests

from demo.client import BALANCE, account_field, take_api_key
from demo.installation import CHAINS_TOML
from devnet.devchain import ACCOUNTS, DevChain
from devnet.ports import free_port
from tests.compatibility import exchanges
from tests.compatibility.exchanges import CLIENTS, Client, GivesUp, as_sent
from tests.fresh_installation import FreshService
from tests.names import Names
from tests.proving.receiver import Receiver, receiver
from tests.service import ALICE, SIGNER_KEY
from tests.serving.process import Answer, connect, read_answer

pytestmark = pytest.mark.outside

CHAIN = 11155111
VITALIK = "0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045"
SECONDS = 240
CHAINS = "[ens]\nchain = 11155111\n\n" + CHAINS_TOML.replace("31337", "11155111")


@dataclass(frozen=True)
class World:
    service: FreshService
    chain: DevChain
    registry: str
    key: str
    stranger: str  # key of another user
    webhooks: Receiver
    block: int

    def ask(self, request: str, **places: object) -> Answer:
        values = {"key": self.key, "host": f"127.0.0.1:{self.service.port}", "origin": "explorer.example"} | places
        with connect(self.service.port) as connection:
            connection.sendall(as_sent(request, **values))
            return read_answer(connection)

    def submit(self, client: Client, **places: object) -> Answer:
        """Submit a client's batch. Its blocks exist."""
        block = self.chain.rpc("eth_getBlockByNumber", hex(self.block), False)
        usual = {
            "destination": str(CHAIN),
            "block": self.block,
            "earlier": self.block - 1,
            "time": int(block["timestamp"], 16),
            "token": "0xd96844c9B21CB6cCf2c236257c7fc703E43BA071",
            "contract": self.registry,
            "webhook": self.webhooks.url,
        }
        return self.ask(client.submission, **usual | places)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    with ExitStack() as running:
        chain = running.enter_context(DevChain(chain_id=CHAIN))
        Names(chain).set("vitalik.eth", VITALIK)
        chain.rpc("eth_sendTransaction", {"from": ALICE, "to": VITALIK, "value": hex(10**18)})
        block = chain.head() + 2
        # The blocks are 12 seconds apart, so each has a time of its own.
        chain.rpc("anvil_mine", hex(4), hex(12))
        webhooks = running.enter_context(receiver())
        folder, limit = tmp_path_factory.mktemp("service"), {"MAX_BATCHES_PER_MINUTE": "1000"}
        service = FreshService(running, folder, CHAINS % chain.url, SIGNER_KEY, free_port(), **limit)
        registry = service.deploy_registry(CHAIN, CHAIN)
        service.serve()
        key, stranger = (take_api_key(service.base_url, *account, CHAIN) for account in ACCOUNTS[:2])
        yield World(service, chain, registry, key, stranger, webhooks, block)


@pytest.fixture(scope="module")
def submitted(world: World) -> dict[str, str]:
    """Return the identifiers that the clients read. All batches are submitted before any test waits for one."""
    return {name: client.identifier(world.submit(client)) for name, client in CLIENTS.items()}


@pytest.mark.long("documentation, reference", "relayer")
@pytest.mark.parametrize("name", CLIENTS)
def test_each_reads_that_it_is_done(world, submitted, name):
    client, identifier = CLIENTS[name], submitted[name]
    deadline = time.monotonic() + SECONDS
    while (status := client.status(world.ask(client.question, id=identifier))) != "DONE":
        assert status == "IN_PROGRESS"
        assert time.monotonic() < deadline, world.ask(client.question, id=identifier).body
        time.sleep(0.2)
    # Anyone may read the batch's page.
    page = world.ask("GET /explorer/query/<id> HTTP/1.1\nHost: <host>\n\n", id=identifier)
    assert page.status == 200


def test_a_done_batch_is_read_from_the_chain_as_the_documentation_says(world, submitted):
    test_each_reads_that_it_is_done(world, submitted, "documentation, reference")
    word = account_field(world.chain.url, world.registry, VITALIK, world.block, BALANCE)
    assert int.from_bytes(word) == 10**18


def test_each_webhook_that_they_name_is_told(world, submitted):
    named = {submitted[name] for name, client in CLIENTS.items() if "<webhook>" in client.submission}
    assert len(named) == 5
    deadline = time.monotonic() + SECONDS
    while not named <= {event.data("internalId") for event in world.webhooks.received}:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    for event in world.webhooks.received:
        assert (event.type, event.headers["content-type"]) == ("batch_query.done", "application/json")


def test_a_browser_lets_pages_of_others_ask(world):
    answer = world.ask(exchanges.PREFLIGHT)
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert {"api-key", "content-type"} <= set(answer.headers["Access-Control-Allow-Headers"].split(", "))
    for answered in (world.ask(exchanges.CONNECTIONS), world.ask(exchanges.PAGE.question, id="x")):
        assert answered.headers["Access-Control-Allow-Origin"] == "*"


def test_a_page_reads_the_batch_under_a_name_of_its_own(world, submitted):
    told = json.loads(world.ask(exchanges.PAGE.question, id=submitted["page"]).body)["batchQuery"]
    assert told["internalId"] == submitted["page"]
    assert told["queryStatus"] in {"IN_PROGRESS", "DONE"}


def test_a_path_with_a_slash_at_its_end_is_said_to_be_none(world):
    slash = exchanges.EXTENSION.submission.replace("/submit-batch-query", "/submit-batch-query/")
    answer = world.ask(slash, destination=CHAIN, block=1, time=1, token="x", contract="x", webhook="x")
    assert (answer.status, json.loads(answer.body)["code"]) == (404, "not_found")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


def test_an_extension_learns_where_a_chain_can_be_proven(world):
    told = json.loads(world.ask(exchanges.CONNECTIONS).body)["connections"]
    assert [each["destinationChainId"] for each in told if each["originChainId"] == str(CHAIN)] == [str(CHAIN)]


# --- Errors that they expect ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relayer", "present relayer"])
@pytest.mark.parametrize("identifier", ["01J2VM6636VWW45ZRPGEQEZ5E5", "undefined", "a stranger's"])
def test_a_relayer_forgets_what_is_unknown(world, submitted, identifier, name):
    relayer = CLIENTS[name]
    key, known_id = (world.stranger, submitted[name]) if " " in identifier else (world.key, identifier)
    with pytest.raises(GivesUp) as caught:
        relayer.status(world.ask(relayer.question, id=known_id, key=key))
    assert caught.value.args == ("No query found",)


@pytest.mark.parametrize("destination", [CHAIN, "STARKNET"])
@pytest.mark.parametrize("token", ["0x0", "nobody.eth", "not-a-name", "0xD96844c9B21CB6cCf2c236257c7fc703E43BA071"])
@pytest.mark.parametrize("name", ["relayer", "present relayer"])
def test_a_relayer_forgets_what_names_no_account(world, token, destination, name):
    with pytest.raises(GivesUp) as caught:
        CLIENTS[name].identifier(world.submit(CLIENTS[name], token=token, destination=destination))
    assert caught.value.args[0].startswith("Invalid account address or ENS")


@pytest.mark.parametrize("destination", ["SN_SEPOLIA", "STARKNET", "SN_GOERLI", "300"])
def test_each_hears_that_a_destination_is_not_here(world, destination):
    for name, client in CLIENTS.items():
        if "<destination>" in client.submission:
            answer = world.submit(client, destination=destination)
            with pytest.raises(GivesUp):
                client.identifier(answer)
            told = json.loads(answer.body)
            assert answer.status == 400, name
            named = "destination_chain_id" if "present" in name else "destinationChainId"
            assert [fault["path"] for fault in told["details"]] == [f"/{named}"]
            assert isinstance(told["error"], str)


def test_each_hears_that_its_key_is_no_key(world):
    for name, client in CLIENTS.items():
        for answer in (world.submit(client, key="4b086c8b-6eda"), world.ask(client.question, id="x", key="4b086c8b")):
            assert (answer.status, json.loads(answer.body)["code"]) == (401, "unauthorized"), name


def test_an_extension_that_asks_for_what_no_header_has_hears_which(world):
    """No Ethereum header has the property PROPOSER."""
    answer = world.submit(exchanges.EXTENSION_ON_BLOCK)
    with pytest.raises(GivesUp):
        exchanges.EXTENSION_ON_BLOCK.identifier(answer)
    at = [fault["path"].rpartition("/")[2] for fault in json.loads(answer.body)["details"]]
    assert at == ["3", "21"]


def test_a_rejection_is_read_by_each(world):
    for name in ("relayer", "tutorial", "claims", "present relayer", "present tutorial"):
        client = CLIENTS[name]
        identifier = client.identifier(world.submit(client, block=world.chain.head() + 50))
        url = f"{world.service.base_url}/batch-queries/{identifier}/cancel"
        assert requests.post(url, headers={"api-key": world.key}, timeout=SECONDS).status_code == 200
        status = _status_or_error(client, world.ask(client.question, id=identifier))
        assert "cancelled" in status if name == "relayer" else status == "REJECTED"


def _status_or_error(client: Client, answer: Answer) -> str:
    try:
        return client.status(answer)
    except GivesUp as stopped:
        return str(stopped)
