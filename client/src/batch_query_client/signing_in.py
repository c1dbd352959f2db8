"""Sign-in with Ethereum (EIP-4361) to get an API key, by the same requests as the dashboard."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from batch_query_client import operations
from batch_query_client.answers import AnswerModel, Connections, Number
from batch_query_client.asking import Model, ask, read, require
from batch_query_client.effects import MEGABYTE, HttpAnswer, Request, Steps
from batch_query_client.errors import Conflict, UnsafeSignIn
from batch_query_client.operations import Access
from batch_query_client.plain_text import plain

Sign = Callable[[str], str]
"""A function that signs a text by `personal_sign` (EIP-191). It returns 0x and hexadecimal digits."""

_LINES = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<domain>[^\s/]+) wants you to sign in with your Ethereum account:\n"
    r"(?P<address>0x[0-9a-fA-F]{40})\n\n(?:[^\n]*\n)?\nURI: (?P<uri>\S+)\n",
    re.ASCII,
)


class _Message(AnswerModel):
    message: Annotated[str, Field(max_length=4096)]


class _Key(AnswerModel):
    id: Number


class _RevealedKey(AnswerModel):
    api_key: Annotated[str, Field(pattern=r"^[!-~]{8,200}$", repr=False)]


@dataclass
class _Session:
    """The cookies of one sign-in. Each answer may set new ones."""

    access: Access
    cookies: dict[str, str] = field(default_factory=dict, repr=False)

    def get(self, path: str) -> Steps[HttpAnswer]:
        return (yield from self._send(self.access.request(path, max_bytes=MEGABYTE, headers=self._cookie())))

    def post(self, model: type[Model], path: str, body: Any) -> Steps[Model]:
        # The prefix of the cookie's name depends on the service's address and version.
        token = next((value for name, value in self.cookies.items() if name.endswith("csrftoken")), "")
        headers = [("x-csrftoken", token), ("referer", f"{self.access.url}/sign-in")]
        request = self.access.post(path, json.dumps(body).encode(), *headers, *self._cookie())
        return read(model, (yield from self._send(request, is_repeatable=False)), request.url)

    def _send(self, request: Request, *, is_repeatable: bool = True) -> Steps[HttpAnswer]:
        answer = yield from ask(request, self.access.patience, is_repeatable=is_repeatable)
        for name, value in answer.headers:
            if name == "set-cookie":
                self._take(value)
        return require(answer, request.url)

    def _take(self, text: str) -> None:
        try:
            cookies = SimpleCookie(text)
        except CookieError:
            return
        self.cookies |= {name: morsel.value for name, morsel in cookies.items()}

    def _cookie(self) -> list[tuple[str, str]]:
        return [("cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))]


def new_key(access: Access, *, address: str, sign: Sign, chain_id: int | None, name: str) -> Steps[str]:
    """Make a new API key for this address. If the name is taken, the key gets a numbered name.

    `chain_id` is the chain of a contract wallet. If it is None, any chain of the service is used. Raises `UnsafeSignIn`
    if the text to sign is not a sign-in to the service, `ServiceRefused`, `Unavailable`.
    """
    session = _Session(replace(access, api_key=""))
    yield from session.get("/sign-in")
    if chain_id is None:
        known = (yield from operations.fetch(session.access, Connections, "/chain-connections")).connections
        chain_id = known[0].destination_chain_id if known else 1
    request = {"address": address, "chainId": str(chain_id)}
    message = (yield from session.post(_Message, "/sign-in/message", request)).message
    check_message(message, access.url, address)
    signed = {"message": message, "signature": sign(message)}
    yield from session.post(AnswerModel, "/sign-in/verify", signed)
    try:
        key = yield from session.post(_Key, "/dashboard/keys", {"name": name})
    except Conflict as conflict:
        if conflict.code != "name_taken":
            raise
        key = yield from session.post(_Key, "/dashboard/keys", {})
    return (yield from session.post(_RevealedKey, f"/dashboard/keys/{key.id}/reveal", {})).api_key


def check_message(message: str, url: str, address: str) -> None:
    """Check that the message signs this address in at this URL and nowhere else (EIP-4361). Raises `UnsafeSignIn`."""
    match = _LINES.match(message)
    if match is None:
        raise UnsafeSignIn("The service asks to sign something that is not a sign-in message. It was not signed.")
    ours = urlsplit(url)
    named = urlsplit(match["uri"])
    if match["domain"] != ours.netloc or (named.scheme, named.netloc) != (ours.scheme, ours.netloc):
        raise UnsafeSignIn(
            f"The service wants a sign-in to {plain(match['domain'])} signed, not to {ours.netloc}. The client did "
            f"not sign it; use the address that the service names."
        )
    if match["address"].lower() != address.lower():
        raise UnsafeSignIn("The service asks to sign in another address. It was not signed.")
