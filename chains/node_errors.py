"""Errors of nodes: their types, how each client words them, and which words users may see."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import unquote, urlsplit

from chains.encoding import read_data

SEND = "eth_sendRawTransaction"
_NUMBERS = re.compile(r"(?i)\[redacted\]|0x[0-9a-f]*|[0-9a-f-]*\d[0-9a-f-]*")


class ChainError(Exception):
    """An error of a chain or its nodes. The text is one sentence for users, without a node's words."""

    message = ""
    """The node's own words after `plain`, because a node may echo our key in any form."""

    @property
    def for_operators(self) -> str:
        """Return the sentence with the node's words in quotes, for logs and commands."""
        return f"{str(self).removesuffix('.')}; the node said: “{self.message}”." if self.message else str(self)


class NodeUnavailable(ChainError):
    """No node gave a usable answer. Trying again later may help."""

    reasons: tuple[str, ...] = ()
    """A sentence about each node, beginning with its host."""
    kind = "unreachable"
    """The label in metrics."""


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
    """No node sends a block's receipts, or transactions, in a form that makes the root in the block's header."""

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
    """True if another node failed that might have answered. Only then may the same request succeed later."""
    host = "The node"
    """The node that refused."""
    cause: "Cause | None" = None
    """The cause, if the node's words are known."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"The node refused ({code}).")

    def is_like(self, other: "RpcRefused") -> bool:
        """Return whether both messages are equal, apart from numbers and identifiers."""
        return _NUMBERS.sub("", self.message) == _NUMBERS.sub("", other.message)

    def about(self, request: str) -> str:
        """Return a sentence with the node that refused the request, and the cause."""
        return f"{self.host} refused {request} ({self.code}){f': {self.cause}' if self.cause else ''}."


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


# Refusals by the chain itself, which every node would repeat. Any other refusal may come from a single node.
FINAL = (OtherAccounts, Reverted)


# --- Recognising errors -----------------------------------------------------------------------------------------------

# Words of limits on our requests. If `_OF_ONE_REQUEST` matches too, only the certain words count.
_RATE = re.compile(
    r"(?i)rate.?limit|too many (\w+ )?(requests|connections|calls)\b(?! in)|request limit|throttl"
    r"|(requests?|calls?) per (second|minute|hour|day)|compute units?"
)
_LIKELY_RATE = re.compile(
    r"(?i)\b(requests?|calls?|connections?|project ID)\b.{0,30}\b(limit|count|rate|number)\b|^\W*limit exceeded"
    r"|rate exceeded|limited to \d+|\d+ ?(/|per|an?) ?(s|secs?|seconds?|m|mins?|minutes?|hours?|days?)\b"
    r"|\b[qrt]ps\b|(number|amount) of (requests|calls)|(throughput|bandwidth).{0,20}(limit|exceed)"
    r"|(limit|exceed|surpass).{0,30}(throughput|bandwidth)|in.?flight|queue.{0,12}\bfull"
)
# Words of spent quotas, and of features that a plan excludes, in any order.
_QUOTA = (
    r"(?is)(?=.*(\bquotas?\b|\bcredits?\b|capacity|\bplans?\b|\btiers?\b|usage|subscription|allowance|\bCUPS\b"
    r"|\b(month|dai|week|hour)ly|\b(day|month)'s|\bCUP?s?\b))"
)
_SPENT = re.compile(
    rf"{_QUOTA}(?=.*(exceed|\breach(ed|ing)?\b|surpass|exhaust|\bhit\b|higher than|\b(run|ran|running|is|are) out"
    r"|\bout of\b|not enough|insufficient|deplet|\bused (up|all)|\bno\b.*\b(more|left)\b|expired))"
    r"|payment required|(chain|network) .*not available on|credits limited to"
)
_PLAN = re.compile(rf"{_QUOTA}(?=.*(limit|\bonly\b))|upgrade.{{0,40}}\b(plan|tier|account|subscription)")
_PRICE = re.compile(r"(?i)\bgas\b|\bfees?\b|\bfunds\b|\bnonce\b|\bpool\b|txpool|configured cap")
_LOAD = re.compile(
    r"(?i)overload|too (much load|busy)|\b(is|server|node) (too )?busy|(high|heavy|maximum) (load|traffic|demand)"
    r"|slow down|\btry (again|later)|\bretry (later|in)\b|please retry|come back later|over capacity|at this time"
    r"|service (temporarily )?unavailable|resource.?exhausted|unable to rent|back.?pressure"
)
_HTTP_LIMIT_CODES = {402, 429}
_LIMIT_CODES = {-32005, -32029}
# Words of limits on one request or transaction, and of faults that waiting doesn't mend.
_OF_ONE_REQUEST = re.compile(
    r"(?i)\bgas\b|gas.?limit|\bfees?\b|\bfunds\b|\bbalance\b|\bnonce\b|\btxs?\b|txpool|transaction|\bpool\b"
    r"|account limit\b|\bbatch|\branges?\b|\bresults?\b|\blogs?\b|too (large|big|long)|oversized|\bsize\b|depth"
    r"|configured cap|not (found|supported|included|available|allowed)|in progress|syncing|archiv|\bblocks\b|lookback"
    r"|storage keys"
)
_LIMIT_OF_TIME = re.compile(r"(?i)time.?out|timed out|deadline|time limit")
_NAMES_BATCH = re.compile(r"(?i)\bbatch")
_BATCH = re.compile(
    rf"{_NAMES_BATCH.pattern}|too many (calls|requests) in"
    r"|(response|payload|body|entity|request size|content)\b.*\b(too (large|big|long)|limit|exceed)"
)


class Cause(StrEnum):
    """The cause of a refusal to prove, as a clause after a colon."""

    STATE = "it lacks the state of that block"
    ACCOUNT = "it finds no such account, and doesn't prove that there is none"
    METHOD = "it doesn't serve that method"
    TIME = "it ran out of time"
    DEFECT = "by an error of its own"


# The order matters: METHOD's patterns also match words of STATE, such as "not available".
_CAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (
        Cause.STATE,
        re.compile(
            r"(?is)missing trie node|prun|archiv|histor.*(unavailable|not |no )|no historical"
            r"|unknown state|first available|too old|most recent|within \d+ blocks|lookback|unsupported block"
            r"|states?\b.*(unavailable|not (available|found|exist))|no state available|proof window"
            r"|(header|block|resource)\b.*not (be )?(found|available)|(unknown|could not find) block"
            r"|block is out of range|(state|node) is missing|MissingTrieNode|cleaned up"
        ),
    ),
    (Cause.ACCOUNT, re.compile(r"(?i)account\b.{0,60}(not found|n't exist|not exist)|no (such )?account|find account")),
    (
        Cause.METHOD,
        re.compile(
            r"(?is)(method|module|resource|eth_getProof)\b.*(not|n't|disabled)|(not|un)[ -]?(supported|implemented)"
            r"|whitelist|no backends? available"
        ),
    ),
    (Cause.TIME, re.compile(r"(?i)time(d)?[ -]?out|deadline|time limit|took too long")),
    (
        Cause.DEFECT,
        re.compile(
            r"(?i)internal (server |json-?rpc )?error|hash sort|hash mismatch|mismatch in expected|panic|crashed"
        ),
    ),
)
_REVERT = re.compile(r"(?i)\brevert")
_REVERT_CODE = 3
_NETHERMIND_VM_ERROR = -32015
_MAX_SEARCHED = 300
_MAX_CODE = 1 << 31  # a longer code could fill a page


def other_root(values: str, number: int, refused: str = "") -> str:
    """Return the words for `values` of a block that make another root. `refused` is the method that would help."""
    sentence = f"{values} of block {number} that make another root than the header's"
    return f"sent {sentence}, and refuses {refused}" if refused else sentence


def names_batch(error: Mapping[str, Any]) -> bool:
    """Return whether a JSON-RPC error blames the batch. The request may succeed if it is sent alone."""
    words = words_of(error)
    return bool(_BATCH.search(words)) and not _REVERT.search(words)


def words_of(reply: Any) -> str:
    """Return the text of an error, which may be a string, an object, a list, or nested."""
    match reply:
        case str():
            return reply[:_MAX_SEARCHED]
        case [first, *_]:
            return words_of(first)
        case {"error": error}:
            return words_of(error)
        case {"message": str(words)}:
            return words[:_MAX_SEARCHED]
    return ""


def read_refusal(host: str, method: str, error: Mapping[str, Any] | str, secrets: Iterable[str] = ()) -> RpcRefused:
    """Return the typed error for a JSON-RPC error. `secrets` are redacted from its text.

    Raises `LimitsRequests` if the node only limits requests. A refused transaction is no such limit whatever the words,
    because the state of the chain shows its cause.
    """
    error = {"message": error} if isinstance(error, str) else error
    code = _code(error.get("code"))
    words = str(error.get("message", ""))[:_MAX_SEARCHED]
    message = plain(error.get("message", ""), secrets)
    refusal = _typed(code, method, words, message, error.get("data"))
    # A revert's words are the contract's, and may look like a limit. Therefore only untyped refusals are searched for
    # limits.
    if type(refusal) is RpcRefused and method != SEND:
        if limit := limit_in(host, f"{words} {_details(error)}", code):
            raise limit
        refusal.cause = cause_of(words)
    refusal.host = host
    return refusal


def cause_of(words: str) -> Cause | None:
    """Return the cause of a refusal according to the node's words. None if they aren't known."""
    return next((cause for cause, pattern in _CAUSES if pattern.search(words)), None)


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


def limit_in(host: str, words: str, code: int = 0, *, is_page: bool = False) -> LimitsRequests | None:
    """Return the limit that a node's words or code report: on requests, by a plan, or by its load.

    None if there is none.

    `is_page` is True for the HTML page of an HTTP error. Such pages mention load whatever the cause.
    """
    if _NAMES_BATCH.search(words):
        return None
    is_of_one = _OF_ONE_REQUEST.search(words) is not None
    if _RATE.search(words):
        return LimitsRequests(f"{host} limits our requests")
    if (_SPENT.search(words) and not _PRICE.search(words)) or (_PLAN.search(words) and not is_of_one):
        return LimitsRequests(f"{host} limits our requests by a quota or plan")
    if _LIKELY_RATE.search(words) and not is_of_one and not _LIMIT_OF_TIME.search(words):
        return LimitsRequests(f"{host} limits our requests")
    if _LOAD.search(words) and not is_page:
        return LimitsRequests(f"{host} limits our requests, because it has too much load")
    is_limit = code in _HTTP_LIMIT_CODES or (code in _LIMIT_CODES and not is_of_one)
    return LimitsRequests(f"{host} limits our requests") if is_limit else None


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
# Long words of letters and digits count as keys, except hexadecimal data such as hashes and addresses.
_KEY = re.compile(
    r"(?<![0-9A-Za-z_-])(?!0x[0-9a-fA-F]+(?![0-9A-Za-z_-]))(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[0-9A-Za-z_-]{16,}"
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
