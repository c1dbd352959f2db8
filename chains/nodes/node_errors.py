"""Errors of nodes: their types, how each client words them, and which words users may see.

What a node says is shown, and what it does decides. These patterns of words decide all the same:

- `_LIMIT`: a provider may refuse one method for a second or a day, with status 200 and a code of its own, and answer
  the others meanwhile. Nothing that it does at the moment tells this from a method that it never serves, for which
  batches are rejected. Statuses, codes, and nodes that refuse everything need no words.
- `_TIMEOUT`: a node that ran out of time for a call refuses it like one that fails, and may answer it later.
- `_REVERT`: some nodes refuse a call without the code of a revert and without its data, and repeating the call shows
  the same.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from chains.encoding import read_data

_ERROR_OF_TEXT = bytes.fromhex("08c379a0")
SEND = "eth_sendRawTransaction"
_NUMBERS = re.compile(r"(?i)\[redacted\]|0x[0-9a-f]*|[0-9a-f-]*\d[0-9a-f-]*")


class ChainError(Exception):
    """An error of a chain or its nodes. The text is one sentence for users, without a node's words."""

    message = ""
    """The node's own words after `plain`, because a node may echo our key in any form."""

    @property
    def for_operators(self) -> str:
        """Return the sentence with the node's words, for logs, commands and problems."""
        return with_words(str(self), self.message)


class NodeUnavailable(ChainError):
    """No node gave a usable answer. Trying again later may help."""

    reasons: tuple[str, ...] = ()
    """A sentence about each node, beginning with its host."""
    kind = "unreachable"
    """The label in metrics."""
    retry_after: float = 0
    """The seconds for which the node wants no request. 0: it doesn't say."""


class NodeOfWrongChain(NodeUnavailable):
    """The node is of another chain than the configured one."""

    kind = "wrong_chain"


class InvalidReply(NodeUnavailable):
    """The node's reply is false or malformed."""

    kind = "invalid_reply"


class ImplausibleGas(InvalidReply):
    """The node's estimate of gas is below or far above what the transaction can take."""


class UnreadableHeader(NodeUnavailable):
    """No node sends a block's header in a form that the facts registry can read."""

    kind = InvalidReply.kind


class OtherRoot(NodeUnavailable):
    """No node sends a block's receipts, transactions or withdrawals so that they make the root in its header."""

    kind = InvalidReply.kind


class UnverifiedProof(InvalidReply):
    """The node's proof doesn't verify. If no node sends a valid proof, no node counts as failed."""


class LimitsRequests(NodeUnavailable):
    """The node wants fewer requests."""

    kind = "limited"


class BadStatus(NodeUnavailable):
    """The node answered with an HTTP status that has no usable reply."""

    kind = "http_status"


class RpcRefused(ChainError):
    """Every node that could be asked answered with a JSON-RPC error."""

    may_pass = False
    """True if the node ran out of time, or another node failed that might have answered. Only then may the same request
    succeed later.
    """
    host = "The node"
    """The node that refused."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"The node refused ({code}).")

    def is_like(self, other: "RpcRefused") -> bool:
        """Return whether both messages are equal, apart from numbers and identifiers."""
        return _NUMBERS.sub("", self.message) == _NUMBERS.sub("", other.message)

    def about(self, request: str) -> str:
        """Return a sentence with the node that refused the request."""
        lacking = ": it doesn't serve that method" if self.code == NO_METHOD else ""
        return f"{self.host} refused {request} ({self.code}){lacking}."


class OtherAccounts(RpcRefused):
    """A proof shows accounts of another form than Ethereum's. The registry can't read them."""

    def __init__(self, sentence: str) -> None:
        super().__init__(0, "")
        self.args = (sentence,)

    def about(self, request: str) -> str:
        return str(self)


class Reverted(RpcRefused):
    """The execution reverted. `data` is the revert data, empty if the node sent none."""

    data: bytes

    @property
    def reason(self) -> str:
        """Return the text of an `Error(string)`. Empty: it is another error."""
        data = self.data
        if data[:4] != _ERROR_OF_TEXT or int.from_bytes(data[4:36]) != 32:
            return ""
        return data[68 : 68 + int.from_bytes(data[36:68])].decode(errors="replace")


# Refusals by the chain itself, which every node would repeat. Any other refusal may come from a single node.
FINAL = (OtherAccounts, Reverted)


def with_words(sentence: str, words: str) -> str:
    """Return the sentence with a node's words in quotes, if there are any."""
    return f"{sentence.removesuffix('.')}; the node said: “{words}”." if words else sentence


