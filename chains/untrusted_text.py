"""Makes text from strangers fit for logs and public pages."""

import re
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

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
