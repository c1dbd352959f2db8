import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from tempfile import NamedTemporaryFile
from threading import Event, Semaphore
from typing import Any

import pytest
from django.core.management import call_command
from eth_abi.abi import encode
from eth_account.signers.local import LocalAccount
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from accounts.models import ApiKey, User
from tests.accounts.over_http import Refused, authenticate, finish, issue, reveal, start
from tests.accounts.wallets import ALICE, BOB, contract_wallet_code, init_code, reverting_code, sign
from tests.chain_fixtures import chain_fixture
from tests.chains.hostile_node import FLOODS, hostile_node
from tests.chains.lying_node import ask, error, is_chain_id, lying_node, recording, result
from tests.factories import at_once, client_of

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

ERC_6492 = "6492" * 16  # ends a signature that is wrapped with the call that creates its wallet
CREATE2_FACTORY = "0x4e59b44847b379578588920cA78FbF26c0B4956C"  # anvil deploys it at genesis


@pytest.fixture
def node(devchain, configure_chains):
    configure_chains((31337, True, devchain.url), destinations=(31337,))
    return devchain


@pytest.fixture
def wallet(node):
    """Return the address of a contract wallet with Alice as owner."""
    creation = {"from": ALICE.address, "data": "0x" + init_code(contract_wallet_code(ALICE.address)).hex()}
    receipt = node.rpc("eth_sendTransactionSync", creation)
    return to_checksum_address(receipt["contractAddress"])


def code_of(message: str, signature: str) -> str:
    with pytest.raises(Refused) as caught:
        finish(message, signature)
    return caught.value.code


@pytest.mark.long
def test_a_contract_wallet_signs_in_by_its_owner_s_signature_of_the_message_alone(wallet):
    other = sign(start(wallet, 31337, ""), ALICE)
    message = start(wallet, 31337, "")
    assert code_of(message, sign(message, BOB)) == "wrong_signature"
    for wrong in ("0x", "0x" + "00" * 65, other):
        assert code_of(start(wallet, 31337, ""), wrong) == "wrong_signature"
    message = start(wallet, 31337, "")
    assert finish(message, sign(message, ALICE)).address == wallet


def test_an_address_without_code_needs_its_own_signature(node):
    message = start(BOB.address, 31337, "")
    assert code_of(message, sign(message, ALICE)) == "wrong_signature"


# The error data lacks the arguments of OffchainLookup(...), Error(string) and Panic(uint256).
MALFORMED = ["0x" + reverting_code(bytes.fromhex(data)).hex() for data in ("556f1830", "08c379a0ff", "4e487b71")]


@pytest.mark.parametrize("answer", ["0x", "0x00", "0x60015f5260015ff3", "0xfe", "0x5b5f56", *MALFORMED])
def test_a_contract_that_answers_nonsense_is_no_wallet(node, answer):
    address = to_checksum_address("0x" + "c0" * 20)
    node.rpc("anvil_setCode", address, answer)
    message = start(address, 31337, "")
    assert code_of(message, sign(message, ALICE)) == "wrong_signature"


# --- One address, several users ---------------------------------------------------------------------------------------


other_chain = chain_fixture(chain_id=5)


@pytest.fixture
def shared(node, other_chain, configure_chains) -> str:
    """Return an address of two contract wallets: Alice's on chain 31337 and Bob's on chain 5."""
    configure_chains((31337, True, node.url), (5, True, other_chain.url), destinations=(31337,))
    address = to_checksum_address("0x" + "5a" * 20)
    for chain, owner in ((node, ALICE), (other_chain, BOB)):
        chain.rpc("anvil_setCode", address, "0x" + contract_wallet_code(owner.address).hex())
    return address


def signed_in(address: str, chain_id: int, signer: LocalAccount) -> User:
    message = start(address, chain_id)
    return finish(message, sign(message, signer))


