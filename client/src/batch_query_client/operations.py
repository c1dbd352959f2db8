"""The API's operations, as steps for the blocking and the non-blocking service."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from pydantic.alias_generators import to_camel

from batch_query_client import bundles, registry
from batch_query_client.answers import (
    BatchDetails,
    Fact,
    Query,
    Status,
    Submitted,
    UnsignedTransactions,
)
from batch_query_client.asking import Model, Patience, ask, read, require, retry_after
from batch_query_client.bundles import VerifiedBundle, VerifiedQuery
from batch_query_client.effects import MEGABYTE, Now, Pause, Request, Steps, Tell
from batch_query_client.errors import BatchRejected, InvalidBundle, NotDoneInTime, UnexpectedAnswer
from batch_query_client.json_rpc import Node
from batch_query_client.receipts import log_hash

# Seconds for which the service may hold a status request open: usually, and if the caller wants to see each step.
LONG_POLL, WATCHED_POLL = 25, 2
# Minimum seconds between requests if the service answers immediately.
_LEAST_PAUSE = 0.5
# Seconds between requests if the service sends no Retry-After.
_POLL_SECONDS = 2
_PAGE = 100
# Additional seconds for a bundle, which may have tens of megabytes.
_BUNDLE_SECONDS = 300


def require_type(what: str, value: object, *kinds: type) -> None:
    """Raise `ValueError` if the value is of none of these types. The sentence leaves it out: it may be a key."""
    if not isinstance(value, kinds):
        raise ValueError(f"{what} is of the type {kinds[0].__name__}, not {type(value).__name__}.")


@dataclass(frozen=True)
class Access:
    """A service's URL with the caller's key and patience. Raises `ValueError`."""

    url: str
    """A slash at its end is left out."""
    api_key: str = field(default="", repr=False)
    patience: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        require_type("The service's address", self.url, str)
        require_type("The API key", self.api_key, str)
        require_type("The patience", self.patience, Patience)
        object.__setattr__(self, "url", self.url.rstrip("/"))
        parts = urlsplit(self.url)
        is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
        if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain:
            raise ValueError("The service's address is an http or https URL without a user and a query.")
        if not (self.api_key.isascii() and self.api_key.isprintable()) or " " in self.api_key:
            raise ValueError("The API key has invalid characters.")

    def request(self, path: str, parameters: Mapping[str, Any] | None = None, **more: Any) -> Request:
        """Make a GET request with the parameters that are not None, in the API's spelling."""
        fields = {
            to_camel(name): value.isoformat() if isinstance(value, datetime) else value
            for name, value in (parameters or {}).items()
            if value is not None
        }
        url = f"{self.url}{path}{'?' if fields else ''}{urlencode(fields)}"
        headers = [("accept", "application/json"), *more.pop("headers", ())]
        if self.api_key:
            headers.append(("api-key", self.api_key))
        return replace(Request("GET", url, headers, seconds=self.patience.answer_seconds), **more)

    def post(self, path: str, body: bytes = b"", *headers: tuple[str, str]) -> Request:
        request = self.request(path, headers=[*headers, ("content-type", "application/json")])
        return replace(request, method="POST", body=body)


def fetch(access: Access, model: type[Model], path: str, parameters: Mapping[str, Any] | None = None) -> Steps[Model]:
    """Return the object at a path. Raises `ServiceRefused`, `Unavailable`."""
    return (yield from _take(access, model, access.request(path, parameters)))


def _take(access: Access, model: type[Model], request: Request) -> Steps[Model]:
    answer = yield from ask(request, access.patience)
    return read(model, require(answer, request.url), request.url)


# --- Submissions ------------------------------------------------------------------------------------------------------


def submit(access: Access, body: Mapping[str, Any], idempotency_key: str) -> Steps[str]:
    """Submit a batch and return its identifier. Repeated requests with the same key make only one batch."""
    header = ("idempotency-key", idempotency_key)
    return (yield from post(access, Submitted, "/submit-batch-query", body, header)).internal_id


