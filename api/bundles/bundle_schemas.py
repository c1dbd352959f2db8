"""The schemas of proof bundles."""

from ninja import Schema
from pydantic import Field

from api.bundles import FORMAT
from api.fact_schema import ShownTransaction


class BundledBlock(Schema):
    sourceChainId: str
    blockNumber: str
    blockHash: str
    header: str = Field(description="RLP, whose keccak-256 is `blockHash`.")
    nextHeader: None = Field(description="null since 0.5.0. It was the header of the next block.")
    factsRegistry: str | None


class BundledSlot(Schema):
    word: str
    proof: list[int] = Field(description="Positions in `nodes`, from the storage root to the slot.")


class BundledLog(Schema):
    word: str = Field(description="The log's hash, as the facts registry returns it.")
    emitter: str
    topics: list[str]
    data: str


class BundledQuery(Schema):
    number: int
    block: int = Field(description="An index into `blocks`, from 0.")
    selector: str = Field(description="The request's selection of the block.")
    account: str | None = Field(description="null if the query is about a transaction, or else the header.")
    name: str | None = Field(description="The ENS name that the request gave.")
    accountProof: list[int] | None = Field(description="Positions in `nodes`, from the state root to the account.")
    facts: dict[str, str] = Field(description="By property: the words that the facts registry returns.")
    slots: dict[str, BundledSlot]
    transaction: ShownTransaction | None = Field(description="null if the query is about none.")
    receiptProof: list[int] | None = Field(description="Positions in `nodes`, from the receipts' root to the receipt.")
    transactionProof: list[int] | None = Field(
        description="Positions in `nodes`, from the transactions' root to the transaction. It shows the transaction's "
        "hash."
    )
    logs: dict[str, BundledLog] = Field(description="By index in the receipt.")
    timestamp: str | None = Field(description="Unix seconds. null: the request named the block by number.")


class ProofBundle(Schema):
    format: str = Field(examples=[FORMAT])
    batch: str
    destinationChainId: str
    blocks: list[BundledBlock]
    nodes: list[str] = Field(description="Trie nodes (EIP-1186), each once.")
    queries: list[BundledQuery] = Field(
        description="All queries of the batch in the order of their numbers, or the only one."
    )
