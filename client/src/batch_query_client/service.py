"""The service, for callers that block and callers that don't. `operations` has the steps of both."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Self, TypeVar
from urllib.parse import quote

import httpx

from batch_query_client import bundles, operations, paying, signing_in
from batch_query_client.answers import (
    BatchDetails,
    BatchPage,
    Cancelled,
    Chain,
    Chains,
    Connection,
    Connections,
    Estimate,
    Fact,
    FactPage,
    FoundSlots,
    ReadProof,
    ReadProofs,
    Status,
    UnsignedTransactions,
)
from batch_query_client.asking import Patience
from batch_query_client.bundles import VerifiedBundle
from batch_query_client.drivers import Blocking, NonBlocking, http_client, operation, run
from batch_query_client.effects import Steps
from batch_query_client.errors import UnexpectedAnswer
from batch_query_client.json_rpc import Node
from batch_query_client.operations import Access, fetch
from batch_query_client.paying import Payer, Sending, Sent
from batch_query_client.questions import Account, Header, Transaction, Webhook, Withdrawals, body
from batch_query_client.signing_in import Sign

Fee = int | Literal["auto"]
"""Maximum cost of the batch in wei of the destination's currency. `"auto"`: the bound of the estimate."""

AnyNode = Any
"""A node's http or https URL, or a connection of web3.py: a `Web3` or one of its providers, or an `AsyncWeb3` if the
caller doesn't block."""


# --- A batch ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BatchOperations:
    id: str
    _access: Access = field(repr=False)

    def __post_init__(self) -> None:
        operations.require_type("A batch's identifier", self.id, str)

    @property
    def page(self) -> str:
        """Return the URL of the batch's page. Anybody who has the URL can see the page."""
        return f"{self._access.url}/explorer/query/{self.id}"

    @operation
    def status(self) -> Steps[Status]:
        return (yield from fetch(self._access, Status, "/batch-query-status", {"batchQueryId": self.id}))

    @operation
    def details(self) -> Steps[BatchDetails]:
        """Return the batch with all queries, their steps, and the facts of completed queries."""
        return (yield from operations.details(self._access, self.id))

    @operation
    def wait(
        self, timeout: float | None = None, *, progress: Callable[[BatchDetails], object] | None = None
    ) -> Steps[BatchDetails]:
        """Wait until the batch is DONE, and return it. Its `facts` then have values.

        `timeout` is in seconds. Without it, the wait lasts at most until the service rejects the batch at its deadline.
        `progress` is called each time the batch has changed, with the batch and its first hundred queries. If the
        caller doesn't block, it may be a coroutine function. Raises `BatchRejected` and `NotDoneInTime`.
        """
        return (yield from operations.wait(self._access, self.id, timeout=timeout, progress=progress))

    @operation
    def cancel(self) -> Steps[Cancelled]:
        """Cancel the batch.

        Transactions that were sent stay on the chain. Raises `Conflict` if the batch has finished.
        """
        path = f"/batch-queries/{quote(self.id, safe='')}/cancel"
        return (yield from operations.post(self._access, Cancelled, path, {}))

    @operation
    def facts_on_chain(self, node: AnyNode, *, registries: Mapping[int, str] | None = None) -> Steps[tuple[Fact, ...]]:
        """Return the batch's facts from the facts registries, read through a node of the destination chain.

        The registries' addresses come from the service, or from `registries`, by source chain. Raises `NotProven`,
        `WrongFact` if the chain contradicts the service, `WrongChain`, `NodeRefused`.
        """
        return (yield from operations.facts_on_chain(self._access, self.id, self._node(node), registries))

    @operation
    def bundle(self, number: int | None = None) -> Steps[bytes]:
        """Return the proof bundle of all queries, or of the query with this number (from 1), as a JSON file.

        A bundle of all queries may have tens of megabytes. Raises `NotFound` before the queries are completed.
        """
        return (yield from operations.bundle(self._access, self.id, number))

    @operation
    def verify(self, *nodes: AnyNode, number: int | None = None) -> Steps[VerifiedBundle]:
        """Check the proof bundle of all queries, or of one query, against block hashes from your nodes.

        The returned values need no trust in the service. Each source chain needs a node. If it has several, they must
        agree. Raises `InvalidBundle`, `WrongChain`.
        """
        by = [self._node(node) for node in nodes]
        return (yield from operations.verify(self._access, self.id, number, by))

    @operation
    def transactions(self) -> Steps[UnsignedTransactions]:
        """Return the next transactions of a self-funded batch. Raises `Conflict` for other batches."""
        return (yield from operations.transactions(self._access, self.id))

    @operation
    def send(
        self,
        node: AnyNode,
        payer: Payer,
        *,
        timeout: float = 1800,
        progress: Callable[[Sending], object] | None = None,
    ) -> Steps[tuple[Sent, ...]]:
        """Send the transactions of a self-funded batch, through a node of the destination chain.

        A transaction is signed only if it is a proof for a facts registry. Raises `UnsafeTransaction`,
        `TransactionFailed`, `NotDoneInTime`.
        """
        by = self._node(node)
        return (yield from paying.send(self._access, self.id, by, payer, timeout=timeout, progress=progress))

    def _node(self, node: AnyNode) -> Node:
        return Node(node, self._access.patience)