def post(
    access: Access, model: type[Model], path: str, body: Mapping[str, Any], *headers: tuple[str, str]
) -> Steps[Model]:
    """Send a POST request that may be repeated. Raises `ServiceRefused`, `Unavailable`."""
    content = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    return (yield from _take(access, model, access.post(path, content, *headers)))


# --- A batch ----------------------------------------------------------------------------------------------------------


def details(access: Access, internal_id: str) -> Steps[BatchDetails]:
    """Return the batch with all its queries, which come in pages."""
    path = f"/batch-queries/{quote(internal_id, safe='')}"
    first = yield from fetch(access, BatchDetails, path, {"limit": _PAGE})
    queries: dict[int, Query] = {query.number: query for query in first.query_list}
    cursor = first.next
    while cursor is not None:
        page = yield from fetch(access, BatchDetails, path, {"limit": _PAGE, "cursor": cursor})
        has_more = any(query.facts or query.number not in queries for query in page.query_list)
        if not has_more or page.next == cursor or len(queries) > first.queries:
            # Without this check, repeated pages would be followed for ever.
            raise UnexpectedAnswer("The service's list of queries doesn't end.")
        for query in page.query_list:
            # A query of many facts is told in parts.
            before = queries[query.number].facts if query.number in queries else ()
            queries[query.number] = query.model_copy(update={"facts": before + query.facts})
        cursor = page.next
    return first.model_copy(update={"query_list": tuple(queries.values()), "next": None})


def transactions(access: Access, internal_id: str) -> Steps[UnsignedTransactions]:
    return (
        yield from fetch(access, UnsignedTransactions, f"/batch-queries/{quote(internal_id, safe='')}/transactions")
    )


def bundle(access: Access, internal_id: str, number: int | None) -> Steps[bytes]:
    """Return the received proof bundle of all queries, or of the query with this number (from 1)."""
    path = f"{quote(internal_id, safe='')}/{'' if number is None else f'{number}/'}bundle.json"
    seconds = access.patience.answer_seconds + _BUNDLE_SECONDS
    # The bundle is public, so the key is not sent.
    public = replace(access, api_key="")
    request = public.request(f"/explorer/query/{path}", max_bytes=bundles.MAX_BYTES, seconds=seconds)
    answer = yield from ask(request, access.patience)
    return require(answer, request.url).content


# --- Waiting ----------------------------------------------------------------------------------------------------------


def wait(
    access: Access, internal_id: str, *, timeout: float | None, progress: Callable[[BatchDetails], object] | None
) -> Steps[BatchDetails]:
    """Wait until the batch is DONE, and return it.

    `progress` is called each time the batch has changed, with the batch and its first hundred queries. Raises
    `BatchRejected`, `NotDoneInTime`, and the errors of `fetch`.
    """
    began = yield Now()
    require_type("A timeout", timeout, float, int, type(None))
    remaining = math.inf if timeout is None else timeout
    shown = b""
    while True:
        limited = replace(access, patience=access.patience.at_most(remaining))
        at = yield Now()
        if progress is not None:
            shown = yield from _show(limited, internal_id, shown, progress)
        kept = int(min(remaining, LONG_POLL if progress is None else WATCHED_POLL))
        request = limited.request(
            "/batch-query-status",
            {"batchQueryId": internal_id, "wait": kept},
            seconds=kept + access.patience.answer_seconds,
            max_bytes=MEGABYTE,
        )
        answer = require((yield from ask(request, limited.patience)), request.url)
        status = read(Status, answer, request.url)
        if status.query_status == "DONE":
            done = yield from details(access, internal_id)
            # A reorganisation may have rolled the batch back since the last status.
            if done.query_status == "DONE":
                if progress is not None:
                    yield Tell(progress, done)
                return done
        if status.query_status == "REJECTED":
            why = status.error or "The batch was rejected."
            raise BatchRejected(why, internal_id=internal_id, code=status.code, retryable=status.retryable)
        ended = yield Now()
        remaining = math.inf if timeout is None else timeout - (ended - began)
        if remaining <= 0:
            sentence = " ".join([f"The batch {internal_id} is not DONE after {timeout:g} s.", *status.info])
            raise NotDoneInTime(sentence, internal_id=internal_id, waits=status.info)
        # A service that holds no requests open, or already holds too many, answers immediately.
        if not ended - at >= kept > 0:
            advised = retry_after(answer)
            interval = max(_LEAST_PAUSE, _POLL_SECONDS if advised is None else advised)
            yield Pause(min(interval - (ended - at), remaining))