# --- Recognising errors -----------------------------------------------------------------------------------------------

_LIMIT = re.compile(
    r"(?i)rate.?limit|request (rate|count|limit)|too many (\w+ )*(requests|connections|calls)\b(?! in)|throttl|quota"
    r"|throughput|(requests?|calls?|credits?|units?) (per|a) (second|minute|hour|day|month)|compute units?|\bcredits?\b"
    r"|\b(CUPS?|[qrt]ps)\b|\b(month|dai|week|hour)ly\b|overload|\bbusy\b|slow down|\b(re)?try (again|later)"
)
_LIMIT_CODES = {-32005, -32029, *(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.PAYMENT_REQUIRED)}
# A range of logs is refused with some of these codes, and is made shorter.
_CODES_OF_RANGES = {-32005}
NO_METHOD = -32601
# geth's code for a request that takes too long. A call has a limit of its own, --rpc.evmtimeout, and another code.
TOO_SLOW = -32002
_TIMEOUT = re.compile(r"(?i)execution aborted|\btimed out\b")
# The node has pruned the block's body and receipts (EIP-4444). Its header stays.
PRUNED = 4444
_REVERT = re.compile(r"(?i)\brevert")
_REVERT_CODE = 3
_NETHERMIND_VM_ERROR = -32015
_MAX_SEARCHED = 300
_MAX_CODE = 1 << 31  # a longer code could fill a page


def other_root(values: str, number: int, refused: str = "") -> str:
    """Return the words for `values` of a block that make another root. `refused` is the method that would help."""
    sentence = f"{values} of block {number} whose root differs from the header's"
    return f"sent {sentence}, and refuses {refused}" if refused else sentence


def words_of(reply: Any) -> str:
    """Return the text of an error, which may be a string, an object, a list, or nested."""
    match reply:
        case str():
            return reply
        case [first, *_]:
            return words_of(first)
        case {"error": within} | {"errors": within}:
            return words_of(within)
        case {"message": str(words)} | {"detail": str(words)} | {"reason": str(words)}:
            return words
    return ""


def read_refusal(host: str, method: str, error: Mapping[str, Any] | str, secrets: Iterable[str] = ()) -> RpcRefused:
    """Return the typed error for a JSON-RPC error. `secrets` are redacted from its text.

    Raises `LimitsRequests` if the node only limits requests. A refused transaction is no such limit whatever the words,
    because the state of the chain shows its cause.
    """
    error = {"message": error} if isinstance(error, str) else error
    code = _code(error.get("code"))
    told = error.get("message") or words_of(error)
    words = str(told)[:_MAX_SEARCHED]
    message = plain(told, secrets)
    refusal = _typed(code, method, words, message, error.get("data"))
    # A revert's words are the contract's, and may look like a limit. Therefore only untyped refusals are searched for
    # limits.
    if type(refusal) is RpcRefused and method != SEND and _is_limit(method, code, f"{words} {_details(error)}"):
        limit = LimitsRequests(f"{host} limits our requests ({code})")
        limit.message = message
        raise limit
    refusal.host = host
    refusal.may_pass = type(refusal) is RpcRefused and (code == TOO_SLOW or _TIMEOUT.search(words) is not None)
    return refusal


def _code(code: Any) -> int:
    """Return the code of an error, which some nodes write as a string. 0 if it is invalid."""
    if isinstance(code, str) and re.fullmatch(r"-?\d{1,9}", code, re.ASCII):
        return int(code)
    return int(code) if type(code) in {int, float} and abs(code) <= _MAX_CODE else 0


def _typed(code: int, method: str, words: str, message: str, data: Any) -> RpcRefused:
    if method in {"eth_call", "eth_estimateGas"} and (
        code in {_REVERT_CODE, _NETHERMIND_VM_ERROR} or _REVERT.search(words)
    ):
        return Reverted(code, message, _revert_data(data))
    return RpcRefused(code, message, data)


def _is_limit(method: str, code: int, words: str) -> bool:
    if method == "eth_getLogs":
        return code in _LIMIT_CODES - _CODES_OF_RANGES
    return code in _LIMIT_CODES or _LIMIT.search(words) is not None


