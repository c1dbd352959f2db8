"""The schemas of proof bundles."""

from ninja import Schema
from pydantic import Field

from explorer.bundles import BATCH_FORMAT, FORMAT


class ProvenSlot(Schema):
    word: str
    proof: list[int] = Field(description="Places in `storageNodes`, from 0, from the storage root to the slot.")


class ProofBundle(Schema):
    format: str = Field(examples=[FORMAT])
    batch: str
    query: int
    sourceChainId: str
    selector: str = Field(description="How the request named the block.")
    blockNumber: str
    blockHash: str
    header: str = Field(description="RLP, whose keccak-256 is `blockHash`.")
    account: str | None = Field(description="null: the query is about the header.")
    name: str | None = Field(description="The ENS name that the request gave.")
    accountProof: list[str] | None = Field(description="Nodes of the state trie (EIP-1186).")
    facts: dict[str, str] = Field(description="By property: the words that the facts registry answers.")
    slots: dict[str, ProvenSlot]
    storageNodes: list[str]
    timestamp: str | None = Field(description="Unix seconds. null: the block was named by its number.")
    nextHeader: str | None = Field(description="RLP of the header after it, which shows that it was the latest.")
    destinationChainId: str
    factsRegistry: str | None


class BundledBlock(Schema):
    sourceChainId: str
    blockNumber: str
    blockHash: str
    header: str = Field(description="RLP, whose keccak-256 is `blockHash`.")
    nextHeader: str | None = Field(description="RLP of the header after it, where a query names a time.")
    factsRegistry: str | None


class BundledSlot(Schema):
    word: str
    proof: list[int] = Field(description="Places in the nodes of all queries, from the storage root to the slot.")


class BundledQuery(Schema):
    number: int
    block: int = Field(description="A place in `blocks`, from 0.")
    selector: str = Field(description="How the request named the block.")
    account: str | None = Field(description="null: the query is about the header.")
    name: str | None = Field(description="The ENS name that the request gave.")
    accountProof: list[int] | None = Field(
        description="Places in the nodes of all queries, from 0: one after the other."
    )
    facts: dict[str, str] = Field(description="By property: the words that the facts registry answers.")
    slots: dict[str, BundledSlot]
    timestamp: str | None = Field(description="Unix seconds. null: the block was named by its number.")
    nodes: list[str] = Field(description="Trie nodes (EIP-1186) that no query before it has.")


class BatchProofBundle(Schema):
    format: str = Field(examples=[BATCH_FORMAT])
    batch: str
    destinationChainId: str
    blocks: list[BundledBlock]
    queries: list[BundledQuery] = Field(description="All, in the order of their numbers.")
