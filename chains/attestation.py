"""Attestations: signatures by which attesters vouch for block hashes of a source chain (EIP-712).

The contract on the destination chain that checks them is part of their domain: none is worth anything elsewhere.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from eth_account import Account
from eth_account.messages import SignableMessage, encode_typed_data
from eth_account.signers.local import LocalAccount
from eth_keys.exceptions import BadSignature

from chains.address_checksum import checksummed
from chains.chains_file import MAX_ATTESTERS, Attester
from chains.encoding import read_data, read_object

SIGNATURE_BYTES = 65
MAX_ANSWER_BYTES = 16 * 1024
REST_SECONDS = 15
"""How long an attester that did not answer in time is not asked: whoever asks for many blocks would wait each time."""

_HIGHEST_S = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141 // 2
_CODE = re.compile(r"[a-z][a-z_]{0,39}")
_rests_until: dict[str, float] = {}  # by URL, on the monotonic clock


# --- What is signed ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """The contract for which attesters sign."""

    destination_chain_id: int
    contract: str
    """EIP-55."""

    def message(self, kind: str, fields: Sequence[tuple[str, str, Any]]) -> SignableMessage:
        """The typed data of one message, by its type's name and each field's type, name and value."""
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
class Question:
    """What an attester is asked: which hash this block of a source chain has, signed for this domain."""

    domain: Domain
    source_chain_id: int
    block_number: int

    def body(self) -> dict[str, str]:
        """As it is asked over HTTP."""
        return {
            "sourceChainId": str(self.source_chain_id),
            "blockNumber": str(self.block_number),
            "destinationChainId": str(self.domain.destination_chain_id),
            "verifyingContract": self.domain.contract,
        }

    def message(self, block_hash: bytes) -> SignableMessage:
        """What is signed as the answer."""
        return self.domain.message(
            "BlockHash",
            [
                ("uint256", "sourceChainId", self.source_chain_id),
                ("uint256", "blockNumber", self.block_number),
                ("bytes32", "blockHash", block_hash),
            ],
        )


def attester_set_message(domain: Domain, attesters: Sequence[str], threshold: int, nonce: int) -> SignableMessage:
    """By which the attesters of now agree to those that follow them."""
    return domain.message(
        "AttesterSet",
        [("address[]", "attesters", list(attesters)), ("uint256", "threshold", threshold), ("uint256", "nonce", nonce)],
    )


def ordered_attesters(addresses: Sequence[str], threshold: int) -> list[str]:
    """EIP-55 addresses of a set that the contract takes, in its order. Raises `ValueError`: a sentence."""
    ordered = sorted({_address(written) for written in addresses}, key=lambda address: int(address, 16))
    if len(ordered) < len(addresses):
        raise ValueError("An attester is there twice.")
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
            f"{written} is no address: write 0x and 40 hexadecimal digits, with the right EIP-55 checksum if they are "
            "in mixed case."
        )
    return address


def sign(account: LocalAccount, message: SignableMessage) -> bytes:
    """65 bytes: r, s (the lower one of the two), v (27 or 28)."""
    return bytes(account.sign_message(message).signature)


def recover(message: SignableMessage, signature: bytes) -> str:
    """The signer's address. Raises `ValueError`, also for a form that the contract refuses."""
    if len(signature) != SIGNATURE_BYTES or signature[64] not in {27, 28}:
        raise ValueError("not a signature of 65 bytes that ends with 27 or 28")
    if int.from_bytes(signature[32:64], "big") > _HIGHEST_S:
        raise ValueError("a signature with the higher one of its two s")
    try:
        address: str = Account.recover_message(message, signature=signature)
    except BadSignature:
        raise ValueError("a signature of no key") from None
    return address


# --- Asking for it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attestation:
    """An attester's word for a block's hash, verified: the signature is the configured account's."""

    attester: str
    block_hash: bytes
    signature: bytes


@dataclass(frozen=True)
class Refusal:
    """Why an attester gave none.

    `code` is the attester's own ("not_final", "unknown_chain", "conflict", "unavailable", ...), or one of ours:
    "unreachable", "timed_out", "bad_answer", "bad_signature".
    """

    attester: str
    host: str
    code: str
    sentence: str
    """Plain, with the host in it and no more of the URL."""


Answer = Attestation | Refusal


class _Refused(Exception):
    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code


