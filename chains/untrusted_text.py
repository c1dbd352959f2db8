"""A stranger's own words, made fit for logs and public pages."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

MAX_CHARS = 120

# Read no further: whatever is shown stands at the beginning.
_MAX_READ = 4000
_URL = re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://\S+")
# What is so long and mixes letters with digits is a key, unless it is hexadecimal data: hashes and addresses stay.
_KEY = re.compile(
    r"(?<![0-9A-Za-z_-])(?!0x[0-9a-fA-F]+(?![0-9A-Za-z_-]))(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[0-9A-Za-z_-]{16,}"
)
_NAMED = re.compile(r"(?i)\b((?:api|access|auth)?[-_ ]?(?:key|token|secret|password)\b[\"']?\s*[=:]\s*)\S+")
_QUOTES = str.maketrans("“”„‟", '""""')
# Such as a path of /rpc, whose word is in many sentences.
_MIN_SECRET_CHARS = 6


def plain(words: object, secrets: Iterable[str] = ()) -> str:
    """One printable line of at most `MAX_CHARS` characters, without URLs, without what looks like a key, and without
    `secrets`.
    """
    text = str(words)
    if len(text) > _MAX_READ:
        # Not in the middle of a word, of which the rest would not be known as a key any more.
        text = text[:_MAX_READ].rpartition(" ")[0]
    # What isn't printable are controls, and what changes the direction of the text around it.
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    text = _KEY.sub("[redacted]", _NAMED.sub(r"\1[redacted]", _URL.sub("[redacted]", text)))
    text = text.translate(_QUOTES)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def secrets_of(url: str) -> list[str]:
    """The parts of a URL that may be a provider's key, longest first."""
    parts = urlsplit(url)
    found = [parts.path.strip("/"), *parts.path.split("/"), parts.query, *re.split("[&=]", parts.query)]
    long = {part for part in found if len(part) >= _MIN_SECRET_CHARS}
    return sorted({*long, *filter(None, (parts.username, parts.password))}, key=len, reverse=True)