def shown_to(user: User, path: str, accept: str = "text/html") -> Any:
    return client_of(user.address, user.chain_id).get(path, headers={"accept": accept})


@pytest.mark.long
def test_the_wallets_of_one_address_on_two_chains_are_two_users(shared, settings):
    alice, bob = signed_in(shared, 31337, ALICE), signed_in(shared, 5, BOB)
    assert signed_in(shared, 31337, ALICE) == alice != bob
    refused = start(shared, 31337)
    assert code_of(refused, sign(refused, BOB)) == "wrong_signature"
    for user, chain, others in ((alice, "31337", bob), (bob, "5", alice)):
        told = shown_to(user, "/keys", "application/json").json()
        assert (told["address"], told["chainId"]) == (shared, chain)
        assert [key["id"] for key in told["keys"]] == [user.api_keys.get().pk] != [others.api_keys.get().pk]
        for page in ("/keys", "/dashboard", "/explorer"):
            assert f"{shared}</a> on Chain {chain}" in shown_to(user, page).text
    for operator, may in ((f"31337:{shared.lower()}", [True, False]), (shared, [False, False])):
        settings.OPERATOR_ADDRESSES = [operator]
        for page in ("/operator", "/admin/"):
            assert [shown_to(user, page).status_code == 200 for user in (alice, bob)] == may


def test_a_node_that_lies_signs_in_as_a_contract_wallet_of_its_chain_and_as_nobody_else(settings, configure_chains):
    settings.OPERATOR_ADDRESSES = [ALICE.address]
    node_requests: list[Any] = []

    def lie(body):
        # An ERC-6492 validator answers 0x01. A wallet would answer the magic value of ERC-1271.
        answers = {"eth_chainId": "0x5", "eth_getCode": "0x00", "eth_call": f"0x01{'00' * 31}"}
        if body["method"] == "eth_call" and body["params"][0].get("to"):
            answers["eth_call"] = f"0x1626ba7e{'00' * 28}"
        return result(body, answers.get(body["method"], "0x1"))

    with lying_node(recording(node_requests, lie)) as url:
        configure_chains((31337, True, "http://127.0.0.1:1"), (5, True, url), destinations=(31337,))
        alice = signed_in(ALICE.address, 31337, ALICE)
        message = start(ALICE.address, 5)
        stranger = finish(message, "0x" + "ab" * 65)
        assert (stranger.address, stranger.chain_id) == (ALICE.address, 5)
        assert not set(stranger.api_keys.all()) & set(alice.api_keys.all())
        assert [shown_to(user, "/operator").status_code for user in (alice, stranger)] == [200, 404]
        # ALLOWED_ADDRESSES allows a contract wallet only as chain:address, so the service asks no node.
        settings.ALLOWED_ADDRESSES = [ALICE.address]
        node_requests.clear()
        message = start(ALICE.address, 5)
        with pytest.raises(Refused, match=f"Ask the operator to allow 5:{ALICE.address}") as caught:
            finish(message, "0x" + "ab" * 65)
        assert (caught.value.code, node_requests) == ("address_not_allowed", [])
    assert shown_to(stranger, "/keys").status_code == 302
    assert authenticate(reveal(alice.api_keys.get()))


@pytest.mark.parametrize(
    ("allowed", "own_key", "contract"),
    [([], True, True), ("*", True, True), ("{}", True, False), ("31337:{}", False, True), ("5:{}", False, False)],
)
def test_an_account_with_a_key_and_code_is_two_users_who_are_allowed_each(node, settings, allowed, own_key, contract):
    # EIP-7702 gives code to an account that also has a private key.
    node.rpc("anvil_setCode", ALICE.address, "0x" + contract_wallet_code(BOB.address).hex())
    users = [signed_in(ALICE.address, 31337, signer) for signer in (ALICE, BOB)]
    issued = [reveal(user.api_keys.get()) for user in users]
    assert [user.chain_id for user in users] == [None, 31337]
    settings.ALLOWED_ADDRESSES = [entry.format(ALICE.address) for entry in [allowed] if entry]
    for signer, key, may in ((ALICE, issued[0], own_key), (BOB, issued[1], contract)):
        with nullcontext() if may else pytest.raises(Refused, match="address_not_allowed"):
            signed_in(ALICE.address, 31337, signer)
        assert (authenticate(key) is not None) == may
    node.rpc("anvil_setCode", ALICE.address, "0x")


