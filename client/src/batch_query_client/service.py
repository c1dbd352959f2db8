"""The service, for callers that block."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Unpack

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
from batch_query_client.drivers import run
from batch_query_client.json_rpc import Node
from batch_query_client.operations import Access, BatchFilters, FactFilters, parameters
from batch_query_client.paying import Payer, Sending, Sent
from batch_query_client.questions import Account, Header, Webhook, body
from batch_query_client.signing_in import Sign

Fee = int | Literal["auto"]
"""In wei of the destination's currency: the most that the batch may cost. `"auto"`: the bound of the estimate."""

AnyNode = Any
"""A node's http or https URL, or a connection of web3.py: a `Web3`, or one of its providers."""


def request_body(
    destination: int, queries: Iterable[Account | Header], fee: Fee | None, sender: str | None, webhook: Webhook | None
) -> dict[str, Any]:
    """Return the body for the arguments of `BatchQueryService.submit`. Raises `ValueError`."""
    if fee is None and sender != "self":
        fee = "auto"
    return body(destination=destination, queries=queries, fee=fee, is_paid_by_caller=sender == "self", webhook=webhook)


def some_key() -> str:
    """Make an idempotency key that nobody else has."""
    return str(uuid.uuid4())


class BatchQueryService:
    """A Batch Query Service at a URL. Everything here blocks, and may be used by several threads.

    All methods raise `ServiceRefused` (or what it is the base of) where the service refuses a request, and
    `Unavailable` where it can't be reached or can't answer although what may pass was tried again for as long as
    `patience` says. `api_key` is that of the service's dashboard, or of `sign_in`; listing what can be proven where
    needs none. Raises `ValueError` for what is no URL or no key.
    """

    def __init__(self, url: str, *, api_key: str = "", patience: Patience | None = None) -> None:
        self._access = Access(url.rstrip("/"), api_key, patience or Patience())

    def __repr__(self) -> str:
        return f"BatchQueryService({self.url!r})"

    @property
    def url(self) -> str:
        return self._access.url

    # --- Asking for facts

    def submit(
        self,
        *,
        destination: int,
        queries: Iterable[Account | Header],
        fee: Fee | None = None,
        sender: Literal["self"] | None = None,
        webhook: Webhook | None = None,
        idempotency_key: str | None = None,
    ) -> "Batch":
        """Ask for facts about source chains, to be readable on the chain `destination`.

        Without a `fee`, it is `"auto"`. With `sender="self"` the caller sends the transactions (`Batch.send`), and no
        fee is needed. The request is sent again where it may have been lost, under one idempotency key, so that it
        makes one batch; a caller that keeps the key may do the same after a restart. Raises `InvalidRequest` with
        every fault, and `ValueError` for what can't be written as a request.
        """
        document = request_body(destination, queries, fee, sender, webhook)
        return self.submit_body(document, idempotency_key=idempotency_key)

    def submit_body(self, document: Mapping[str, Any], *, idempotency_key: str | None = None) -> "Batch":
        """Submit a batch as `submit` does, with the request's body as the API specifies it."""
        internal_id = run(operations.submit(self._access, document, idempotency_key or some_key()))
        return Batch(internal_id, self._access)

    def estimate(
        self,
        *,
        destination: int,
        queries: Iterable[Account | Header],
        fee: Fee | None = None,
        sender: Literal["self"] | None = None,
    ) -> Estimate:
        """Return what the batch would cost, and whether it would be taken. Nothing is stored. Raises as `submit`."""
        return self.estimate_body(request_body(destination, queries, fee, sender, None))

    def estimate_body(self, document: Mapping[str, Any]) -> Estimate:
        """Return what `estimate` does, with the request's body as the API specifies it."""
        return run(operations.estimate(self._access, document))

    # --- Reading

    def batch(self, internal_id: str) -> "Batch":
        """Return a batch that was submitted before. Asks nothing yet."""
        return Batch(internal_id, self._access)

    def batches(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[BatchFilters]
    ) -> BatchPage:
        """Return a part of your batches, newest first; `cursor` is the `next` of the part before."""
        return run(operations.batches(self._access, parameters(filters, limit, cursor)))

    def facts(self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[FactFilters]) -> FactPage:
        """Return a part of what was proven here by anybody."""
        return run(operations.facts(self._access, parameters(filters, limit, cursor)))

    def connections(self) -> tuple[Connection, ...]:
        """Return which source chains can be proven on which destination chains."""
        return run(operations.connections(self._access))

    def chains(self) -> tuple[Chain, ...]:
        """Return the chains that the service serves, with their names and currencies."""
        return run(operations.chains(self._access))


