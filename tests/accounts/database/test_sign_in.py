import html
import json
import re
import socket
import time
from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from accounts.models import SignInNonce, ThrottleCount, User
from tests.accounts.over_http import Refused, finish, start
from tests.accounts.wallets import ALICE, BOB, sign
from tests.factories import at_once

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

CLIENT = "192.0.2.1"
STATUSES = {"address_not_allowed": 403, "node_unavailable": 503, "unknown_chain": 400}
STATUSES |= dict.fromkeys(("malformed_address", "malformed_message", "malformed_signature"), 400)
MAX_MESSAGE_CHARS, MAX_SIGNATURE_CHARS = 1024, 16_384


@pytest.fixture(autouse=True)
def _base_url(settings):
    settings.BASE_URL = "https://prover.example:8443"


@pytest.fixture
def message():
    return start(ALICE.address, 31337, CLIENT)


def code_of(function, *args) -> str:
    with pytest.raises(Refused) as caught:
        function(*args)
    assert caught.value.sentence.endswith(".")
    assert caught.value.status == STATUSES.get(caught.value.code, 401)
    return caught.value.code


def test_a_message_says_what_it_must(message):
    lines = message.split("\n")
    assert lines[:2] == ["https://prover.example:8443 wants you to sign in with your Ethereum account:", ALICE.address]
    assert lines[3].startswith("Sign in to Batch Query Service.")
    assert lines[5:8] == ["URI: https://prover.example:8443", "Version: 1", "Chain ID: 31337"]
    nonce = SignInNonce.objects.get()
    assert lines[8] == f"Nonce: {nonce.nonce}"
    assert lines[9].startswith("Issued At: ")
    assert lines[10].startswith("Expiration Time: ")
    assert len(lines) == 11
    assert len(message) < MAX_MESSAGE_CHARS
    assert nonce.expires_at - nonce.created_at == timedelta(seconds=600)


def test_a_signed_message_signs_in_while_the_node_is_down(message):
    user = finish(message, sign(message, ALICE))
    assert user.address == ALICE.address
    assert user.last_sign_in is not None
    assert not user.has_usable_password()
    assert user.api_keys.get().name == "default"


# Trezor, MyEtherWallet, MyCrypto and Ledger (recovery id 0 or 1) show signatures in these forms. Users copy quotes and
# line breaks along with them.
@pytest.mark.parametrize(
    "shown",
    [
        lambda signature: signature[2:],
        lambda signature: "0X" + signature[2:].upper(),
        lambda signature: f' "{signature}"\r\n',
        lambda signature: f"\u201c{signature[2:]}\u201d\ufeff",
        lambda signature: "\r\n".join((signature[:66], signature[66:130], signature[130:])),
        lambda signature: json.dumps({"msg": '"sig":"', "sig": signature, "version": "2"}, indent=2),
        lambda signature: json.dumps({"sig": signature[2:]}),
        lambda signature: json.dumps({"signature": signature, "message": "x" * MAX_MESSAGE_CHARS}),
        lambda signature: f"{signature[:-2]}{int(signature[-2:], 16) - 27:02x}",
    ],
    ids=["bare", "0X", "quoted", "typographic", "lines", "MyEtherWallet", "bare in JSON", "signature", "0 or 1"],
)  # fmt: skip
def test_a_signature_is_taken_as_wallets_show_it(message, shown):
    assert finish(message, shown(sign(message, ALICE))).address == ALICE.address


def test_a_message_whose_signature_nobody_could_check_may_be_answered_again_a_few_times(message):
    assert code_of(finish, message, sign(message, BOB)) == "node_unavailable"
    assert finish(message, sign(message, ALICE)).address == ALICE.address
    assert code_of(finish, message, sign(message, ALICE)) == "unknown_nonce"
    other = start(ALICE.address, 31337, CLIENT)
    for code in ["node_unavailable"] * 5 + ["too_many_sign_ins"]:
        with pytest.raises(Refused) as caught:
            finish(other, sign(message, ALICE))
        assert caught.value.code == code
    assert caught.value.retry_after