@pytest.mark.django_db(transaction=True)
def test_two_first_sign_ins_of_a_contract_wallet_at_once_make_one_user_with_one_key(wallet):
    messages = [start(wallet, 31337) for _ in range(2)]
    results = at_once(*[lambda message=message: finish(message, sign(message, ALICE)) for message in messages])
    user = User.objects.get()
    assert results == [user] * 2
    assert user.api_keys.count() == 1


def test_dumped_rows_refer_to_the_user_of_their_chain(wallet):
    for chain_id in (None, 5, 31337):
        User.objects.for_address(wallet, chain_id)
    with NamedTemporaryFile(suffix=".json") as file:
        issue(User.objects.get(chain_id=5), "key")
        call_command("dumpdata", "accounts.apikey", natural_foreign=True, output=file.name)
        ApiKey.objects.all().delete()
        call_command("loaddata", file.name, verbosity=0)
    assert ApiKey.objects.get().user.chain_id == 5


# --- Before its deployment --------------------------------------------------------------------------------------------


def counterfactual(owner: str) -> tuple[str, bytes]:
    """Return the future address of a contract wallet (EIP-1014), and the factory call that creates the wallet."""
    salt, creation = bytes(32), init_code(contract_wallet_code(owner))
    digest = keccak(b"\xff" + bytes.fromhex(CREATE2_FACTORY[2:]) + salt + keccak(creation))
    return to_checksum_address(digest[12:]), salt + creation


def wrapped(signature: str, factory_call: bytes) -> str:
    """Return the signature, wrapped with the call that creates the wallet (ERC-6492)."""
    parts = encode(["address", "bytes", "bytes"], [CREATE2_FACTORY, factory_call, bytes.fromhex(signature[2:])])
    return f"0x{parts.hex()}{ERC_6492}"


def test_a_deployed_wallet_is_asked_without_the_call_beside_its_signature(node, wallet):
    message = start(wallet, 31337)
    assert finish(message, wrapped(sign(message, ALICE), b"")).address == wallet
    # It accepts everything once somebody has called it with one byte.
    changed_by_a_call = to_checksum_address("0x" + "5a" * 20)
    code = "3660051160125760005460195760006000fd5b6001600055005b631626ba7e60e01b60005260206000f3"
    node.rpc("anvil_setCode", changed_by_a_call, "0x" + code)
    parts = encode(["address", "bytes", "bytes"], [changed_by_a_call, b"\1", b"signature"])
    message = start(changed_by_a_call, 31337)
    assert code_of(message, f"0x{parts.hex()}{ERC_6492}") == "wrong_signature"
    assert code_of(start(wallet, 31337), f"0x{ERC_6492}") == "wrong_signature"


def test_a_contract_wallet_signs_in_before_its_deployment_and_nobody_else_does(node):
    address, factory_call = counterfactual(ALICE.address)
    # Case 1: Bob signs for Alice's wallet. Case 2: the factory call creates another address than Bob's.
    for account, owner in ((address, BOB), (BOB.address, ALICE)):
        message = start(account, 31337, "")
        assert code_of(message, wrapped(sign(message, owner), factory_call)) == "wrong_signature"
    message = start(address, 31337, "")
    assert finish(message, wrapped(sign(message, ALICE), factory_call)).address == address
    assert node.rpc("eth_getCode", address, "latest") == "0x"


