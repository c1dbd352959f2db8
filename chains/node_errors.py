"""What can go wrong with a node, how to recognise it in the words of each kind of node, and what of them is shown."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from chains.encoding import read_data


class ChainError(Exception):
    """Something went wrong with a chain. Its text is one plain sentence for users, without any words of a node."""

    message = ""
    """The node's own words, as `plain` has them: a node may echo our key in any form."""

    @property
    def for_operators(self) -> str:
        """Return the sentence with the node's words, marked as its own: for logs and commands."""
        return f"{str(self).removesuffix('.')}; the node said: “{self.message}”." if self.message else str(self)


class NodeUnavailable(ChainError):
    """No node gave a usable answer. Trying again later may help."""

    reasons: tuple[str, ...] = ()
    """A sentence about each node, beginning with its host."""
    kind = "unreachable"
    """The word under which metrics count it."""


class WrongChain(NodeUnavailable):
    """The node belongs to another chain than the configuration says."""

    kind = "wrong_chain"


class InvalidReply(NodeUnavailable):
    """The node's reply is false or makes no sense."""

    kind = "invalid_reply"


class UnreadableHeader(NodeUnavailable):
    """No node tells the header of a block in a form that the facts registry can read."""

    kind = InvalidReply.kind


class LimitsRequests(NodeUnavailable):
    """The node wants fewer requests."""

    kind = "limited"


class BadStatus(NodeUnavailable):
    """The node answered with another HTTP status than that of a reply."""

    kind = "http_status"


class RpcRefused(ChainError):
    """Every node that could be asked answered with a JSON-RPC error."""

    may_pass = False
    """True if another node failed, and might have answered. Only then is it worth asking the same again."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"The node refused ({code}).")


class OtherAccounts(RpcRefused):
    """The chain's accounts have another form than Ethereum's, as a proof shows: the registry can't read them."""

    def __init__(self, sentence: str) -> None:
        super().__init__(0, "")
        self.args = (sentence,)


class Reverted(RpcRefused):
    """Execution reverted. `data` is the revert data as bytes, empty where the node gave none."""

    data: bytes


class NonceTooLow(RpcRefused):
    """A transaction with this nonce is already in a block."""


class ReplacementUnderpriced(RpcRefused):
    """Another transaction with this nonce waits already, and the new one does not pay enough more."""


class FeeTooLow(RpcRefused):
    """The transaction offers less than the node takes."""


class InsufficientFunds(RpcRefused):
    """The sender can't pay for the transaction."""


class AlreadyKnown(RpcRefused):
    """The node already has this transaction. For the sender that is a success."""


# These are true of the chain, whichever node says it. Any other refusal may be that of one node only.
FINAL = (OtherAccounts, Reverted, NonceTooLow, ReplacementUnderpriced, InsufficientFunds, AlreadyKnown)


# --- Recognising them -------------------------------------------------------------------------------------------------

# The words of each client are in tests/chains/test_node_errors.py. "transaction underpriced" says too little of a
# replacement as of any other, so replacements come first.
_TRANSACTION_REFUSALS: tuple[tuple[type[RpcRefused], re.Pattern[str]], ...] = (
    (
        AlreadyKnown,
        re.compile(
            r"(?i)already ?known|existing txn? with same hash|known transaction|already imported|already in the TxPool"
        ),
    ),
    (
        ReplacementUnderpriced,
        re.compile(
            r"(?i)replacement (transaction underpriced|gas too low)|replacementnotallowed|could not replace existing tx"
        ),
    ),
    (NonceTooLow, re.compile(r"(?i)nonce[_ ](is )?too[_ ]low|oldnonce|nonce has already been used")),
    (
        InsufficientFunds,
        re.compile(
            r"(?i)insufficient ?funds|insufficient (sender )?balance|upfront cost exceeds account balance"
            r"|have enough (funds|balance)"
        ),
    ),
    (
        FeeTooLow,
        re.compile(
            r"(?i)underpriced|fee ?too ?low|(gas price|priority fee) below|less than block base fee"
            r"|too low for the next block|pay the minimum gas price|cannot pay basefee"
        ),
    ),
)
_RATE_LIMIT = re.compile(r"(?i)rate.?limit|too many requests|request limit|compute units|(quota|capacity).*exceeded")
_RATE_LIMIT_CODES = {429, -32005, -32029}
# What else is refused by these codes: one request that asks for too much, and not too many of them.
_ONE_TOO_LARGE = re.compile(r"(?i)gas limit|\brange\b|\bresults\b|batch size")
# Refusals that tell of a batch instead of the request that has them: it may be answered when it is asked alone.
_BATCH = re.compile(
    r"(?i)\bbatch|(response|payload|body|entity|request size|content)\b.*\b(too (large|big|long)|limit|exceed)"
    r"|timed? ?out|deadline exceeded|too many (calls|requests) in"
)
_REVERT = re.compile(r"(?i)\brevert")
_REVERT_CODE = 3
_NETHERMIND_VM_ERROR = -32015
_MAX_SEARCHED = 300
_MAX_CODE = 1 << 31  # Others would be as long as the node likes.


