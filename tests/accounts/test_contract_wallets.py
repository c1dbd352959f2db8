import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event, Semaphore

import pytest
from eth_abi.abi import encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from siwe import EIP6492_MAGIC_SUFFIX  # type: ignore[import-untyped]

from tests.accounts.over_http import Refused, finish, start
from tests.accounts.wallets import ALICE, BOB, contract_wallet_code, init_code, reverting_code, sign
from tests.chains.hostile_node import FLOODS, hostile_node
from tests.chains.lying_node import ask, error, is_chain_id, lying_node

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

CREATE2_FACTORY = "0x4e59b44847b379578588920cA78FbF26c0B4956C"  # anvil has it from the start


@pytest.fixture
def node(devchain, configure_chains):
    configure_chains((31337, True, devchain.url), destinations=(31337,))
    return devchain


@pytest.fixture
def wallet(node):
    """Return the address of a contract wallet that Alice owns."""
    creation = {"from": ALICE.address, "data": "0x" + init_code(contract_wallet_code(ALICE.address)).hex()}
    receipt = node.rpc("eth_sendTransactionSync", creation)
    return to_checksum_address(receipt["contractAddress"])


def code_of(message: str, signature: str) -> str:
    with pytest.raises(Refused) as caught:
        finish(message, signature)
    return caught.value.code


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


# OffchainLookup(...), Error(string) and Panic(uint256), each without its arguments.
MALFORMED = ["0x" + reverting_code(bytes.fromhex(data)).hex() for data in ("556f1830", "08c379a0ff", "4e487b71")]


@pytest.mark.parametrize("answer", ["0x", "0x00", "0x60015f5260015ff3", "0xfe", "0x5b5f56", *MALFORMED])
def test_a_contract_that_answers_nonsense_is_no_wallet(node, answer):
    address = to_checksum_address("0x" + "c0" * 20)
    node.rpc("anvil_setCode", address, answer)
    message = start(address, 31337, "")
    assert code_of(message, sign(message, ALICE)) == "wrong_signature"


def counterfactual(owner: str) -> tuple[str, bytes]:
    """Return the address of a contract wallet before its creation (EIP-1014), and the factory call that creates it."""
    salt, creation = bytes(32), init_code(contract_wallet_code(owner))
    digest = keccak(b"\xff" + bytes.fromhex(CREATE2_FACTORY[2:]) + salt + keccak(creation))
    return to_checksum_address(digest[12:]), salt + creation


def wrapped(signature: str, factory_call: bytes) -> str:
    """Return the signature with the call that creates its wallet (ERC-6492)."""
    parts = encode(["address", "bytes", "bytes"], [CREATE2_FACTORY, factory_call, bytes.fromhex(signature[2:])])
    return f"0x{parts.hex()}{EIP6492_MAGIC_SUFFIX}"


def test_a_contract_wallet_signs_in_before_its_deployment_and_nobody_else_does(node):
    address, factory_call = counterfactual(ALICE.address)
    # The factory would not create BOB's address.
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
    let_go, asked = Event(), Semaphore(0)

    def slow(body):
        asked.release()
        assert let_go.wait(20)
        return ask(devchain.url, body)

    with lying_node(slow) as url:
        configure_chains((31337, True, url), destinations=(31337,))
        messages = [start(wallet, 31337, "") for _ in range(3)]
        with ThreadPoolExecutor() as people:
            checked = [people.submit(finish, message, sign(message, ALICE)) for message in messages[:2]]
            # A check is refused only after both have been taken up.
            assert all(asked.acquire(timeout=20) for _ in checked)
            with pytest.raises(Refused) as caught:
                finish(messages[2], sign(messages[2], ALICE))
            own = start(BOB.address, 31337, "")
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