def test_a_contract_does_not_make_the_service_call_a_url(node):
    address = to_checksum_address("0x" + "cc" * 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/{{sender}}/{{data}}"
        lookup = keccak(text="OffchainLookup(address,string[],bytes,bytes4,bytes)")[:4] + encode(
            ["address", "string[]", "bytes", "bytes4", "bytes"], [address, [url], b"", b"\x01\x02\x03\x04", b""]
        )
        node.rpc("anvil_setCode", address, "0x" + reverting_code(lookup).hex())
        message = start(address, 31337, "")
        assert code_of(message, sign(message, ALICE)) == "wrong_signature"
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_node_of_another_chain_is_not_asked(devchain, configure_chains):
    configure_chains((5, True, devchain.url), destinations=(5,))
    message = start(BOB.address, 5, "")
    assert code_of(message, sign(message, ALICE)) == "node_unavailable"


BAD_NODES = {
    "dead": lambda: nullcontext("http://127.0.0.1:1"),
    "used up": lambda: lying_node(lambda body: error(body, -32005, "limit exceeded")),
    "flooding": lambda: hostile_node(FLOODS["endless reply"]),
}


@pytest.mark.parametrize("bad_node", BAD_NODES.values(), ids=BAD_NODES)
def test_a_bad_node_makes_no_signature_wrong_and_a_good_one_is_asked_after_it(
    bad_node, devchain, wallet, configure_chains
):
    with bad_node() as url:
        configure_chains((31337, True, url), destinations=(31337,))
        message = start(wallet, 31337, "")
        assert code_of(message, sign(message, ALICE)) == "node_unavailable"
        configure_chains((31337, True, url, devchain.url), destinations=(31337,))
        message = start(wallet, 31337, "")
        assert finish(message, sign(message, ALICE)).address == wallet


@pytest.mark.django_db(transaction=True)
def test_of_many_checks_at_once_two_are_made_and_the_others_may_be_tried_again(devchain, wallet, configure_chains):
    let_go, started = Event(), Semaphore(0)

    def slow(body):
        started.release()
        assert let_go.wait(20)
        return ask(devchain.url, body)

    with lying_node(slow) as url:
        configure_chains((31337, True, url), destinations=(31337,))
        # All messages are made before, because the two checks wait for seconds only.
        messages, own = [start(wallet, 31337, "") for _ in range(3)], start(BOB.address, 31337, "")
        with ThreadPoolExecutor() as people:
            checked = [people.submit(finish, message, sign(message, ALICE)) for message in messages[:2]]
            # The limit is two checks at a time, so both must have started before the third is refused.
            assert all(started.acquire(timeout=20) for _ in checked)
            with pytest.raises(Refused) as caught:
                finish(messages[2], sign(messages[2], ALICE))
            assert finish(own, sign(own, BOB)).address == BOB.address
            let_go.set()
            addresses = [person.result().address for person in checked]
        assert (caught.value.code, caught.value.status) == ("too_many_checks", 503)
        assert caught.value.retry_after
        assert [*addresses, finish(messages[2], sign(messages[2], ALICE)).address] == [wallet] * 3


def test_a_refusal_names_no_node(configure_chains):
    configure_chains((31337, True, "http://127.0.0.1:1/secret-provider-key"), destinations=(31337,))
    message = start(BOB.address, 31337, "")
    with pytest.raises(Refused) as caught:
        finish(message, sign(message, ALICE))
    assert caught.value.code == "node_unavailable"
    assert not re.search("secret|127", caught.value.sentence)


def test_a_node_that_fails_while_another_refuses_does_not_make_a_signature_wrong(devchain, wallet, configure_chains):
    def refusing(body):
        return ask(devchain.url, body) if is_chain_id(body) else error(body, -32000, "no such method")

    with lying_node(refusing) as url:
        configure_chains((31337, True, url, "http://127.0.0.1:1"), destinations=(31337,))
        message = start(wallet, 31337, "")
        assert code_of(message, sign(message, ALICE)) == "node_unavailable"