@pytest.mark.parametrize(("signature", "status"), [("0x12 and more", 400), ("0x12", 503)])
def test_a_refused_signature_keeps_its_form_while_its_message_is_valid(message, signature, status):
    answer = Client().post("/sign-in/verify", {"message": message.replace("\n", "\r\n"), "signature": signature})
    assert answer.status_code == status
    assert f">\n{message}</textarea>" in html.unescape(answer.text)
    assert f">{signature}</textarea>" in answer.text
    assert re.search('role="alert">The signature .*within 10 minutes', answer.text, re.DOTALL)
    for wrong in (message.replace("31337", "5"), f"{message} "):
        answer = Client().post("/sign-in/verify", {"message": wrong, "signature": "no hex"})
        assert 'id="chain"' in answer.text
    finish(message, sign(message, ALICE))
    answer = Client().post("/sign-in/verify", {"message": message, "signature": signature})
    assert 'id="chain"' in answer.text


@pytest.mark.parametrize(
    ("replaced", "instead", "code"),
    [
        ("https://prover.example:8443 wants", "https://evil.example wants", "malformed_message"),
        ("https://prover.example:8443 wants", "prover.example:8443 wants", "malformed_message"),
        ("URI: https://prover.example:8443", "URI: https://evil.example", "malformed_message"),
        ("Version: 1", "Version: 2", "malformed_message"),
        ("Chain ID: 31337", "Chain ID: 1", "malformed_message"),
        ("Chain ID: 31337", "Chain ID: 031337", "malformed_message"),
        ("Expiration Time: 2", "Expiration Time: 1", "malformed_message"),
        ("Issued At: ", "Not issued At: ", "malformed_message"),
        ("Nonce: ", "Nonce: 0", "unknown_nonce"),
        ("Nonce: ", "Nonce: !", "malformed_message"),
        ("\n", "\r\n", "malformed_message"),
        ("Sign in to", "Sign in to \u00e9", "malformed_message"),
        ("Sign in to", "Sign in to \ud800", "malformed_message"),
        ("Sign in to", "Sign in to" + " x" * 500, "malformed_message"),
        ("Sign in to", "Give everything to", "malformed_message"),
        ("Expiration Time: 20", "Expiration Time: 21", "malformed_message"),
        (ALICE.address, BOB.address, "unknown_nonce"),
        (ALICE.address, ALICE.address[:-1] + "7", "unknown_nonce"),
        (ALICE.address, ALICE.address.swapcase().replace("X", "x"), "unknown_nonce"),
    ],
)
def test_a_message_that_says_something_else_is_refused_although_it_is_signed(message, replaced, instead, code):
    changed = message.replace(replaced, instead)
    assert changed != message
    signature = "0x" if "\ud800" in changed else sign(changed, ALICE)
    assert code_of(finish, changed, signature) == code
    assert not User.objects.exists()


@pytest.mark.parametrize("url", ["https://evil.example", "https://prover.example", "http://prover.example:8443"])
def test_a_message_is_for_the_address_of_the_service(message, settings, url):
    settings.BASE_URL = url
    assert code_of(finish, message, sign(message, ALICE)) == "wrong_domain"
    assert not User.objects.exists()


def test_a_changed_message_costs_no_more_than_an_issued_one(message):
    def seconds(text: str) -> float:
        SignInNonce.objects.update(consumed_at=None)
        began = time.thread_time()
        code_of(finish, text, sign(text, BOB))
        return time.thread_time() - began

    changed = message.replace("prover.example:8443\n", f"{'a' * 600}\n")
    assert len(changed) > 900
    assert min(seconds(changed) for _ in range(3)) < 2 * min(seconds(message) for _ in range(3))


@pytest.mark.parametrize(
    "more",
    ["\nResources:\n- https://evil.example", "\nNot Before: 2020-01-01T00:00:00Z", "\nRequest ID: 5"],
    ids=["resources", "not before", "request"],
)
def test_a_message_that_says_more_is_refused_although_it_is_signed(message, more):
    changed = message + more
    assert code_of(finish, changed, sign(changed, ALICE)) == "malformed_message"
    assert not User.objects.exists()


def test_a_changed_message_asks_no_node(message, configure_chains):
    with socket.create_server(("127.0.0.1", 0)) as node:
        configure_chains((31337, True, f"http://127.0.0.1:{node.getsockname()[1]}"), destinations=(31337,))
        changed = message.replace("Sign in to", "Give everything to")
        assert code_of(finish, changed, sign(changed, BOB)) == "malformed_message"
        node.setblocking(False)
        with pytest.raises(BlockingIOError):
            node.accept()


