"""What can go wrong with a node, how to recognise it in the words of each kind of node, and what of them is shown."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from enum import StrEnum
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


class UnverifiedProof(InvalidReply):
    """The node's proof doesn't verify. Where every node sends such a proof, none is down, but none serves it."""


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
    host = "The node"
    """The node that refused."""
    cause: "Cause | None" = None
    """The cause that its words tell, if they are known."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"The node refused ({code}).")

    def about(self, request: str) -> str:
        """Say who refused a request, and why: a sentence."""
        return f"{self.host} refused {request} ({self.code}){f': {self.cause}' if self.cause else ''}."


class OtherAccounts(RpcRefused):
    """The chain's accounts have another form than Ethereum's, as a proof shows: the registry can't read them."""

    def __init__(self, sentence: str) -> None:
        super().__init__(0, "")
        self.args = (sentence,)

    def about(self, request: str) -> str:
        return str(self)


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
# Each as it stands in a sentence after the node's name, most telling first. A quota is told in any order of words.
_SPENT = (
    r"exceed|reach|surpass|exhaust|\bhit\b|higher than|more than|\bover\b|(run|ran|running|are|is) out|\bout of\b"
    r"|not enough|insufficient|deplet|used up|no more"
)
_LIMITS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "limits our requests",
        re.compile(r"(?i)rate.?limit|too many requests|request limit|requests per second|compute units|throttl"),
    ),
    (
        "limits our requests by a quota or plan",
        re.compile(
            rf"(?is)(?=.*({_SPENT}))(?=.*(quota|credits?\b|capacity|\bplan\b|\btier\b|usage|subscription|allowance"
            r"|\b(month|dai)ly|\bcap\b|\bCUP?s?\b|\bCUPS\b))"
            r"|payment required|(requests?|credits|calls) (are |is )?limited to|limits? for your (current )?plan"
            r"|upgrade.{0,40}\b(plan|tier|account|subscription|capacity)|\bcapacity exceeded"
        ),
    ),
    (
        "limits our requests",
        re.compile(
            rf"(?is)(?=.*({_SPENT}))(?=.*(\brequests?\b|\bcalls?\b|\bqps\b|\brps\b|throughput|bandwidth))"
            r"|\b(request|call)s? (rate|count)\b"
        ),
    ),
    (
        "limits our requests, because it has too much load",
        re.compile(
            r"(?i)overload|too (much load|busy)|\b(is|server|node) busy|(high|heavy|maximum) (load|traffic|demand)"
            r"|slow down|(retry|try again|come back) (later|in)\b|over capacity|service (temporarily )?unavailable"
            r"|resource.?exhausted"
        ),
    ),
)
_LIMIT_CODES = {402, 429, -32005, -32029}
# One request or transaction that asks for too much; or something that no pause brings.
_OF_ONE_REQUEST = re.compile(
    r"(?i)\bgas\b|gas.?limit|\bfees?\b|\bfunds\b|\bbalance\b|\bnonce\b|\btxs?\b|txpool|transaction|\bpool\b"
    r"|account limit|\bbatch|\branges?\b|\bresults?\b|\blogs?\b|too (large|big|long)|oversized|\bsize\b|depth"
    r"|configured cap|not (found|supported|included|available|allowed)|in progress|syncing|archive|archival"
)
_SURELY_OF_ONE_REQUEST = re.compile(r"(?i)\bbatch")


class Cause(StrEnum):
    """The cause of a refusal to prove something, as it stands in a sentence after a colon."""

    STATE = "it lacks the state of that block"
    ACCOUNT = "it finds no such account, and doesn't prove that there is none"
    METHOD = "it doesn't serve that method"
    TIME = "it ran out of time"
    DEFECT = "by an error of its own"


# In this order: "not available" says less than what is not available.
_CAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (
        Cause.STATE,
        re.compile(
            r"(?is)missing trie node|prun|archive|archival|histor.*(unavailable|not |no )|no historical"
            r"|states?\b.*(unavailable|not (available|found|exist))|no state available|proof window"
            r"|(header|block|resource)\b.*not (be )?(found|available)|(unknown|could not find) block"
            r"|block is out of range|(state|node) is missing|MissingTrieNode|cleaned up"
        ),
    ),
    (Cause.ACCOUNT, re.compile(r"(?i)account (was )?not found|no such account|account .*does not exist")),
    (
        Cause.METHOD,
        re.compile(
            r"(?is)(method|module|resource|eth_getProof)\b.*(not|n't|disabled)|(not|un)[ -]?(supported|implemented)"
            r"|whitelist|no backends? available"
        ),
    ),
    (Cause.TIME, re.compile(r"(?i)time(d)?[ -]?out|deadline exceeded|took too long")),
    (
        Cause.DEFECT,
        re.compile(
            r"(?i)internal (server |json-?rpc )?error|hash sort|hash mismatch|mismatch in expected|panic|crashed"
        ),
    ),
)
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


def read_refusal(host: str, method: str, error: Mapping[str, Any] | str, secrets: Iterable[str] = ()) -> RpcRefused:
    """Return the typed error for a JSON-RPC error. `secrets` must not appear in its words.

    Raises `NodeUnavailable` for what merely means "later".
    """
    error = {"message": error} if isinstance(error, str) else error
    code = error.get("code")
    code = code if type(code) is int and abs(code) <= _MAX_CODE else 0
    said = str(error.get("message", ""))[:_MAX_SEARCHED]
    message = plain(error.get("message", ""), secrets)
    refusal = _typed(code, method, said, message, error.get("data"))
    # A transaction's refusal, or a revert, which holds the contract's own words, may have any words.
    if type(refusal) is RpcRefused:
        if limit := limit_told(host, f"{said} {_details(error)}", code):
            raise limit
        refusal.cause = next((cause for cause, words in _CAUSES if words.search(said)), None)
    refusal.host = host
    return refusal


def _typed(code: int, method: str, said: str, message: str, data: Any) -> RpcRefused:
    if method in {"eth_call", "eth_estimateGas"} and (
        code in {_REVERT_CODE, _NETHERMIND_VM_ERROR} or _REVERT.search(said)
    ):
        return Reverted(code, message, _revert_data(data))
    if method in {"eth_sendRawTransaction", "eth_estimateGas"}:
        for kind, sentences in _TRANSACTION_REFUSALS:
            if sentences.search(said):
                return kind(code, message, data)
    return RpcRefused(code, message, data)


def limit_told(host: str, said: str, code: int = 0) -> LimitsRequests | None:
    """Return the limit that a node's words or its code tell, or None: of our requests, a plan, or its load."""
    if _SURELY_OF_ONE_REQUEST.search(said):
        return None
    rate, *others = _LIMITS
    is_of_one = _OF_ONE_REQUEST.search(said) is not None
    for sentence, words in [rate] if is_of_one else [rate, *others]:
        if words.search(said):
            return LimitsRequests(f"{host} {sentence}")
    return LimitsRequests(f"{host} {rate[0]}") if code in _LIMIT_CODES and not is_of_one else None


def _details(error: Mapping[str, Any]) -> str:
    """Return the words beside an error's message: some providers tell a limit only there."""
    data = error.get("data")
    inner = data.get("message") if isinstance(data, Mapping) else data
    return " ".join(words[:_MAX_SEARCHED] for words in (inner, error.get("details")) if isinstance(words, str))


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
