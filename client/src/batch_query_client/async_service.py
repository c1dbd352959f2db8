"""The service, for callers that don't block. Each method does what its namesake in `service` does and raises."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import httpx

from batch_query_client import bundles, operations, paying, signing_in
from batch_query_client.answers import (
    BatchDetails,
    BatchPage,
    Cancelled,
    Chain,
    Connection,
    Estimate,
    Fact,
    FactPage,
    Status,
    UnsignedTransactions,
)
from batch_query_client.asking import Patience
from batch_query_client.bundles import VerifiedBundle
from batch_query_client.drivers import http_client, run_async
from batch_query_client.json_rpc import Node
from batch_query_client.operations import Access, BatchFilters, FactFilters, parameters
from batch_query_client.paying import Payer, Sending, Sent
from batch_query_client.questions import Account, Header, Webhook
from batch_query_client.service import AnyNode, Fee, request_body, some_key
from batch_query_client.signing_in import Sign


class AsyncBatchQueryService:
    """A Batch Query Service at a URL, for one event loop: `async with AsyncBatchQueryService(...) as service`.

    As `BatchQueryService` otherwise.
    """

    def __init__(self, url: str, *, api_key: str = "", patience: Patience | None = None) -> None:
        self._access = Access(url.rstrip("/"), api_key, patience or Patience())
        self._http = http_client()

    def __repr__(self) -> str:
        return f"AsyncBatchQueryService({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    @property
    def url(self) -> str:
        return self._access.url

    # --- Asking for facts

    async def submit(
        self,
        *,
        destination: int,
        queries: Iterable[Account | Header],
        fee: Fee | None = None,
        sender: Literal["self"] | None = None,
        webhook: Webhook | None = None,
        idempotency_key: str | None = None,
    ) -> "AsyncBatch":
        document = request_body(destination, queries, fee, sender, webhook)
        return await self.submit_body(document, idempotency_key=idempotency_key)

    async def submit_body(self, document: Mapping[str, Any], *, idempotency_key: str | None = None) -> "AsyncBatch":
        steps = operations.submit(self._access, document, idempotency_key or some_key())
        return AsyncBatch(await run_async(steps, self._http), self._access, self._http)

    async def estimate(
        self,
        *,
        destination: int,
        queries: Iterable[Account | Header],
        fee: Fee | None = None,
        sender: Literal["self"] | None = None,
    ) -> Estimate:
        return await self.estimate_body(request_body(destination, queries, fee, sender, None))

    async def estimate_body(self, document: Mapping[str, Any]) -> Estimate:
        return await run_async(operations.estimate(self._access, document), self._http)

    # --- Reading

    def batch(self, internal_id: str) -> "AsyncBatch":
        return AsyncBatch(internal_id, self._access, self._http)

    async def batches(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[BatchFilters]
    ) -> BatchPage:
        return await run_async(operations.batches(self._access, parameters(filters, limit, cursor)), self._http)

    async def facts(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[FactFilters]
    ) -> FactPage:
        return await run_async(operations.facts(self._access, parameters(filters, limit, cursor)), self._http)

    async def connections(self) -> tuple[Connection, ...]:
        return await run_async(operations.connections(self._access), self._http)

    async def chains(self) -> tuple[Chain, ...]:
        return await run_async(operations.chains(self._access), self._http)


@dataclass(frozen=True)
class AsyncBatch:
    """A batch of the service. As `Batch` otherwise."""

    id: str
    _access: Access = field(repr=False)
    _http: httpx.AsyncClient = field(repr=False)

    @property
    def page(self) -> str:
        return f"{self._access.url}/explorer/query/{self.id}"

    async def status(self) -> Status:
        return await run_async(operations.status(self._access, self.id), self._http)

    async def details(self) -> BatchDetails:
        return await run_async(operations.details(self._access, self.id), self._http)

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 (of the batch, and not of this coroutine)
        *,
        progress: Callable[[BatchDetails], object] | None = None,
    ) -> BatchDetails:
        """Wait as `Batch.wait` does; `progress` may be a coroutine function."""
        steps = operations.wait(self._access, self.id, timeout=timeout, progress=progress)
        return await run_async(steps, self._http)

    async def cancel(self) -> Cancelled:
        return await run_async(operations.cancel(self._access, self.id), self._http)

    async def facts_on_chain(self, node: AnyNode, *, registries: Mapping[int, str] | None = None) -> tuple[Fact, ...]:
        """Return the facts as `Batch.facts_on_chain` does; `node` may also be an `AsyncWeb3`."""
        steps = operations.facts_on_chain(self._access, self.id, self._node(node), registries)
        return await run_async(steps, self._http)

    async def bundle(self, number: int | None = None) -> bytes:
        return await run_async(operations.bundle(self._access, self.id, number), self._http)

    async def verify(self, *nodes: AnyNode, number: int | None = None) -> VerifiedBundle:
        by = [self._node(node) for node in nodes]
        return await run_async(operations.verify(self._access, self.id, number, by), self._http)

    async def transactions(self) -> UnsignedTransactions:
        return await run_async(operations.transactions(self._access, self.id), self._http)

    async def send(
        self,
        node: AnyNode,
        payer: Payer,
        *,
        timeout: float = 1800,  # noqa: ASYNC109 (of the batch, and not of this coroutine)
        progress: Callable[[Sending], object] | None = None,
    ) -> tuple[Sent, ...]:
        steps = paying.send(self._access, self.id, self._node(node), payer, timeout=timeout, progress=progress)
        return await run_async(steps, self._http)

    def _node(self, node: AnyNode) -> Node:
        return Node(node, self._access.patience)


# --- Without a service, or before there is a key ----------------------------------------------------------------------


async def sign_in_async(
    url: str, *, address: str, sign: Sign, chain_id: int | None = None, name: str = "batch-query-client"
) -> str:
    access = Access(url.rstrip("/"))
    async with http_client() as http:
        steps = signing_in.new_key(access, address=address, sign=sign, chain_id=chain_id, name=name)
        return await run_async(steps, http)


async def verify_bundle_by_nodes_async(
    document: str | bytes, nodes: Sequence[AnyNode], patience: Patience | None = None
) -> VerifiedBundle:
    async with http_client() as http:
        by = [Node(node, patience or Patience()) for node in nodes]
        return await run_async(bundles.verify_by_nodes(document, by), http)
