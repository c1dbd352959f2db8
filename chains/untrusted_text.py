"""Makes text from strangers fit for logs and public pages."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

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
# Shorter parts of a URL, such as /rpc, occur in many sentences.
_MIN_SECRET_CHARS = 6


def plain(words: object, secrets: Iterable[str] = ()) -> str:
    """One printable line of at most `MAX_CHARS` characters, without URLs, without what looks like a key, and without
    `secrets`.
    """
    text = str(words)
    if len(text) > _MAX_READ:
        # Cut between words: the rest of a key would no longer look like a key.
        text = text[:_MAX_READ].rpartition(" ")[0]
    # Controls are not printable, nor are characters that change the direction of text.
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
