"""The description of the explorer's files and of the health check, which are no endpoints of the API's framework."""

from collections.abc import Collection
from typing import Any

from ninja import Schema
from pydantic import Field

from explorer.bundles import BATCH_FORMAT, FORMAT
from explorer.pages import batch_json, chains_json
from queries.error_codes import FILE_ERROR_CODES, described

_REF = "#/components/schemas/"
_ETAG = {"ETag": {"description": "For If-None-Match.", "schema": {"type": "string"}}}


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


class WorkerHealth(Schema):
    running: bool
    lastBeat: str | None


class Health(Schema):
    status: str = Field(description="`ok` or `degraded`.")
    database: str = Field(description="`ok` or `unavailable`.")
    worker: WorkerHealth
    version: str
    problems: list[str] = Field(description="What keeps the service from working, in sentences for the operator.")
    codes: list[str] = Field(description="The stable words of the problems, and then of notices.")
    notices: list[str] = Field(description="What the operator must look into, in sentences for the operator.")


def schemas() -> dict[str, Any]:
    """Return the schemas by name."""
    found = batch_json.schemas(_REF)
    for model in (ProofBundle, BatchProofBundle, Health, chains_json.ChainsDetail):
        schema = model.model_json_schema(ref_template=_REF + "{model}")
        found |= schema.pop("$defs", {}) | {model.__name__: schema}
    return found


def paths() -> dict[str, Any]:
    """Return the path items."""
    of_batch = {"in": "path", "name": "internalId", "required": True, "schema": {"type": "string"}}
    of_query = {"in": "path", "name": "number", "required": True, "schema": {"type": "integer", "minimum": 1}}
    first = {
        "in": "query",
        "name": "from",
        "required": False,
        "schema": {"type": "integer", "minimum": 1},
        "description": "The number of the first query to show: `following` of the answer before.",
    }
    batch, gone = {"not_found", "too_many_requests"}, {"rejected", "not_done", "no_proof", "proofs_pruned"}
    health = _answer("Health")
    return {
        "/explorer/query/{internalId}.json": _get(
            "get_batch_page",
            "A batch's page, with all details of 50 queries.",
            [of_batch, first],
            _answer("BatchPage"),
            batch,
        ),
        "/explorer/query/{internalId}/request.json": _get(
            "get_submitted_request",
            "What was submitted, without what only its sender may see.",
            [of_batch],
            _answer("BatchRequest"),
            batch,
        ),
        "/explorer/query/{internalId}/{number}/bundle.json": _get(
            "get_proof_bundle",
            "The proof of a query's facts, to be checked without this service.",
            [of_batch, of_query],
            _answer("ProofBundle"),
            batch | gone,
        ),
        "/explorer/query/{internalId}/bundle.json": _get(
            "get_batch_proof_bundle",
            "The proof of all facts of a batch that is done, to be checked without this service.",
            [of_batch],
            _answer("BatchProofBundle"),
            batch | gone,
        ),
        "/chains.json": {
            "get": {
                "operationId": "get_chains",
                "summary": "What can be proven where: trust, contracts, reach and cost, and the chains as last seen.",
                "tags": ["Chains"],
                "parameters": [],
                "responses": {
                    "200": {"description": "OK", "headers": _ETAG} | _answer("ChainsDetail"),
                    "304": {"description": "As the answer that had the ETag of If-None-Match.", "headers": _ETAG},
                },
            }
        },
        "/healthz": {
            "get": {
                "operationId": "get_health",
                "summary": "What keeps the service from working.",
                "tags": ["Health"],
                "parameters": [],
                "responses": {
                    "200": {"description": "Nothing"} | health,
                    "503": {"description": "Something"} | health,
                },
            }
        },
    }


def _get(
    operation_id: str, summary: str, parameters: list[dict[str, Any]], answer: dict[str, Any], codes: Collection[str]
) -> dict[str, Any]:
    statuses = {each.status: _of_status(each.status, codes) for each in FILE_ERROR_CODES if each.code in codes}
    return {
        "get": {
            "operationId": operation_id,
            "summary": summary,
            "tags": ["Explorer"],
            "parameters": parameters,
            "responses": {"200": {"description": "OK"} | answer}
            | {str(status): {"description": said} | _answer("Error") for status, said in statuses.items()},
        }
    }


def _of_status(status: int, codes: Collection[str]) -> str:
    return described([each for each in FILE_ERROR_CODES if each.status == status and each.code in codes])


def _answer(schema: str) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": f"{_REF}{schema}"}}}}