def ask(
    attesters: Sequence[Attester],
    domain: Domain,
    source_chain_id: int,
    block_number: int,
    *,
    timeout_seconds: float = 5,
) -> list[Answer]:
    """What each attester answers, in their order. They are asked at once, and none may take longer than the time-out.

    One that did take longer is not asked again for `REST_SECONDS`; until then that is its answer.
    Attestations may be for different hashes: what agrees is the caller's to count.
    """
    question = Question(domain, source_chain_id, block_number)
    # A thread of its own, because the caller's may run another loop already.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_ask_in_loop, attesters, question, timeout_seconds).result()


def _ask_in_loop(attesters: Sequence[Attester], question: Question, timeout_seconds: float) -> list[Answer]:
    # Not `asyncio.run`, which at its end would wait for names that are still being looked up.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_ask_all(attesters, question, timeout_seconds))
    finally:
        loop.close()


async def _ask_all(attesters: Sequence[Attester], question: Question, timeout_seconds: float) -> list[Answer]:
    # Its time-out is for the whole exchange, so that no attester holds us by dripping its answer, headers included.
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    async with aiohttp.ClientSession(
        timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=True, auto_decompress=False
    ) as session:
        return await asyncio.gather(*(_ask_one(session, attester, question) for attester in attesters))


async def _ask_one(session: aiohttp.ClientSession, attester: Attester, question: Question) -> Answer:
    late = "timed_out", f"did not answer within {session.timeout.total:g} seconds"
    if time.monotonic() < _rests_until.get(attester.url, 0):
        return _refusal(attester, *late)
    try:
        status, content = await _exchange(session, attester, question)
        return _read_answer(attester, question, status, content)
    except _Refused as refused:
        code, what = refused.code, str(refused)
    except TimeoutError:
        _rests_until[attester.url] = time.monotonic() + REST_SECONDS
        code, what = late
    except aiohttp.ClientSSLError:
        code, what = "unreachable", "has no valid TLS certificate"
    except aiohttp.ClientConnectorError:
        code, what = "unreachable", "can't be reached"
    except (aiohttp.ClientError, OSError, ValueError):
        code, what = "unreachable", "broke off its answer"
    return _refusal(attester, code, what)


def _refusal(attester: Attester, code: str, what: str) -> Refusal:
    url = urlsplit(attester.url)
    if any(secret and secret in what for secret in (url.path.strip("/"), url.query, url.username, url.password)):
        # A proxy may quote what it was asked for.
        what = f"refused ({code})"
    return Refusal(attester.address, attester.host, code, f"{attester.host} {what}.")


async def _exchange(session: aiohttp.ClientSession, attester: Attester, question: Question) -> tuple[int, bytes]:
    """The answer's status and content. Raises `_Refused` where it is too long, and what aiohttp raises."""
    parts = urlsplit(attester.url)
    url = parts._replace(path=f"{parts.path.rstrip('/')}/attest").geturl()
    content = b""
    async with session.post(
        url,
        json=question.body(),
        headers={"Accept-Encoding": "identity"},
        allow_redirects=False,
    ) as response:
        while part := await response.content.read(MAX_ANSWER_BYTES):
            content += part
            if len(content) > MAX_ANSWER_BYTES:
                raise _Refused("bad_answer", f"sent more than {MAX_ANSWER_BYTES} bytes")
        return response.status, content


def _read_answer(attester: Attester, question: Question, status: int, content: bytes) -> Attestation:
    """Raises `_Refused`."""
    try:
        answer = read_object(json.loads(content))
    except (ValueError, RecursionError):
        if status != HTTPStatus.OK:
            raise _Refused("unreachable", f"answered with HTTP status {status}") from None
        raise _Refused("bad_answer", "answered with something that is not a JSON object") from None
    if status != HTTPStatus.OK:
        raise _read_refusal(answer, status)
    try:
        block_hash, signature = read_data(answer.get("blockHash"), 32), read_data(answer.get("signature"))
    except ValueError:
        raise _Refused("bad_answer", "answered without a block hash and a signature in hexadecimal") from None
    try:
        signer = recover(question.message(block_hash), signature)
    except ValueError as error:
        raise _Refused("bad_signature", f"sent {error}") from None
    if signer != attester.address:
        raise _Refused("bad_signature", f"signs as {signer}, or for another block, and not as {attester.address}")
    return Attestation(attester.address, block_hash, signature)


def _read_refusal(answer: dict[str, Any], status: int) -> _Refused:
    code, sentence = answer.get("code"), answer.get("error")
    if not isinstance(code, str) or not _CODE.fullmatch(code) or not isinstance(sentence, str):
        return _Refused("unreachable", f"answered with HTTP status {status}")
    # Whatever an attester writes ends up in logs and pages: one printable line, bounded.
    printable = "".join(letter if letter.isprintable() else " " for letter in sentence[:300])
    return _Refused(code, f"refused: {printable.rstrip('.')}")