def _details(error: Mapping[str, Any]) -> str:
    """Return the words beside an error's message. Some providers mention a limit only there."""
    return " ".join(str(part)[: 2 * _MAX_SEARCHED] for part in (error.get("data"), error.get("details")) if part)


def _revert_data(data: Any) -> bytes:
    """Return the revert data. Nodes send hex, hex after the word "Reverted", or an object with either."""
    if isinstance(data, dict):
        data = data.get("data")
    if isinstance(data, str):
        data = data.removeprefix("Reverted ")
    try:
        return read_data(data)
    except ValueError:
        return b""


# --- Untrusted words, made fit for logs and public pages
# ---------------------------------------------------------------

MAX_CHARS = 120

# Maximum characters of a text to process. Only the beginning is shown.
_MAX_READ = 4000
_URL = re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://\S+")
# Long words of letters and digits count as keys, except hexadecimal data such as hashes, which geth writes without 0x,
# and addresses.
_KEY = re.compile(
    r"(?<![0-9A-Za-z_-])(?!(?:0x[0-9a-fA-F]+|[0-9a-fA-F]{64})(?![0-9A-Za-z_-]))"
    r"(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[0-9A-Za-z_-]{16,}"
)
_NAMED = re.compile(r"(?i)\b((?:api|access|auth)?[-_ ]?(?:key|token|secret|password)\b[\"']?\s*[=:]\s*)\S+")
_QUOTES = str.maketrans("“”„‟", '""""')
# Minimum number of consecutive letters shared with a secret that are redacted. Half of all hashes share three by
# chance.
_PART_CHARS = 4
# Each proxy between here and the node may URL-encode a key again.
_MAX_ENCODINGS = 3


def plain(words: object, secrets: Iterable[str] = ()) -> str:
    """Return one printable line of at most `MAX_CHARS` characters.

    URLs, words that look like keys, and parts of `secrets` in any form are redacted.
    """
    text = str(words)
    if len(text) > _MAX_READ:
        # The cut is between words, because a part of a key may not look like a key.
        text = text[:_MAX_READ].rpartition(" ")[0]
    for _ in range(_MAX_ENCODINGS):
        text = unquote(text)
    # Control characters and characters that change the text direction are not printable.
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    text = _KEY.sub("[redacted]", _NAMED.sub(r"\1[redacted]", _URL.sub("[redacted]", text)))
    text = _without(text, secrets).translate(_QUOTES)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def _without(text: str, secrets: Iterable[str]) -> str:
    """Redact the parts of a text that also occur in a secret.

    A part is `_PART_CHARS` consecutive letters and digits. Case and other characters between them are ignored. A secret
    that is shorter is redacted if it stands as a word.
    """
    places = [place for place, letter in enumerate(text) if letter.isalnum()]
    letters = "".join(_lower(text[place]) for place in places)
    hidden = bytearray(len(text))
    for secret in secrets:
        folded = "".join(map(_lower, filter(str.isalnum, secret)))
        size = min(_PART_CHARS, len(folded))
        parts = {folded[start : start + size] for start in range(len(folded) - size + 1)} - {""}
        for start in range(len(letters) - size + 1):
            if letters[start : start + size] in parts:
                first, end = places[start], places[start + size - 1] + 1
                beside = text[max(first - 1, 0) : first] + text[end : end + 1]
                if size == _PART_CHARS or not any(map(str.isalnum, beside)):
                    hidden[first:end] = b"\1" * (end - first)
    for part in reversed(list(re.finditer(b"\1+", hidden))):
        text = f"{text[: part.start()]}[redacted]{text[part.end() :]}"
    return text


def _lower(letter: str) -> str:
    """Return a letter in lower case as one letter: `str.lower` may return several."""
    return letter.lower()[:1]


def secrets_of(url: str) -> list[str]:
    """Return the parts of a URL that may be a provider's key, both encoded and decoded, longest first."""
    parts = urlsplit(url)
    login = [parts.username or "", parts.password or ""]
    values = [parameter.rpartition("=")[2] for parameter in parts.query.split("&")]
    secrets = [*parts.path.split("/"), *values, *login]
    # The encoding of login and password in the Authorization header (RFC 7617).
    basic = b64encode(unquote(":".join(login)).encode()).decode() if any(login) else ""
    return sorted({*secrets, *map(unquote, secrets), basic} - {""}, key=len, reverse=True)
