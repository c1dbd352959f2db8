import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import _hash_eip191_message
from eth_account.signers.local import LocalAccount
from eth_utils.crypto import keccak

from chains.attestation import (
    Answer,
    Attestation,
    AttestationRequest,
    Domain,
    Refusal,
    ask,
    attester_set_message,
    recover,
    sign,
)
from chains.chains_file import Attester
from chains.encoding import hex_data
from devnet.devchain import ACCOUNTS
from tests.chains.hostile_node import FLOODS, dripped_reply, hostile_node
from tests.chains.lying_node import Raw, lying_node, recording

ALICE, BOB = (Account.from_key(key) for _, key in ACCOUNTS[:2])
DOMAIN = Domain(10, "0x5FbDB2315678afecb367f032d93F642f64180aa3")
HASH = keccak(b"the block")
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


# --- Signatures -------------------------------------------------------------------------------------------------------


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def separator(domain: Domain) -> bytes:
    kind = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
    name, version = keccak(b"Batch Query Service Attestation"), keccak(b"1")
    contract = word(int(domain.contract, 16))
    return keccak(keccak(kind) + name + version + word(domain.destination_chain_id) + contract)


def test_block_hashes_are_signed_as_the_contract_hashes_them():
    kind = keccak(b"BlockHash(uint256 sourceChainId,uint256 blockNumber,bytes32 blockHash)")
    expected = keccak(b"\x19\x01" + separator(DOMAIN) + keccak(kind + word(1) + word(123) + HASH))
    assert _hash_eip191_message(AttestationRequest(DOMAIN, 1, 123).message(HASH)) == expected


def test_attester_sets_are_signed_as_the_contract_hashes_them():
    kind = keccak(b"AttesterSet(address[] attesters,uint256 threshold,uint256 nonce)")
    members = keccak(word(int(ALICE.address, 16)) + word(int(BOB.address, 16)))
    expected = keccak(b"\x19\x01" + separator(DOMAIN) + keccak(kind + members + word(2) + word(7)))
    assert _hash_eip191_message(attester_set_message(DOMAIN, [ALICE.address, BOB.address], 2, 7)) == expected


def test_a_signature_recovers_to_its_signer():
    message = AttestationRequest(DOMAIN, 1, 123).message(HASH)
    signature = sign(ALICE, message)
    assert len(signature) == 65
    assert recover(message, signature) == ALICE.address
    for other in (
        AttestationRequest(DOMAIN, 2, 123).message(HASH),
        AttestationRequest(DOMAIN, 1, 124).message(HASH),
        AttestationRequest(DOMAIN, 1, 123).message(keccak(HASH)),
        AttestationRequest(Domain(11, DOMAIN.contract), 1, 123).message(HASH),
        AttestationRequest(Domain(10, BOB.address), 1, 123).message(HASH),
    ):
        assert recover(other, signature) != ALICE.address


def test_signatures_that_the_contract_would_refuse_recover_no_address():
    message = AttestationRequest(DOMAIN, 1, 123).message(HASH)
    signature = sign(ALICE, message)
    r, s, v = signature[:32], int.from_bytes(signature[32:64], "big"), signature[64]
    other_s = r + word(ORDER - s) + bytes([55 - v])
    for bad in (
        b"",
        signature[:64],
        signature + b"\0",
        signature[:64] + bytes([v - 27]),
        other_s,
        bytes(64) + b"\x1b",
        word(ORDER) + signature[32:],
        b"\xff" * 64 + b"\x1b",
    ):
        with pytest.raises(ValueError, match="signature"):
            recover(message, bad)


# --- Requests ---------------------------------------------------------------------------------------------------------


def answer(
    *, signer: LocalAccount = ALICE, domain: Domain = DOMAIN, chain_id: int = 1, number: int = 123
) -> dict[str, Any]:
    signature = sign(signer, AttestationRequest(domain, chain_id, number).message(HASH))
    return {"attester": ALICE.address, "blockHash": hex_data(HASH), "signature": hex_data(signature)}


def refusal(code: str, sentence: object) -> Raw:
    return Raw(json.dumps({"error": sentence, "code": code}).encode(), status=409)


def attester(url: str, account: LocalAccount = ALICE) -> Attester:
    return Attester(address=account.address, url=url)


def only_answer_of(reply: Any, **options: float) -> Answer:
    with lying_node(lambda _: reply) as url:
        (only,) = ask([attester(url)], DOMAIN, 1, 123, **options)
    return only


def test_an_attestation_is_verified():
    attester_requests: list[Any] = []
    with lying_node(recording(attester_requests, lambda _: answer())) as url:
        (attestation,) = ask([attester(f"{url}/secret/")], DOMAIN, 1, 123)
    assert isinstance(attestation, Attestation)
    assert (attestation.attester, attestation.block_hash) == (ALICE.address, HASH)
    assert recover(AttestationRequest(DOMAIN, 1, 123).message(HASH), attestation.signature) == ALICE.address
    assert attester_requests == [
        {"sourceChainId": "1", "blockNumber": "123", "destinationChainId": "10", "verifyingContract": DOMAIN.contract}
    ]


