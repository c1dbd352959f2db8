"""The EIP-712 domain names the contract that checks the signature, so no other contract accepts it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from eth_account import Account
from eth_account.messages import SignableMessage, encode_typed_data
from eth_account.signers.local import LocalAccount
from eth_keys.exceptions import BadSignature

from chains import bounded_http
from chains.bounded_http import Failed, HttpRequest, TimedOut, TooLong
from chains.chains_file import Attester
from chains.cross_checks import MAX_ATTESTERS
from chains.encoding import HIGHEST_S, checksummed, read_data, read_object

SIGNATURE_BYTES = 65
MAX_ANSWER_BYTES = 16 * 1024
# Seconds to wait for one attester's answer. An attester waits less for its own nodes (`attesting.node_agreement`).
TIMEOUT_SECONDS = 5
REST_SECONDS = 15
"""Pause before an attester that timed out is asked again. Without it, each of many blocks would wait for it."""

_CODE = re.compile(r"[a-z][a-z_]{0,39}")
_MAX_SENTENCE_CHARS = 300


# --- Signatures -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """The contract that checks the attesters' signatures."""

    destination_chain_id: int
    contract: str
    """EIP-55."""

    def message(self, kind: str, fields: Sequence[tuple[str, str, Any]]) -> SignableMessage:
        """Return a message as typed data. `kind` is the type's name; each field has a type, a name and a value."""
        return encode_typed_data(
            domain_data={
                "name": "Batch Query Service Attestation",
                "version": "1",
                "chainId": self.destination_chain_id,
                "verifyingContract": self.contract,
            },
            message_types={kind: [{"type": of_type, "name": name} for of_type, name, _ in fields]},
            message_data={name: value for _, name, value in fields},
        )


@dataclass(frozen=True)
class AttestationRequest:
    """A request that an attester sign a block's hash for this domain."""

    domain: Domain
    source_chain_id: int
    block_number: int

    def body(self) -> dict[str, str]:
        """Return the body of the HTTP request."""
        return {
            "sourceChainId": str(self.source_chain_id),
            "blockNumber": str(self.block_number),
            "destinationChainId": str(self.domain.destination_chain_id),
            "verifyingContract": self.domain.contract,
        }

    def message(self, block_hash: bytes) -> SignableMessage:
        """Return the message that the attester signs as its answer."""
        return self.domain.message(
            "BlockHash",
            [
                ("uint256", "sourceChainId", self.source_chain_id),
                ("uint256", "blockNumber", self.block_number),
                ("bytes32", "blockHash", block_hash),
            ],
        )


def attester_set_message(domain: Domain, attesters: Sequence[str], threshold: int, nonce: int) -> SignableMessage:
    """Return the message with which current attesters approve their successors."""
    return domain.message(
        "AttesterSet",
        [("address[]", "attesters", list(attesters)), ("uint256", "threshold", threshold), ("uint256", "nonce", nonce)],
    )


def ordered_attesters(addresses: Sequence[str], threshold: int) -> list[str]:
    """Return the addresses (EIP-55) in the contract's order.

    Raises `ValueError` with a sentence, if the contract refuses them.
    """
    ordered = sorted({_address(written) for written in addresses}, key=lambda address: int(address, 16))
    if len(ordered) < len(addresses):
        raise ValueError("An attester is listed twice.")
    if not ordered or int(ordered[0], 16) == 0:
        raise ValueError("The zero address can't be an attester: nobody has its key.")
    if len(ordered) > MAX_ATTESTERS:
        raise ValueError(f"There are {len(ordered)} attesters; a contract takes {MAX_ATTESTERS} at most.")
    if not 1 <= threshold <= len(ordered):
        raise ValueError(f"The threshold must be from 1 to {len(ordered)}, the number of attesters.")
    return ordered


def _address(written: str) -> str:
    address = checksummed(written)
    if address is None:
        raise ValueError(
            f"{written} is not an address: write 0x and 40 hexadecimal digits, with the right EIP-55 checksum if they "
            "are in mixed case."
        )
    return address


def sign(account: LocalAccount, message: SignableMessage) -> bytes:
    """Return a signature of 65 bytes: r, s (the lower of its two valid values), v (27 or 28)."""
    return bytes(account.sign_message(message).signature)


def recover(message: SignableMessage, signature: bytes) -> str:
    """Return the signer's address. Raises `ValueError`, also for a form of signature that the contract refuses."""
    if len(signature) != SIGNATURE_BYTES or signature[64] not in {27, 28}:
        raise ValueError("not a signature of 65 bytes that ends with 27 or 28")
    if int.from_bytes(signature[32:64], "big") > HIGHEST_S:
        raise ValueError("a signature with the higher of its two s values")
    try:
        address: str = Account.recover_message(message, signature=signature)
    except BadSignature:
        raise ValueError("a signature that no key could make") from None
    return address