def test_a_nonce_in_the_statement_does_not_stand_in_for_the_message_s_own(message):
    spent = message
    finish(spent, sign(spent, ALICE))
    fresh = start(ALICE.address, 31337, CLIENT)
    nonce = next(line for line in fresh.split("\n") if line.startswith("Nonce: "))
    statement = next(line for line in spent.split("\n") if line.startswith("Sign in to"))
    smuggled = spent.replace(statement, nonce)
    assert code_of(finish, smuggled, sign(smuggled, ALICE)) == "malformed_message"


def test_the_nonce_of_another_address_is_refused(message):
    nonce = SignInNonce.objects.get().nonce
    other = start(BOB.address, 31337, CLIENT)
    stolen = other.replace(SignInNonce.objects.get(address=BOB.address).nonce, nonce)
    assert code_of(finish, stolen, sign(stolen, BOB)) == "unknown_nonce"
    assert finish(message, sign(message, ALICE)).address == ALICE.address


def test_an_expired_nonce_is_refused_whatever_the_message_says(message):
    SignInNonce.objects.update(expires_at=timezone.now())
    assert code_of(finish, message, sign(message, ALICE)) == "unknown_nonce"


@pytest.mark.parametrize("text", ["", "hello", "\x00", "\n" * 5000, "Nonce: x" * 1000], ids=range(5))
def test_text_that_is_no_message_is_refused(text):
    assert code_of(finish, text, "0x") == "malformed_message"


@pytest.mark.parametrize(
    "signature", ["", "hello", "0x0", "0xzz", '{"sig": ""}', "0x" + "00" * MAX_SIGNATURE_CHARS, "\ud800"], ids=range(7)
)
def test_text_that_is_no_signature_is_refused_and_does_not_use_the_message_up(message, signature):
    assert code_of(finish, message, signature) == "malformed_signature"
    assert finish(message, sign(message, ALICE))


@pytest.mark.parametrize(
    "address",
    ["", "0x", "alice.eth", ALICE.address[2:], ALICE.address + "0", ALICE.address[:-1] + "\n", ALICE.address[:-1] + "7",
     "0x" + "\u0660" * 40, "\ud800", ALICE.address.replace("0xf", "0xF")],
    ids=range(10),
)  # fmt: skip
def test_no_message_is_made_for_what_is_no_address(address):
    assert code_of(start, address, 31337, CLIENT) == "malformed_address"


def test_no_message_is_made_for_a_chain_that_is_not_configured():
    assert code_of(start, ALICE.address, 1, CLIENT) == "unknown_chain"


# --- Allowed users ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "destination_is_test", "may"),
    [
        ([], True, True),
        ([], False, False),
        (["*"], False, True),
        ([ALICE.address], False, True),
        ([ALICE.address.lower()], True, True),
        ([BOB.address], True, False),
        (["nonsense"], True, False),
    ],
)
def test_sign_in_admits_only_addresses_that_the_settings_allow(
    settings, configure_chains, allowed, destination_is_test, may
):
    settings.ALLOWED_ADDRESSES = allowed
    configure_chains((1, destination_is_test, "http://127.0.0.1:1"), destinations=(1,))
    if may:
        message = start(ALICE.address, 1, CLIENT)
        assert finish(message, sign(message, ALICE)).address == ALICE.address
    else:
        assert code_of(start, ALICE.address, 1, CLIENT) == "address_not_allowed"
        assert not SignInNonce.objects.exists()


def test_a_source_chain_that_is_no_test_network_closes_nothing(configure_chains):
    configure_chains((1, False, "http://127.0.0.1:1"), (5, True, "http://127.0.0.1:1"), destinations=(5,))
    assert start(ALICE.address, 1, CLIENT)


def test_whoever_was_struck_from_the_list_meanwhile_is_refused(settings, message):
    settings.ALLOWED_ADDRESSES = [BOB.address]
    assert code_of(finish, message, sign(message, ALICE)) == "address_not_allowed"
    assert not User.objects.exists()


