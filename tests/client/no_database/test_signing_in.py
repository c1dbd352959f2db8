"""The client signs only messages that sign its own address in to this service, whatever message the service sends."""

import pytest

from batch_query_client import UnsafeSignIn
from batch_query_client.operations import Access
from batch_query_client.signing_in import check_message, new_key
from devnet.devchain import ACCOUNTS
from tests.client.world import PATIENCE, World, answer

pytestmark = pytest.mark.outside

ALICE, BOB = (address for address, _ in ACCOUNTS[:2])
URL = "https://service.example"
MESSAGE = f"""\
https://service.example wants you to sign in with your Ethereum account:
{ALICE}

Sign in to Batch Query Service. This costs nothing and sends no transaction.

URI: https://service.example
Version: 1
Chain ID: 1
Nonce: abcdefgh12345678
Issued At: 2026-01-01T00:00:00Z"""

UNSAFE = {
    "nothing": "",
    "a permit": "0x1901" + "ab" * 64,
    "another service": MESSAGE.replace("service.example", "bank.example"),
    "another service's domain": MESSAGE.replace("https://service.example wants", "https://bank.example wants"),
    "another service's URI": MESSAGE.replace("URI: https://service.example", "URI: https://bank.example"),
    "a longer domain": MESSAGE.replace("https://service.example wants", "https://service.example.evil wants"),
    "another port": MESSAGE.replace("service.example", "service.example:8443"),
    "http": MESSAGE.replace("URI: https", "URI: http"),
    "a user in front": MESSAGE.replace("https://service.example wants", "https://service.example@evil wants"),
    "another address": MESSAGE.replace(ALICE, BOB),
    "words in front": "I owe you.\n" + MESSAGE,
    "another URI first": MESSAGE.replace("\n\nURI", "\n\nURI: https://bank.example\nURI", 1),
}


def test_a_sign_in_to_the_service_is_one():
    check_message(MESSAGE, URL, ALICE.lower())
    check_message(MESSAGE.replace("https://service.example wants", "service.example wants"), URL, ALICE)


@pytest.mark.parametrize("message", UNSAFE.values(), ids=UNSAFE)
def test_nothing_else_is_signed(message):
    signed: list[str] = []

    def sign(text: str) -> str:
        signed.append(text)
        return "0x12"

    world = World(answer(200, set_cookie="csrftoken=a; Path=/"), answer(200, {"message": message}))
    with pytest.raises(UnsafeSignIn, match=r"(It was not signed|The client did not sign it)"):
        world.run(new_key(Access(URL, "", PATIENCE), address=ALICE, sign=sign, chain_id=1, name="x"))
    assert signed == []
    assert len(world.requests) == 2


@pytest.mark.parametrize("cookie", ["csrftoken", "bqs-8000-csrftoken", "__Host-csrftoken"])
def test_the_newest_cookies_are_sent_and_the_key_is_shown_nowhere(cookie):
    key = "bqs_" + "k" * 43
    world = World(
        answer(200, set_cookie=f"{cookie}=one; Path=/; SameSite=Lax"),
        answer(200, {"message": MESSAGE}),
        answer(200, {"address": ALICE}, set_cookie=f"{cookie}=two; Path=/"),
        answer(409, {"error": "Taken.", "code": "name_taken"}),
        answer(201, {"id": 7}),
        answer(200, {"apiKey": key}),
    )
    steps = new_key(Access(URL, "another", PATIENCE), address=ALICE, sign=lambda _: "0x12", chain_id=1, name="x")
    assert world.run(steps) == key
    tokens = [value for request in world.requests for name, value in request.headers if name == "x-csrftoken"]
    assert tokens == ["one", "one", "two", "two", "two"]
    assert ("cookie", f"{cookie}=two") in world.requests[-1].headers
    assert not [request for request in world.requests if "another" in str(request.headers)]
    assert world.requests[-1].url.endswith("/dashboard/keys/7/reveal")
    assert not any("csrf" in repr(request) for request in world.requests)