@dataclass(frozen=True)
class Batch:
    """A batch of the service. Everything here blocks, and raises as `BatchQueryService` says."""

    id: str
    _access: Access = field(repr=False)

    @property
    def page(self) -> str:
        """Return the URL of its page. Anybody who has the URL may see the page."""
        return f"{self._access.url}/explorer/query/{self.id}"

    def status(self) -> Status:
        return run(operations.status(self._access, self.id))

    def details(self) -> BatchDetails:
        """Return the batch with all queries, their steps, and the facts of those that are completed."""
        return run(operations.details(self._access, self.id))

    def wait(
        self, timeout: float | None = None, *, progress: Callable[[BatchDetails], object] | None = None
    ) -> BatchDetails:
        """Wait until the batch is DONE, and return it; its `facts` have values then.

        `timeout` is in seconds; without one it takes as long as the service gives the batch. `progress` is called each
        time something has changed, with the batch as it is and its first hundred queries. Raises
        `BatchRejected` and `NotDoneInTime`.
        """
        return run(operations.wait(self._access, self.id, timeout=timeout, progress=progress))

    def cancel(self) -> Cancelled:
        """Reject it. What was sent for it stays. Raises `Conflict` where it has finished."""
        return run(operations.cancel(self._access, self.id))

    def facts_on_chain(self, node: AnyNode, *, registries: Mapping[int, str] | None = None) -> tuple[Fact, ...]:
        """Return its facts as facts registries hold them, read through a node of the destination chain.

        Nothing but the registries' addresses is taken from the service; give `registries`, by source chain, to rely on
        addresses that you know. Raises `NotProven`, `WrongFact` where the chain says otherwise than the service,
        `WrongChain`, `NodeRefused`.
        """
        return run(operations.facts_on_chain(self._access, self.id, _node(node, self._access), registries))

    def bundle(self, number: int | None = None) -> bytes:
        """Return the proof bundle of all queries, or of one (by its number, from 1): a JSON file.

        That of all has up to tens of megabytes. Raises `NotFound` before they are completed.
        """
        return run(operations.bundle(self._access, self.id, number))

    def verify(self, *nodes: AnyNode, number: int | None = None) -> VerifiedBundle:
        """Check the proof bundle of all queries, or of one, by the block hashes that your nodes of source chains tell.

        Its values are then those of these blocks, whatever the service is. Each source chain needs a node; several of
        one must agree. Raises `InvalidBundle`, `WrongChain`.
        """
        by = [_node(node, self._access) for node in nodes]
        return run(operations.verify(self._access, self.id, number, by))

    def transactions(self) -> UnsignedTransactions:
        """Return what is to be sent next of a batch that the caller pays. Raises `Conflict` for any other."""
        return run(operations.transactions(self._access, self.id))

    def send(
        self,
        node: AnyNode,
        payer: Payer,
        *,
        timeout: float = 1800,
        progress: Callable[[Sending], object] | None = None,
    ) -> tuple[Sent, ...]:
        """Send what it takes, of a batch that the caller pays, through a node of the destination chain.

        What the service asks for is signed only if it is a proof for a facts registry. Raises `UnsafeTransaction`,
        `TransactionFailed`, `NotDoneInTime`.
        """
        steps = paying.send(self._access, self.id, _node(node, self._access), payer, timeout=timeout, progress=progress)
        return run(steps)


def _node(node: AnyNode, access: Access) -> Node:
    return Node(node, access.patience)


# --- Without a service, or before there is a key ----------------------------------------------------------------------


def sign_in(
    url: str, *, address: str, sign: Sign, chain_id: int | None = None, name: str = "batch-query-client"
) -> str:
    """Make a new API key of this address, by Sign in with Ethereum.

    `sign` signs a text by `personal_sign` (EIP-191): what is given to it was checked to be a sign-in to this URL and
    nothing else. `chain_id` is that of a contract wallet. Raises `UnsafeSignIn`, `ServiceRefused`, `Unavailable`.
    """
    steps = signing_in.new_key(Access(url.rstrip("/")), address=address, sign=sign, chain_id=chain_id, name=name)
    return run(steps)


def verify_bundle_by_nodes(
    document: str | bytes, nodes: Sequence[AnyNode], patience: Patience | None = None
) -> VerifiedBundle:
    """Check a bundle as `verify_bundle` does, with the hashes that nodes tell: each source chain needs one.

    Raises `InvalidBundle`, `WrongChain`, `NodeRefused`, `Unavailable`.
    """
    return run(bundles.verify_by_nodes(document, [Node(node, patience or Patience()) for node in nodes]))