def _show(access: Access, internal_id: str, shown: bytes, progress: Callable[[BatchDetails], object]) -> Steps[bytes]:
    """Call `progress` with the batch if the answer differs from the last shown answer. Return the new answer."""
    request = access.request(f"/batch-queries/{quote(internal_id, safe='')}", {"limit": _PAGE})
    answer = require((yield from ask(request, access.patience)), request.url)
    if answer.content != shown:
        yield Tell(progress, read(BatchDetails, answer, request.url))
    return answer.content


# --- Verified results -------------------------------------------------------------------------------------------------


def facts_on_chain(
    access: Access, internal_id: str, node: Node, registries: Mapping[int, str] | None
) -> Steps[tuple[Fact, ...]]:
    """Return the facts of a batch as the registries hold them. Raises the errors of `registry.require_facts`."""
    reported = (yield from details(access, internal_id)).facts
    return tuple((yield from registry.require_facts(node, reported, registries)))


def verify(access: Access, internal_id: str, number: int | None, nodes: Sequence[Node]) -> Steps[VerifiedBundle]:
    """Check the proof of a query, or of all queries, against the nodes' block hashes and the service's facts.

    Raises `InvalidBundle`, `WrongChain`, and the errors of requests.
    """
    document = yield from bundle(access, internal_id, number)
    batch = yield from details(access, internal_id)
    proven = yield from bundles.verify_by_nodes(document, nodes)
    queries = {query.number: query for query in batch.query_list if number in {None, query.number}}
    if set(proven.queries) != set(queries):
        raise InvalidBundle("The bundle has other queries than the requested ones.")
    for at, query in queries.items():
        try:
            _require_same_facts(query, proven.queries[at])
        except InvalidBundle as invalid:
            raise InvalidBundle(f"Query {at}: {invalid}") from None
    return proven


def _require_same_facts(query: Query, proven: VerifiedQuery) -> None:
    """Raise `InvalidBundle` unless the bundle belongs to this query and proves the words that the service reports."""
    about = (query.source_chain_id, query.block_number, query.account.lower())
    if (proven.source_chain_id, proven.block_number, (proven.account or "").lower()) != about:
        raise InvalidBundle("The bundle and the query differ in account, block or chain.")
    kind, _, number = query.selector.partition(":")
    if proven.claimed_timestamp != (int(number) if kind == "timestamp" else None):
        raise InvalidBundle("The bundle and the query differ in time.")
    if kind == "block" and number != str(query.block_number):
        raise InvalidBundle("The service reports another block than the requested one.")
    told = query.transaction
    is_same = proven.transaction == (told.index if told else None)
    # The service may know the hash by another batch. Then this bundle has no proof of it.
    if not is_same or (told and told.hash and proven.transaction_hash not in {None, told.hash.lower()}):
        raise InvalidBundle("The bundle and the query differ in transaction.")
    shown = {**proven.facts, **{f"SLOT {slot}": word for slot, word in proven.slots.items()}}
    shown |= {f"LOG {index}": log_hash(log) for index, log in proven.logs.items()}
    # The bundle has no word for BLOCK_AT_TIMESTAMP. `proven.timestamp` has it.
    facts = [fact for fact in query.facts if fact.property != "BLOCK_AT_TIMESTAMP"]
    reported = [(f"{fact.property} {fact.log.index if fact.log else fact.slot}".rstrip(), fact) for fact in facts]
    if more := sorted(shown.keys() - dict(reported)):
        raise InvalidBundle(f"The bundle shows {more[0]}, which the service doesn't report.")
    for name, fact in reported:
        if shown.get(name) != fact.word or (fact.log is not None and log_hash(fact.log) != fact.word):
            raise InvalidBundle(f"The bundle shows another {name} than the service.")