class Batch(_BatchOperations, Blocking):
    """A batch of the service. Its methods block, and raise the errors of `BatchQueryService`."""


@dataclass(frozen=True)
class AsyncBatch(_BatchOperations, NonBlocking):
    """A batch of the service, like `Batch`, whose methods are coroutines."""

    http: httpx.AsyncClient = field(repr=False)


# --- The service ------------------------------------------------------------------------------------------------------

AnyBatch = TypeVar("AnyBatch", Batch, AsyncBatch)


class _ServiceOperations(Generic[AnyBatch]):
    def __init__(self, url: str, *, api_key: str = "", patience: Patience | None = None) -> None:
        self._access = Access(url, api_key, patience or Patience())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        return self._access.url

    def batch(self, internal_id: str) -> AnyBatch:
        """Return a batch that was submitted before. No request is sent."""
        raise NotImplementedError

    # --- Submitting

    @operation
    def submit(
        self,
        *,
        destination: int,
        queries: Iterable[Account | Header | Transaction],
        fee: Fee | None = None,
        sender: Literal["self"] | None = None,
        webhook: Webhook | None = None,
        label: str | None = None,
        idempotency_key: str | None = None,
    ) -> Steps[AnyBatch]:
        """Submit a batch: queries about source chains whose facts become readable on the chain `destination`.

        The `fee` is `"auto"` by default. With `sender="self"` the caller sends the transactions (`Batch.send`), and no
        fee is needed. The `label` is a name by which lists find the batch. Others may see it.

        If a request may have been lost, it is sent again with the same idempotency key, so that only one batch is made.
        A caller that keeps the key may do the same after a restart.

        Raises `InvalidRequest` with every fault, and `ValueError` for invalid arguments.
        """
        document = _body(destination, queries, fee, sender, webhook=webhook, label=label)
        return (yield from self._submit(document, idempotency_key))

    @operation
    def submit_body(self, document: Mapping[str, Any], *, idempotency_key: str | None = None) -> Steps[AnyBatch]:
        """Submit a batch like `submit`, with a request body in the API's form."""
        return (yield from self._submit(document, idempotency_key))

    def _submit(self, document: Mapping[str, Any], idempotency_key: str | None) -> Steps[AnyBatch]:
        key = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
        operations.require_type("An idempotency key", key, str)
        return self.batch((yield from operations.submit(self._access, document, key)))

    @operation
    def estimate(
        self,
        *,
        destination: int,
        queries: Iterable[Account | Header | Transaction],
        fee: Fee | None = None,
        sender: Literal["self"] | None = None,
    ) -> Steps[Estimate]:
        """Return the cost of the batch, and whether it would be accepted.

        Nothing is stored. Raises the errors of `submit`.
        """
        document = _body(destination, queries, fee, sender)
        return (yield from operations.post(self._access, Estimate, "/estimate-batch-query", document))

    @operation
    def estimate_body(self, document: Mapping[str, Any]) -> Steps[Estimate]:
        """Return an estimate like `estimate`, for a request body in the API's form."""
        return (yield from operations.post(self._access, Estimate, "/estimate-batch-query", document))

    # --- Reading

    @operation
    def read_proofs(
        self, *, destination: int, queries: Iterable[Account | Transaction | Withdrawals]
    ) -> Steps[tuple[ReadProof, ...]]:
        """Return accounts, slots, receipts, logs and withdrawals, with proofs that a `FactsReader` takes. At most 100.

        Nothing is stored, and nothing is paid. Raises the errors of `submit`.
        """
        return (yield from self._read_proofs(_body(destination, queries, None, None)))

    @operation
    def read_proofs_body(self, document: Mapping[str, Any]) -> Steps[tuple[ReadProof, ...]]:
        """Return proofs like `read_proofs`, for a request body in the API's form."""
        return (yield from self._read_proofs(document))

    def _read_proofs(self, document: Mapping[str, Any]) -> Steps[tuple[ReadProof, ...]]:
        return (yield from operations.post(self._access, ReadProofs, "/read-proofs", document)).proofs

    @operation
    def find_slots(
        self,
        contract: str,
        signature: str,
        *arguments: str | int | bool,
        chain: int,
        block: int | str = "latest",
        position: int | None = None,
        base: int | str | None = None,
    ) -> Steps[FoundSlots]:
        """Return the storage slot from which a view call answers, such as `"balanceOf(address)"`, and its layout.

        `block` is a number, `"latest"` or `"finalized"`. `position` is the word of an answer of several. `base`
        is a hint where the layout begins: a slot, or a namespace such as `"erc7201:example.main"`. Raises
        `InvalidRequest` with the code `slots_unknown`, `call_failed` or `proof_unavailable`, `UnexpectedAnswer`, and
        the errors of `submit`.
        """
        document = {
            "sourceChainId": str(chain),
            "block": f"block:{block}" if isinstance(block, int) else block,
            "contract": contract,
            "signature": signature,
            "arguments": [str(each).lower() if isinstance(each, bool) else str(each) for each in arguments],
            **({} if position is None else {"position": str(position)}),
            **({} if base is None else {"base": str(base)}),
        }
        found = yield from operations.post(self._access, FoundSlots, "/find-slots", document)
        if found.source_chain_id != chain or block not in {found.block_number, "latest", "finalized"}:
            raise UnexpectedAnswer("The service found slots of another chain or block than it was asked for.")
        return found

    @operation
    def batches(self, /, *, limit: int | None = None, cursor: str | None = None, **filters: Any) -> Steps[BatchPage]:
        """Return a page of your batches, newest first. `cursor` is the `next` of the previous page.

        The filters are the API's: `status`, `label`, `destination_chain_id`, `source_chain_id`, `account`, `block`,
        `created_after` and `created_before`.
        """
        parameters = {**filters, "limit": limit, "cursor": cursor}
        return (yield from fetch(self._access, BatchPage, "/batch-queries", parameters))

    @operation
    def facts(self, /, *, limit: int | None = None, cursor: str | None = None, **filters: Any) -> Steps[FactPage]:
        """Return a page of facts that the service has proven for anybody.

        The filters are the API's: `destination_chain_id`, `source_chain_id`, `account`, `block`, `property` and `slot`.
        """
        return (yield from fetch(self._access, FactPage, "/facts", {**filters, "limit": limit, "cursor": cursor}))

    @operation
    def connections(self) -> Steps[tuple[Connection, ...]]:
        """Return the pairs of chains between which facts can be proven."""
        return (yield from fetch(self._access, Connections, "/chain-connections")).connections

    @operation
    def chains(self) -> Steps[tuple[Chain, ...]]:
        """Return the service's chains, with their names and currencies."""
        return (yield from fetch(self._access, Chains, "/chains.json")).chains