def test_a_session_ends_with_the_next_request_after_its_user_is_struck_from_the_list(settings, alice_client):
    key = keys_of(alice_client)[0]["id"]
    posts = ("/dashboard/keys", f"/dashboard/keys/{key}/reveal", "/dashboard/webhooks/reveal", "/new-batch")
    settings.ALLOWED_ADDRESSES = [BOB.address]
    for path in ("/dashboard", "/keys", "/dashboard/log", "/facts?block=1"):
        assert alice_client.get(path, headers={"accept": "application/json"}).status_code == 401, path
    assert alice_client.get("/facts.csv?block=1").headers["Location"].startswith("/sign-in?")
    for path in posts:
        assert alice_client.post(path, headers={"accept": "application/json"}).status_code == 401, path
    settings.OPERATOR_ADDRESSES = [ALICE.address]
    assert keys_of(alice_client)


def keys_of(client: Client) -> list[dict[str, str]]:
    return list(client.get("/keys", headers={"accept": "application/json"}).json()["keys"])


# --- Throttle ---------------------------------------------------------------------------------------------------------


def test_a_client_address_starts_so_many_sign_ins_a_minute_whether_finished_or_not(settings):
    settings.MAX_SIGN_INS_PER_MINUTE = 2
    message = start(ALICE.address, 31337, CLIENT)
    finish(message, sign(message, ALICE))
    start(BOB.address, 31337, CLIENT)
    with pytest.raises(Refused) as caught:
        start(ALICE.address, 31337, CLIENT)
    assert (caught.value.code, caught.value.status) == ("too_many_sign_ins", 429)
    assert caught.value.retry_after is not None
    assert 1 <= caught.value.retry_after <= 60
    assert start(ALICE.address, 31337, "192.0.2.2")

    ThrottleCount.objects.update(began_at=timezone.now() - timedelta(seconds=61))
    assert start(ALICE.address, 31337, CLIENT)


def test_expired_nonces_are_deleted_on_the_way():
    start(ALICE.address, 31337, CLIENT)
    SignInNonce.objects.update(expires_at=timezone.now())
    start(ALICE.address, 31337, CLIENT)
    assert SignInNonce.objects.count() == 1


def test_messages_from_the_future_do_not_stay_valid(message):
    SignInNonce.objects.update(created_at=timezone.now() + timedelta(hours=25))
    start(ALICE.address, 31337, CLIENT)
    assert code_of(finish, message, sign(message, ALICE)) == "unknown_nonce"


# --- Concurrent sign-ins ----------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_of_several_answers_to_one_message_at_once_one_signs_in():
    message = start(ALICE.address, 31337, CLIENT)
    signature = sign(message, ALICE)
    results = at_once(*[lambda: finish(message, signature)] * 4)
    assert sorted(getattr(result, "code", type(result).__name__) for result in results) == [
        "User", "unknown_nonce", "unknown_nonce", "unknown_nonce",
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_two_first_sign_ins_at_once_make_one_user_with_one_key():
    messages = [start(ALICE.address, 31337, CLIENT) for _ in range(3)]
    signed = [(message, sign(message, ALICE)) for message in messages]
    results = at_once(*[lambda pair=pair: finish(*pair) for pair in signed])
    user = User.objects.get()
    assert results == [user] * 3
    assert user.api_keys.count() == 1


# --- Length of a session ----------------------------------------------------------------------------------------------


def test_a_session_ends_after_idle_hours_and_is_written_only_once_in_a_while(settings, alice_client):
    settings.SESSION_IDLE_HOURS = 48
    now = timezone.now()

    def ends_after_a_request() -> timedelta:
        assert alice_client.get("/dashboard").status_code == 200
        return Session.objects.get().expire_date - now

    assert ends_after_a_request() > timedelta(hours=47)
    # A session has 48 hours without a use. It is extended only if less than 46 of them are left.
    for idle, until in ((timedelta(hours=47), 47), (timedelta(hours=45), 48)):
        Session.objects.update(expire_date=now + idle)
        assert round(ends_after_a_request() / timedelta(hours=1)) == until
    settings.SESSION_IDLE_HOURS = 15 * 24
    # A session ends 14 days after the sign-in at the latest, even if SESSION_IDLE_HOURS is longer.
    assert round(ends_after_a_request() / timedelta(days=1)) == 14
    Session.objects.update(expire_date=now)
    assert alice_client.get("/dashboard").status_code == 302


def test_a_session_without_an_end_of_its_own_is_not_prolonged(alice_client):
    session = alice_client.session
    del session["_session_expiry"]
    session.save()
    soon = timezone.now() + timedelta(hours=1)
    Session.objects.update(expire_date=soon)
    assert alice_client.get("/dashboard").status_code == 200
    assert Session.objects.get().expire_date == soon
