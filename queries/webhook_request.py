"""The field `webhook` of a batch query (docs/specification.md, "Webhooks").

URL and headers may hold credentials, so no fault shows any of their values.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from queries import webhook_targets
from queries.strict_json import invalid
from queries.webhook_targets import MAX_URL_CHARS

_MAX_HEADERS, _MAX_NAME_CHARS, _MAX_VALUE_CHARS = 16, 64, 1024
# RFC 9110: a token, and a value of visible characters with spaces in between. Others may write obsolete text as well.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?|", re.ASCII)
# Of the connection (RFC 9110, 7.6.1), of the body, and what this service writes itself.
_RESERVED = {
    *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "http2-settings"),
    *("host", "accept-encoding", "user-agent"),
}
_RESERVED_BEGINNINGS = ("content-", "proxy-", "webhook-")
# What clients of the service that this one replaces name, because its documentation did. Each event has it anyway.
_JSON = re.compile(r"application/json(?:[ \t]*;[ \t]*charset=\"?utf-8\"?)?", re.ASCII | re.IGNORECASE)


def _url(value: object) -> str:
    if not isinstance(value, str):
        raise invalid("A webhook's URL is a string.")
    try:
        webhook_targets.target(value)
    except webhook_targets.NotAllowed as error:
        raise invalid(str(error)) from None
    return value


def _header_name(value: object) -> str:
    name = value if isinstance(value, str) else ""
    if len(name) > _MAX_NAME_CHARS or not _TOKEN.fullmatch(name):
        raise invalid(f"A header's name has 1 to {_MAX_NAME_CHARS} letters, digits and signs as RFC 9110 allows.")
    if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_BEGINNINGS):
        raise invalid("This header is the service's to write: it belongs to the connection, the body or the signature.")
    return name


def _header_value(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_VALUE_CHARS or not _VALUE.fullmatch(value):
        raise invalid(
            f"A header's value has at most {_MAX_VALUE_CHARS} printable ASCII characters, without spaces around them."
        )
    return value


def _headers(value: object) -> object:
    if isinstance(value, dict):
        if len(value) > _MAX_HEADERS:
            raise invalid(f"A webhook has at most {_MAX_HEADERS} headers.")
        names = [str(name).lower() for name in value]
        if len(set(names)) < len(names):
            raise invalid("A header is named twice, in different capitals.")
        return {name: text for name, text in value.items() if not _is_sent_anyway(name, text)}
    return value


def _is_sent_anyway(name: object, value: object) -> bool:
    is_content_type = isinstance(name, str) and name.lower() == "content-type"
    return is_content_type and isinstance(value, str) and _JSON.fullmatch(value) is not None


def _events(value: list[str]) -> list[str]:
    if not value:
        raise invalid("Name at least one event, or leave out the list of events.")
    return list(dict.fromkeys(value))


Event = Literal["DONE", "REJECTED", "WENT_BACK", "STEP"]
_HeaderName = Annotated[str, BeforeValidator(_header_name)]
_HeaderValue = Annotated[str, BeforeValidator(_header_value, json_schema_input_type=str)]


class WebhookRequest(BaseModel):
    """The receiver of the batch's events, by a POST that is signed as Standard Webhooks says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Annotated[str, BeforeValidator(_url, json_schema_input_type=str)] = Field(
        repr=False,
        description="An https URL with a public host, port 443.",
        json_schema_extra={"maxLength": MAX_URL_CHARS, "examples": ["https://hooks.example.org/batches"]},
    )
    headers: Annotated[dict[_HeaderName, _HeaderValue], BeforeValidator(_headers)] = Field(
        default={}, repr=False, description="Headers that are sent with each request, such as a token."
    )
    events: Annotated[list[Event], AfterValidator(_events)] = Field(
        default=["DONE", "REJECTED", "WENT_BACK"],
        max_length=16,
        description="What is told. STEP: each step that all queries of the batch have completed.",
    )