@pytest.mark.parametrize(
    "reply",
    [
        answer(signer=BOB),
        answer(signer=BOB) | {"attester": BOB.address},
        answer(number=124),
        answer(chain_id=2),
        answer(domain=Domain(11, DOMAIN.contract)),
        answer(domain=Domain(10, BOB.address)),
        answer() | {"blockHash": "0x" + "11" * 32},
        answer() | {"signature": "0x" + "00" * 65},
        answer() | {"signature": "0x"},
    ],
)
def test_a_signature_of_another_or_over_something_else_is_refused(reply):
    told = only_answer_of(reply)
    assert isinstance(told, Refusal)
    assert told.code == "bad_signature"
    assert told.host in told.sentence


@pytest.mark.parametrize(
    "reply",
    [
        Raw(b"<html>"),
        Raw(b""),
        Raw(b"[" * 10_000),
        [],
        {},
        answer() | {"blockHash": "0x11"},
        answer() | {"blockHash": 17},
        answer() | {"signature": None},
    ],
)
def test_nonsense_is_refused(reply):
    told = only_answer_of(reply)
    assert isinstance(told, Refusal)
    assert told.code == "bad_answer"


@pytest.mark.long
def test_a_drip_is_not_waited_for():
    # Each other drip is stopped in tests/chains/no_database/test_bounded_http.py.
    with hostile_node(dripped_reply, chain_id=None) as url, lying_node(lambda _: answer(signer=BOB)) as honest:
        began = time.monotonic()
        told, other = ask([attester(url), attester(honest, BOB)], DOMAIN, 1, 123, timeout_seconds=3)
        assert time.monotonic() - began < 30
    assert isinstance(told, Refusal)
    assert (told.code, told.sentence) == ("timed_out", f"{told.host} did not answer within 3 seconds.")
    assert isinstance(other, Attestation)


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_an_endless_answer_of_an_attester_is_not_read_to_its_end(flood):
    with hostile_node(flood, chain_id=None) as url:
        began = time.monotonic()
        (told,) = ask([attester(url)], DOMAIN, 1, 123, timeout_seconds=1)
        assert time.monotonic() - began < 30
    assert isinstance(told, Refusal)


def test_all_are_asked_at_once_and_answer_in_their_order():
    begun = threading.Barrier(2, timeout=15)

    def together(reply: Any) -> Callable[[Any], Any]:
        def when_both_are_asked(_: Any) -> Any:
            begun.wait()
            return reply

        return when_both_are_asked

    with lying_node(together(answer())) as first_url, lying_node(together(answer(signer=BOB))) as second_url:
        answers = ask([attester(second_url, BOB), attester("http://127.0.0.1:1"), attester(first_url)], DOMAIN, 1, 123)
    assert [told.attester for told in answers] == [BOB.address, ALICE.address, ALICE.address]
    assert [type(told) for told in answers] == [Attestation, Refusal, Attestation]
    down = answers[1]
    assert isinstance(down, Refusal)
    assert (down.code, down.sentence) == ("unreachable", "127.0.0.1:1 can't be reached.")


def test_the_attesters_own_refusal_is_handed_on():
    told = only_answer_of(refusal("not_final", "Block 123 is not final yet: block 120 is."))
    assert isinstance(told, Refusal)
    assert told.code == "not_final"
    assert told.sentence == f"{told.host} refused: Block 123 is not final yet: block 120 is."


def test_an_attesters_refusal_becomes_one_short_printable_line():
    told = only_answer_of(refusal("conflict", "a\nb\x1b[8m" + "c" * 1000))
    assert isinstance(told, Refusal)
    assert told.sentence.isprintable()
    assert len(told.sentence) < 400


@pytest.mark.parametrize(
    "reply",
    [
        Raw(b"<html>", status=502),
        Raw(b"", status=302, headers={"Location": "http://127.0.0.1:1/"}),
        Raw(b"{}", status=500),
        refusal("<script>", "A sentence."),
        refusal("conflict", 17),
    ],
)
def test_an_error_of_another_form_is_told_by_its_status(reply):
    told = only_answer_of(reply)
    assert isinstance(told, Refusal)
    assert told.code == "unreachable"
    assert told.sentence == f"{told.host} answered with HTTP status {reply.status}."


def test_no_url_is_shown():
    told = ask([attester("http://user:password@127.0.0.1:1/secret?key=secret")], DOMAIN, 1, 123)
    assert "secret" not in repr(told)
    assert "password" not in repr(told)


def test_an_attester_is_asked_through_the_proxy_of_the_environment(monkeypatch):
    with lying_node(lambda _: answer()) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        (told,) = ask([attester("http://attester.invalid")], DOMAIN, 1, 123)
    assert isinstance(told, Attestation)


def test_a_secret_address_quoted_by_a_proxy_is_not_passed_on():
    def answer(_: object) -> Raw:
        return Raw(b'{"code": "not_here", "error": "There is nothing at /secret-path/attest"}', status=404)

    with lying_node(answer) as url:
        (refusal,) = ask([Attester(address=ALICE.address, url=f"{url}/secret-path")], DOMAIN, 1, 5)
    assert isinstance(refusal, Refusal)
    assert "secret-path" not in refusal.sentence
    assert "not_here" in refusal.sentence
