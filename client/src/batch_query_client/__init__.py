"""A client of the Batch Query Service: asks for facts about chains, waits for them, reads and verifies them.

    service = BatchQueryService("https://...", api_key="...")
    query = Account("vitalik.eth", chain=1, block="finalized", props=["BALANCE"])
    batch = service.submit(destination=1, queries=[query])
    print(batch.wait().facts[0].value)

Amounts are in wei. Times are in seconds since 1970 or have a time zone. Chains are named by their EIP-155 ids. Errors
are subclasses of `BatchQueryError`, whose text is a sentence. An invalid argument raises `ValueError`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# The aliases make type checkers export the names.
# isort: off
if TYPE_CHECKING:
    from batch_query_client.answers import (
        BatchDetails as BatchDetails,
        BatchPage as BatchPage,
        BatchSummary as BatchSummary,
        Cancelled as Cancelled,
        Chain as Chain,
        Connection as Connection,
        ContractCall as ContractCall,
        DependingSlot as DependingSlot,
        Estimate as Estimate,
        Fact as Fact,
        FactPage as FactPage,
        FoundSlots as FoundSlots,
        ProofRoot as ProofRoot,
        ProofView as ProofView,
        Query as Query,
        ReadProof as ReadProof,
        Rejection as Rejection,
        SentTransaction as SentTransaction,
        ShownLog as ShownLog,
        ShownTransaction as ShownTransaction,
        ShownWithdrawal as ShownWithdrawal,
        SlotOfCall as SlotOfCall,
        SlotPart as SlotPart,
        Status as Status,
        Step as Step,
        UnsignedTransaction as UnsignedTransaction,
        UnsignedTransactions as UnsignedTransactions,
        Wait as Wait,
    )
    from batch_query_client.asking import Patience as Patience
    from batch_query_client.bundles import (
        VerifiedBundle as VerifiedBundle,
        VerifiedQuery as VerifiedQuery,
        claimed_hashes as claimed_hashes,
        verify_bundle as verify_bundle,
    )
    from batch_query_client.errors import (
        BatchQueryError as BatchQueryError,
        BatchRejected as BatchRejected,
        Conflict as Conflict,
        Fault as Fault,
        InvalidBundle as InvalidBundle,
        InvalidRequest as InvalidRequest,
        InvalidWebhook as InvalidWebhook,
        NodeRefused as NodeRefused,
        NotDoneInTime as NotDoneInTime,
        NotFound as NotFound,
        NotProven as NotProven,
        ServiceRefused as ServiceRefused,
        TransactionFailed as TransactionFailed,
        Unauthorized as Unauthorized,
        Unavailable as Unavailable,
        UnexpectedAnswer as UnexpectedAnswer,
        UnsafeSignIn as UnsafeSignIn,
        UnsafeTransaction as UnsafeTransaction,
        WrongChain as WrongChain,
        WrongFact as WrongFact,
    )
    from batch_query_client.paying import (
        Payer as Payer,
        Sending as Sending,
        Sent as Sent,
        ToSign as ToSign,
    )
    from batch_query_client.questions import (
        ACCOUNT_PROPERTIES as ACCOUNT_PROPERTIES,
        HEADER_PROPERTIES as HEADER_PROPERTIES,
        TRANSACTION_PROPERTIES as TRANSACTION_PROPERTIES,
        Account as Account,
        Header as Header,
        Transaction as Transaction,
        Webhook as Webhook,
        Withdrawals as Withdrawals,
    )
    from batch_query_client.service import (
        AsyncBatch as AsyncBatch,
        AsyncBatchQueryService as AsyncBatchQueryService,
        Batch as Batch,
        BatchQueryService as BatchQueryService,
        sign_in as sign_in,
        verify_bundle_by_nodes as verify_bundle_by_nodes,
    )
    from batch_query_client.webhooks import (
        WebhookData as WebhookData,
        WebhookEvent as WebhookEvent,
        verify_webhook as verify_webhook,
    )

__version__ = "0.4.0"

# A module is loaded at the first use of one of its names (PEP 562). Loading all modules takes half a second, which `bqs
# --help` and programs that only check webhooks don't need.
_NAMES = {
    "answers": (
        "BatchDetails BatchPage BatchSummary Cancelled Chain Connection ContractCall DependingSlot Estimate Fact "
        "FactPage FoundSlots ProofRoot ProofView Query ReadProof Rejection SentTransaction ShownLog ShownTransaction "
        "ShownWithdrawal SlotOfCall SlotPart Status Step UnsignedTransaction UnsignedTransactions Wait"
    ),
    "asking": "Patience",
    "bundles": "VerifiedBundle VerifiedQuery claimed_hashes verify_bundle",
    "errors": (
        "BatchQueryError BatchRejected Conflict Fault InvalidBundle InvalidRequest InvalidWebhook NodeRefused "
        "NotDoneInTime NotFound NotProven ServiceRefused TransactionFailed Unauthorized Unavailable "
        "UnexpectedAnswer UnsafeSignIn UnsafeTransaction WrongChain WrongFact"
    ),
    "paying": "Payer Sending Sent ToSign",
    "questions": (
        "ACCOUNT_PROPERTIES HEADER_PROPERTIES TRANSACTION_PROPERTIES Account Header Transaction Webhook Withdrawals"
    ),
    "service": "AsyncBatch AsyncBatchQueryService Batch BatchQueryService sign_in verify_bundle_by_nodes",
    "webhooks": "WebhookData WebhookEvent verify_webhook",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

# Type checkers must not see this function: for them, a module with `__getattr__` has every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
