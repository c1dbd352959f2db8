"""API keys in the query strings of requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote_plus, unquote_plus

from config.logs import redact_keys

PARAMETER = "apiKey"


def presents_key(meta: Mapping[str, str]) -> bool:
    """Return whether a request presents a key. `meta` has its variables, as they are before the middleware."""
    return bool(meta.get("HTTP_API_KEY") or read_query(meta.get("QUERY_STRING", "")).first_key)


@dataclass(frozen=True)
class QueryString:
    without_keys: str
    first_key: str
    """The value of the first parameter `apiKey`. Empty if there is none."""


def read_query(query: str) -> QueryString:
    """Take API keys out of a query string. Parameters are split as `QueryDict` does."""
    kept, keys = [], []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        # The name is matched in any capitalization, because its value may still be a key.
        if unquote_plus(name).lower() == PARAMETER.lower():
            keys.append(unquote_plus(value))
        else:
            kept.append(redacted(part))
    return QueryString("&".join(kept), next(iter(keys), ""))


def redacted(part: str) -> str:
    """Redact the keys in a percent-encoded part of a URL. A part without keys is returned unchanged."""
    text = unquote_plus(part)
    redacted = redact_keys(text)
    return part if redacted == text else quote_plus(redacted, safe=":/=")
