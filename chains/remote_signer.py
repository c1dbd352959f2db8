"""Signers whose keys are in a service of their own, such as web3signer or op-signer.

The service is asked by the JSON-RPC method `eth_signTransaction`. Nothing that it returns is believed before it is
compared with the request. Its URL and token may be secret, so messages name only its host.
"""

import json
import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from chains import bounded_http
from chains.bounded_http import Failed, HttpReply, HttpRequest, TimedOut
from chains.encoding import read_data, read_object
from chains.file_values import Address, FilePath, RpcUrl, Table, host_of

if TYPE_CHECKING:
    # This import is slow, and each command that reads chains.toml loads this module.
    from chains.transaction_fields import TransactionFields

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10
REST_SECONDS = 15
"""Pause before a service that timed out is asked again. Without it, each turn would wait for it."""
# Nodes take no longer transactions than 131,072 bytes. Some services return the fields beside them.
_MAX_ANSWER_BYTES = 2**20
# Maximum requests at a time: services limit their rate.
_AT_A_TIME = 8
# Requests at a time, by URL. After a time-out: 1, as a service that signs one by one also signs what was given up.
_at_a_time: dict[str, int] = {}


class NotSigned(Exception):
    """The service didn't sign. The message is a phrase without a secret, such as "can't be reached"."""


class SignerSilent(NotSigned):
    """The service gave no usable answer. The phrase continues a sentence that begins with the service."""


class SignerRefusal(NotSigned):
    """The service refused. The phrase is its code."""


class SignedOtherwise(NotSigned):
    """The service returned something else than was asked for. The phrase says what."""


class RemoteSigner(Table):
    """A signer by address, and the service that holds its key."""

    address: Address
    url: Annotated[RpcUrl, Field(repr=False)]
    ca_file: FilePath | None = Field(default=None, repr=False)
    """Certificates that vouch for the service, in PEM. None: those that this machine trusts."""
    client_certificate_file: FilePath | None = Field(default=None, repr=False)
    client_key_file: FilePath | None = Field(default=None, repr=False)
    token_file: FilePath | None = Field(default=None, repr=False)
    """A file with a token, which is sent as "Authorization: Bearer ..." (RFC 6750)."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.client_certificate_file is None) != (self.client_key_file is None):
            raise ValueError("must have client_certificate_file and client_key_file, or neither")
        files = (self.ca_file, self.client_certificate_file, self.token_file)
        if not self.url.startswith("https:") and any(file is not None for file in files):
            raise ValueError("must have an https URL, because it has a token or files for TLS")
        return self

    @property
    def host(self) -> str:
        """Return the URL's host, for messages."""
        return host_of(self.url)

    def sign(self, transactions: "Sequence[TransactionFields]") -> list[bytes | NotSigned]:
        """Return the signed transactions in the same order, or why one isn't signed.

        A transaction that isn't returned may be signed nevertheless, and the service may broadcast it.
        """
        answers: list[bytes | NotSigned] = []
        while rest := transactions[len(answers) :]:
            answers += self._some(rest[: _at_a_time.get(self.url, _AT_A_TIME)])
        return answers

    def problem(self) -> str:
        """Return why the service can't be asked, as a phrase. Empty if it answers."""
        try:
            (answer,) = self._ask([("eth_accounts", [])])
            accounts = _result(answer)
        except SignerRefusal as refusal:
            # op-signer has no such method. A status is about the token or the certificate.
            return f"refuses: {refusal}" if str(refusal).startswith("HTTP") else ""
        except NotSigned as failure:
            return str(failure)
        if isinstance(accounts, list) and self.address.lower() not in {str(account).lower() for account in accounts}:
            return f"does not name {self.address} among its accounts"
        return ""

    def _some(self, transactions: "Sequence[TransactionFields]") -> Iterator[bytes | NotSigned]:
        try:
            answers = self._ask([("eth_signTransaction", [each.for_service()]) for each in transactions])
        except NotSigned as failure:
            yield from [failure] * len(transactions)
            return
        for fields, answer in zip(transactions, answers, strict=True):
            try:
                yield _signed(fields, answer)
            except NotSigned as failure:
                yield failure

    def _ask(self, calls: Sequence[tuple[str, list[Any]]]) -> list[HttpReply | Failed]:
        """Send the calls at the same time. Raises `SignerSilent` if none can be sent now."""
        headers, tls = self._headers(), self._tls()
        answers = bounded_http.send_all(
            [
                HttpRequest(
                    self.url,
                    json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}).encode(),
                    max_bytes=_MAX_ANSWER_BYTES,
                    silence_seconds=TIMEOUT_SECONDS,
                    total_seconds=TIMEOUT_SECONDS,
                    rest_seconds=REST_SECONDS,
                    headers=headers,
                    tls=tls,
                )
                for method, parameters in calls
            ]
        )
        is_late = any(isinstance(answer, TimedOut) for answer in answers)
        _at_a_time[self.url] = 1 if is_late else min(_AT_A_TIME, 2 * _at_a_time.get(self.url, _AT_A_TIME))
        for answer in answers:
            if isinstance(answer, Failed) or answer.status != HTTPStatus.OK:
                said = answer if isinstance(answer, Failed) else f"answered with HTTP status {answer.status}"
                logger.warning("the signing service %s %s", self.host, said)
        return answers

    def _headers(self) -> Mapping[str, str]:
        # Files are read each time, because tokens and certificates are renewed while the service runs.
        if self.token_file is None:
            return {}
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            token = ""
        if not token.isprintable() or not token:
            logger.error("the token of %s in %s is unreadable", self.host, self.token_file)
            raise SignerSilent("can't be asked, because its token is unreadable")
        return {"Authorization": f"Bearer {token}"}

    def _tls(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.client_certificate_file is not None:
                # Without a password, OpenSSL would ask the terminal for that of an encrypted key, and wait.
                context.load_cert_chain(self.client_certificate_file, self.client_key_file, password="")
        except OSError:  # `ssl.SSLError` is one.
            logger.error("the files for TLS with %s can't be used", self.host)  # noqa: TRY400
            raise SignerSilent("can't be asked, because its TLS files are unusable") from None
        return context


def _signed(fields: "TransactionFields", answer: HttpReply | Failed) -> bytes:
    """Return the signed bytes in an answer. Raises `NotSigned`."""
    returned = _result(answer)
    try:
        # Geth returns an object, with the fields beside the bytes.
        raw = read_data(returned.get("raw") if isinstance(returned, dict) else returned)
        fields.require_signed(raw)
    except ValueError as error:
        raise SignedOtherwise(str(error)) from None
    return raw


def _result(answer: HttpReply | Failed) -> Any:
    """Return the result in a JSON-RPC answer. Raises `SignerSilent`, `SignerRefusal`."""
    if isinstance(answer, Failed):
        raise SignerSilent(str(answer))
    if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise SignerRefusal(f"HTTP status {answer.status}")
    try:
        reply = read_object(json.loads(answer.content))
    except (ValueError, RecursionError):
        said = "something that is not JSON-RPC" if answer.status == HTTPStatus.OK else f"HTTP status {answer.status}"
        raise SignerSilent(f"answered with {said}") from None
    if (error := reply.get("error")) is not None:
        code = error.get("code") if isinstance(error, dict) else None
        # The service's own words may hold secrets, and pages show this. JSON has numbers of any length.
        is_code = isinstance(code, int) and code.bit_length() < 32
        raise SignerRefusal(f"JSON-RPC error {code}" if is_code else "JSON-RPC error")
    return reply.get("result")