# --- Requests to attesters --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attestation:
    """A block's hash, signed by a configured attester. The signature is verified."""

    attester: str
    block_hash: bytes
    signature: bytes


@dataclass(frozen=True)
class Refusal:
    attester: str
    host: str
    code: str
    sentence: str
    """For people. It names the host, and nothing else of the URL."""


Answer = Attestation | Refusal
_CODES = frozenset(
    {
        *("not_final", "no_finality", "unknown_chain", "conflict", "unavailable"),
        *("unreachable", "timed_out", "bad_answer", "bad_signature"),
    }
)


def answer_label(answer: Answer, block_hash: bytes) -> str:
    """Return the answer's label in metrics: `signed`, `contradicts` if it signs another hash, or the refusal's code.

    Unknown codes count as "other", because an attester may send any text.
    """
    if isinstance(answer, Refusal):
        return answer.code if answer.code in _CODES else "other"
    return "signed" if answer.block_hash == block_hash else "contradicts"


_FAILURE_CODES: Mapping[type[Failed], str] = {TimedOut: "timed_out", TooLong: "bad_answer"}


class _RefusalError(Exception):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def ask(
    attesters: Sequence[Attester],
    domain: Domain,
    source_chain_id: int,
    block_number: int,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> list[Answer]:
    """Ask all attesters at the same time, and return their answers in the same order.

    After an attester times out, its answer is "timed_out" for `REST_SECONDS`, without another request. Attesters may
    sign different hashes: the caller counts how many agree.
    """
    question = AttestationRequest(domain, source_chain_id, block_number)
    answers = bounded_http.send_all([_http_request(attester, question, timeout_seconds) for attester in attesters])
    return [_read(attester, question, answer) for attester, answer in zip(attesters, answers, strict=True)]


def _http_request(attester: Attester, question: AttestationRequest, timeout_seconds: float) -> HttpRequest:
    parts = urlsplit(attester.url)
    return HttpRequest(
        parts._replace(path=f"{parts.path.rstrip('/')}/attest").geturl(),
        json.dumps(question.body()).encode(),
        max_bytes=MAX_ANSWER_BYTES,
        silence_seconds=timeout_seconds,
        total_seconds=timeout_seconds,
        rest_seconds=REST_SECONDS,
    )


def _read(attester: Attester, question: AttestationRequest, answer: bounded_http.HttpReply | Failed) -> Answer:
    if isinstance(answer, Failed):
        return _refusal(attester, _FAILURE_CODES.get(type(answer), "unreachable"), str(answer))
    try:
        return _read_answer(attester, question, answer)
    except _RefusalError as refused:
        return _refusal(attester, refused.code, str(refused))


def _refusal(attester: Attester, code: str, reason: str) -> Refusal:
    url = urlsplit(attester.url)
    if any(secret and secret in reason for secret in (url.path.strip("/"), url.query, url.username, url.password)):
        # A proxy's reply may quote the requested URL.
        reason = f"refused ({code})"
    return Refusal(attester.address, attester.host, code, f"{attester.host} {reason}.")


def _read_answer(attester: Attester, question: AttestationRequest, reply: bounded_http.HttpReply) -> Attestation:
    """Return the attestation in an attester's answer. Raises `_RefusalError`."""
    try:
        answer = read_object(json.loads(reply.content))
    except (ValueError, RecursionError):
        if reply.status != HTTPStatus.OK:
            raise _RefusalError("unreachable", reply.status_text) from None
        raise _RefusalError("bad_answer", "answered with something that is not a JSON object") from None
    if reply.status != HTTPStatus.OK:
        raise _read_refusal(answer, reply.status_text)
    try:
        block_hash, signature = read_data(answer.get("blockHash"), 32), read_data(answer.get("signature"))
    except ValueError:
        raise _RefusalError("bad_answer", "answered without a block hash and a signature in hexadecimal") from None
    try:
        signer = recover(question.message(block_hash), signature)
    except ValueError as error:
        raise _RefusalError("bad_signature", f"sent {error}") from None
    if signer != attester.address:
        raise _RefusalError("bad_signature", f"signs as {signer}, or for another block, and not as {attester.address}")
    return Attestation(attester.address, block_hash, signature)


def _read_refusal(answer: dict[str, Any], status_text: str) -> _RefusalError:
    code, sentence = answer.get("code"), answer.get("error")
    if not isinstance(code, str) or not _CODE.fullmatch(code) or not isinstance(sentence, str):
        return _RefusalError("unreachable", status_text)
    # Logs and pages show an attester's text, so it is cut to one short printable line.
    printable = "".join(letter if letter.isprintable() else " " for letter in sentence[:_MAX_SENTENCE_CHARS])
    return _RefusalError(code, f"refused: {printable.rstrip('.')}")