def concerns_batch(error: Mapping[str, Any]) -> bool:
    """Return whether a JSON-RPC error may be about the batch in which a request came, and not about the request."""
    words = str(error.get("message", ""))[:_MAX_SEARCHED]
    return bool(_BATCH.search(words)) and not _REVERT.search(words)


def read_refusal(host: str, method: str, error: Mapping[str, Any], secrets: Iterable[str] = ()) -> RpcRefused:
    """Return the typed error for a JSON-RPC error. `secrets` must not appear in its words.

    Raises `NodeUnavailable` for what merely means "later".
    """
    code = error.get("code")
    code = code if type(code) is int and abs(code) <= _MAX_CODE else 0
    said = str(error.get("message", ""))[:_MAX_SEARCHED]
    message = plain(error.get("message", ""), secrets)
    # Reverts come first, because their message holds the contract's own words, which may be anything.
    if method in {"eth_call", "eth_estimateGas"} and (
        code in {_REVERT_CODE, _NETHERMIND_VM_ERROR} or _REVERT.search(said)
    ):
        return Reverted(code, message, _revert_data(error.get("data")))
    if _RATE_LIMIT.search(said) or (code in _RATE_LIMIT_CODES and not _ONE_TOO_LARGE.search(said)):
        raise LimitsRequests(f"{host} limits our requests")
    if method in {"eth_sendRawTransaction", "eth_estimateGas"}:
        for kind, sentences in _TRANSACTION_REFUSALS:
            if sentences.search(said):
                return kind(code, message, error.get("data"))
    return RpcRefused(code, message, error.get("data"))


def _revert_data(data: Any) -> bytes:
    """Revert data as nodes send it: hex, hex behind the word "Reverted", or either inside an object."""
    if isinstance(data, dict):
        data = data.get("data")
    if isinstance(data, str):
        data = data.removeprefix("Reverted ")
    try:
        return read_data(data)
    except ValueError:
        return b""


# --- What of a stranger's text is fit for logs and public pages -----------------------------------------------------

MAX_CHARS = 120

# Only the beginning is shown, so only this much is read.
_MAX_READ = 4000
_URL = re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://\S+")
# Long mixtures of letters and digits are taken for keys, except hexadecimal data such as hashes and addresses.
_KEY = re.compile(
    r"(?<![0-9A-Za-z_-])(?!0x[0-9a-fA-F]+(?![0-9A-Za-z_-]))(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[0-9A-Za-z_-]{16,}"
)
_NAMED = re.compile(r"(?i)\b((?:api|access|auth)?[-_ ]?(?:key|token|secret|password)\b[\"']?\s*[=:]\s*)\S+")
_QUOTES = str.maketrans("“”„‟", '""""')
# Equal letters in a row that are taken for a part of a secret. Three are, by chance, in half of all hashes.
_PART_CHARS = 4
# A key may be encoded again by each proxy that it passes.
_MAX_ENCODINGS = 3


def plain(words: object, secrets: Iterable[str] = ()) -> str:
    """Return one printable line of at most `MAX_CHARS` characters. It has no URL, nothing that looks like a key, and
    no part of `secrets` in any form.
    """
    text = str(words)
    if len(text) > _MAX_READ:
        # Cut between words: the rest of a key would no longer look like a key.
        text = text[:_MAX_READ].rpartition(" ")[0]
    for _ in range(_MAX_ENCODINGS):
        text = unquote(text)
    # Controls are not printable, nor are characters that change the direction of text.
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    text = _KEY.sub("[redacted]", _NAMED.sub(r"\1[redacted]", _URL.sub("[redacted]", text)))
    text = _without(text, secrets).translate(_QUOTES)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def _without(text: str, secrets: Iterable[str]) -> str:
    """Redact what the text has in common with a secret.

    That is `_PART_CHARS` letters and digits in a row, in any case and with anything else between them; or all of a
    shorter secret, as a word.
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
    for found in reversed(list(re.finditer(b"\1+", hidden))):
        text = f"{text[: found.start()]}[redacted]{text[found.end() :]}"
    return text


def _lower(letter: str) -> str:
    """Return one letter for one: `str.lower` may give several."""
    return letter.lower()[:1]


def secrets_of(url: str) -> list[str]:
    """Return the parts of a URL that may be a provider's key, as they stand there and decoded, longest first."""
    parts = urlsplit(url)
    login = [parts.username or "", parts.password or ""]
    values = [one.rpartition("=")[2] for one in parts.query.split("&")]
    found = [*parts.path.split("/"), *values, *login]
    # As it is sent (RFC 7617).
    basic = b64encode(unquote(":".join(login)).encode()).decode() if any(login) else ""
    return sorted({*found, *map(unquote, found), basic} - {""}, key=len, reverse=True)