def _body(
    destination: int,
    queries: Iterable[Account | Header | Transaction | Withdrawals],
    fee: Fee | None,
    sender: str | None,
    *,
    webhook: Webhook | None = None,
    label: str | None = None,
) -> dict[str, Any]:
    """Return the request body for the arguments of `BatchQueryService.submit`. Raises `ValueError`."""
    if fee is None and sender != "self":
        fee = "auto"
    return body(
        destination=destination,
        queries=queries,
        fee=fee,
        is_paid_by_caller=sender == "self",
        webhook=webhook,
        label=label,
    )


class BatchQueryService(_ServiceOperations[Batch], Blocking):
    """A Batch Query Service at a URL. Its methods block. Several threads may use them.

    All methods raise `ServiceRefused` (or a subclass) if the service refuses a request. They raise `Unavailable` if the
    service can't be reached or can't answer after the retries that `patience` allows. `api_key` comes from the
    service's dashboard or from `sign_in`. `connections` and `chains` need no key. The constructor raises `ValueError`
    for an invalid URL or key.
    """

    def batch(self, internal_id: str) -> Batch:
        return Batch(internal_id, self._access)


class AsyncBatchQueryService(_ServiceOperations[AsyncBatch], NonBlocking):
    """A Batch Query Service at a URL, for one event loop: `async with AsyncBatchQueryService(...) as service`.

    It is like `BatchQueryService`, but its methods are coroutines.
    """

    def __init__(self, url: str, *, api_key: str = "", patience: Patience | None = None) -> None:
        super().__init__(url, api_key=api_key, patience=patience)
        self.http = http_client()

    def batch(self, internal_id: str) -> AsyncBatch:
        return AsyncBatch(internal_id, self._access, self.http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the service's connections."""
        await self.http.aclose()


# --- Functions that need no key ---------------------------------------------------------------------------------------


def sign_in(
    url: str, *, address: str, sign: Sign, chain_id: int | None = None, name: str = "batch-query-client"
) -> str:
    """Make a new API key for this address, by Sign in with Ethereum.

    `sign` signs a text by `personal_sign` (EIP-191). The text is checked first: it must be a sign-in to this URL and
    nothing else. `chain_id` is the chain of a contract wallet. Raises `UnsafeSignIn`, `ServiceRefused`, `Unavailable`.
    """
    access = Access(url)
    return run(signing_in.new_key(access, address=address, sign=sign, chain_id=chain_id, name=name))


def verify_bundle_by_nodes(
    document: str | bytes, nodes: Sequence[AnyNode], patience: Patience | None = None
) -> VerifiedBundle:
    """Verify a bundle like `verify_bundle`, with block hashes from nodes. Each source chain needs a node.

    Raises `InvalidBundle`, `WrongChain`, `NodeRefused`, `Unavailable`.
    """
    return run(bundles.verify_by_nodes(document, [Node(node, patience or Patience()) for node in nodes]))
