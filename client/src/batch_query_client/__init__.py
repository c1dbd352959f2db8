"""A client of the Batch Query Service: asks for facts about chains, waits for them, reads and verifies them.

    service = BatchQueryService("https://...", api_key="...")
    query = Account("vitalik.eth", chain=1, block="finalized", props=["BALANCE"])
    batch = service.submit(destination=1, queries=[query])
    print(batch.wait().facts[0].value)

Amounts are in wei, times in seconds since 1970 or with a time zone, chains are named by their EIP-155 ids. Errors are
subclasses of `BatchQueryError`, whose text is a sentence; what can't be asked at all raises `ValueError`.
"""

from batch_query_client.answers import (
    BatchDetails,
    BatchPage,
    BatchSummary,
    Cancelled,
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

__version__ = "0.1.0"

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
