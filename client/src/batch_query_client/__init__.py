"""A client of the Batch Query Service: asks for facts about chains, waits for them, reads and verifies them.

    service = BatchQueryService("https://...", api_key="...")
    query = Account("vitalik.eth", chain=1, block="finalized", props=["BALANCE"])
    batch = service.submit(destination=1, queries=[query])
    print(batch.wait().facts[0].value)

Amounts are in wei, times in seconds since 1970 or with a time zone, chains are named by their EIP-155 ids. Errors are
subclasses of `BatchQueryError`, whose text is a sentence; what can't be asked at all raises `ValueError`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batch_query_client.answers import (
        BatchDetails,
        BatchPage,
        BatchSummary,
        Cancelled,
        Chain,
        Connection,
        ContractCall,
        Estimate,
        Fact,
        FactPage,
        Query,
        Rejection,
        SentTransaction,
        Status,
        Step,
        UnsignedTransaction,
        UnsignedTransactions,
        Wait,
    )
    from batch_query_client.asking import Patience
    from batch_query_client.async_service import (
        AsyncBatch,
        AsyncBatchQueryService,
        read_facts_async,
        sign_in_async,
        verify_batch_bundle_by_nodes_async,
        verify_bundle_by_node_async,
    )
    from batch_query_client.batch_bundles import VerifiedBatchBundle, bundle_blocks, verify_batch_bundle
    from batch_query_client.bundles import VerifiedBundle, bundle_block, verify_bundle
    from batch_query_client.errors import (
        BatchQueryError,
        BatchRejected,
        Conflict,
        Fault,
        InvalidBundle,
        InvalidRequest,
        InvalidWebhook,
        NodeRefused,
        NotDoneInTime,
        NotFound,
        NotProven,
        ServiceRefused,
        TransactionFailed,
        Unauthorized,
        Unavailable,
        UnexpectedAnswer,
        UnsafeSignIn,
        UnsafeTransaction,
        WrongChain,
        WrongFact,
    )
    from batch_query_client.paying import Payer, Sending, Sent, ToSign
    from batch_query_client.questions import ACCOUNT_PROPERTIES, HEADER_PROPERTIES, Account, Header, Webhook
    from batch_query_client.service import (
        Batch,
        BatchQueryService,
        read_facts,
        sign_in,
        verify_batch_bundle_by_nodes,
        verify_bundle_by_node,
    )
    from batch_query_client.webhooks import WebhookData, WebhookEvent, verify_webhook

__version__ = "0.3.0.dev0"

__all__ = [
    "ACCOUNT_PROPERTIES",
    "HEADER_PROPERTIES",
    "Account",
    "AsyncBatch",
    "AsyncBatchQueryService",
    "Batch",
    "BatchDetails",
    "BatchPage",
    "BatchQueryError",
    "BatchQueryService",
    "BatchRejected",
    "BatchSummary",
    "Cancelled",
    "Chain",
    "Conflict",
    "Connection",
    "ContractCall",
    "Estimate",
    "Fact",
    "FactPage",
    "Fault",
    "Header",
    "InvalidBundle",
    "InvalidRequest",
    "InvalidWebhook",
    "NodeRefused",
    "NotDoneInTime",
    "NotFound",
    "NotProven",
    "Patience",
    "Payer",
    "Query",
    "Rejection",
    "Sending",
    "Sent",
    "SentTransaction",
    "ServiceRefused",
    "Status",
    "Step",
    "ToSign",
    "TransactionFailed",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "UnsafeSignIn",
    "UnsafeTransaction",
    "UnsignedTransaction",
    "UnsignedTransactions",
    "VerifiedBatchBundle",
    "VerifiedBundle",
    "Wait",
    "Webhook",
    "WebhookData",
    "WebhookEvent",
    "WrongChain",
    "WrongFact",
    "bundle_block",
    "bundle_blocks",
    "read_facts",
    "read_facts_async",
    "sign_in",
    "sign_in_async",
    "verify_batch_bundle",
    "verify_batch_bundle_by_nodes",
    "verify_batch_bundle_by_nodes_async",
    "verify_bundle",
    "verify_bundle_by_node",
    "verify_bundle_by_node_async",
    "verify_webhook",
]

# A module is loaded when one of its names is first used (PEP 562). All of them take half a second; `bqs --help`, or a
# program that only checks webhooks, needs few.
_NAMES = {
    "answers": (
        "BatchDetails BatchPage BatchSummary Cancelled Chain Connection ContractCall Estimate Fact FactPage Query "
        "Rejection SentTransaction Status Step UnsignedTransaction UnsignedTransactions Wait"
    ),
    "asking": "Patience",
    "async_service": (
        "AsyncBatch AsyncBatchQueryService read_facts_async sign_in_async verify_batch_bundle_by_nodes_async "
        "verify_bundle_by_node_async"
    ),
    "batch_bundles": "VerifiedBatchBundle bundle_blocks verify_batch_bundle",
    "bundles": "VerifiedBundle bundle_block verify_bundle",
    "errors": (
        "BatchQueryError BatchRejected Conflict Fault InvalidBundle InvalidRequest InvalidWebhook NodeRefused "
        "NotDoneInTime NotFound NotProven ServiceRefused TransactionFailed Unauthorized Unavailable "
        "UnexpectedAnswer UnsafeSignIn UnsafeTransaction WrongChain WrongFact"
    ),
    "paying": "Payer Sending Sent ToSign",
    "questions": "ACCOUNT_PROPERTIES HEADER_PROPERTIES Account Header Webhook",
    "service": "Batch BatchQueryService read_facts sign_in verify_batch_bundle_by_nodes verify_bundle_by_node",
    "webhooks": "WebhookData WebhookEvent verify_webhook",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

# For a type checker, a module with `__getattr__` has every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
