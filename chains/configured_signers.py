"""Signers: where their keys are stored and how they are read, or the service of its own that has the key.

No `repr`, `str` or error message shows a key, or more of a service's URL than its host. The service, such as web3signer
or op-signer, is asked by the JSON-RPC method `eth_signTransaction`. Nothing that it returns is believed before it is
compared with the request.
"""

import json
import logging
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, model_validator

from chains import bounded_http
from chains.bounded_http import Failed, HttpReply, HttpRequest, TimedOut
from chains.encoding import read_data, read_object
from chains.file_values import VARIABLE, Address, FilePath, RpcUrl, Table, host_of, variable

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    # This import is slow, and each command that reads chains.toml loads this module.
    from chains.transaction_fields import TransactionFields

logger = logging.getLogger(__name__)

_KEY = re.compile(r"(?:0x)?[0-9a-fA-F]{64}")
TIMEOUT_SECONDS = 10
REST_SECONDS = 15
"""Pause before a service that timed out is asked again. Without it, each turn would wait for it."""
# Nodes take no longer transactions than 131,072 bytes. Some services return the fields beside them.
_MAX_ANSWER_BYTES = 2**20
# Maximum requests at a time: services limit their rate.
_AT_A_TIME = 8
# Requests at a time, by URL. After a time-out: 1, as a service that signs one by one also signs what was given up.
_at_a_time: dict[str, int] = {}


class SignerError(Exception):
    """The signer's key can't be read. The message is one sentence without a secret."""


def _environment_reference(written: str) -> str:
    if not VARIABLE.fullmatch(written):
        raise ValueError('must be "${NAME}", so that the key itself is not in this file (it is not shown)')
    return written


def _key_bytes(written: str) -> bytes:
    """Return the key's 32 bytes.

    Empty if the text is no key, because eth_account silently pads a key that lost a digit.
    """
    return bytes.fromhex(written.strip()[-64:]) if _KEY.fullmatch(written.strip()) else b""


Reference = Annotated[str, AfterValidator(_environment_reference)]


class SignerKey(Table):
    """The location of a signer's key: an encrypted keystore with a password, a key file, or a variable.

    `account()` reads the key at its first call, so a process that signs nothing needs no key.
    """

    keystore_file: FilePath | None = Field(default=None, repr=False)
    password_file: FilePath | None = Field(default=None, repr=False)
    key_file: FilePath | None = Field(default=None, repr=False)
    key: Reference | None = Field(default=None, repr=False)

    _environ: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _account: "LocalAccount | None" = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _one_way(self, info: ValidationInfo) -> Self:
        fields = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if fields not in ({"keystore_file", "password_file"}, {"key_file"}, {"key"}):
            raise ValueError("must have keystore_file and password_file, or key_file alone, or key alone")
        self._environ = (info.context or {}).get("environ", {})
        return self

    @property
    def address(self) -> str:
        """Return the signer's address. Raises `SignerError`."""
        address: str = self.account().address
        return address

    def sign(self, transactions: "Sequence[TransactionFields]") -> "list[bytes | NotSigned]":
        """Return the signed transactions in the same order, as `RemoteSigner.sign` does.

        The key was read for its address, so each transaction is signed. The same fields are signed with the same bytes
        (RFC 6979).
        """
        account = self.account()
        return [bytes(account.sign_transaction(dict(each.for_account())).raw_transaction) for each in transactions]

    def account(self) -> "LocalAccount":
        """Return the signer's account, read once. Raises `SignerError`."""
        if self._account is None:
            self._account = self._read_account()
        return self._account

    def _read_account(self) -> "LocalAccount":
        from eth_account import Account  # noqa: PLC0415 (slow to load, and `manage.py stop` reads no key)

        if self.keystore_file is not None and self.password_file is not None:
            keystore, password = _read(self.keystore_file), _read(self.password_file).rstrip("\r\n")
            try:
                key: Any = Account.decrypt(json.loads(keystore), password)
            except Exception:  # noqa: BLE001 - any library error may quote the file.
                raise SignerError(
                    f"The signer's keystore {self.keystore_file} can't be decrypted with its password."
                ) from None
            where = str(self.keystore_file)
        elif self.key_file is not None:
            key, where = _key_bytes(_read(self.key_file)), str(self.key_file)
        else:
            assert self.key is not None
            name = self.key[2:-1]
            try:
                key, where = _key_bytes(variable(name, self._environ)), name
            except ValueError as error:
                raise SignerError(f"The signer's key is missing: {error}.") from None
        try:
            account: LocalAccount = Account.from_key(key)
        except Exception:  # noqa: BLE001 - the message of eth_account may quote the key.
            raise SignerError(f"The signer's key in {where} is not a private key of 32 bytes in hex.") from None
        return account


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SignerError(f"The signer's file {path} can't be read.") from None


# --- Services that sign -----------------------------------------------------------------------------------------------


class NotSigned(Exception):
    """The service didn't sign. The message is a phrase without a secret, such as "can't be reached"."""

    code: str
    """That of the wait for the service."""


class SignerSilent(NotSigned):
    """The service gave no usable answer. The phrase continues a sentence that begins with the service."""

    code = "signer_silent"


class SignerRefusal(NotSigned):
    """The service refused. The phrase is its code."""

    code = "signer_refuses"


class SignedOtherwise(NotSigned):
    """The service returned something else than was asked for. The phrase says what."""

    code = "signed_otherwise"


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
        """Return the signed transactions in the same order, or why one isn't signed. Nothing is raised.

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
                said = answer if isinstance(answer, Failed) else answer.status_text
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
