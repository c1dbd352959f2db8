"""The endpoint that gives proofs for reading (docs/specification.md, "Read proofs")."""

import json
from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import Field

from accounts.models import ApiKey
from api.fact_schema import ShownLog, ShownTransaction, SlotName, log_json
from chains.encoding import checksummed, hex_data
from chains.nodes.receipts import ReceiptLog
from proving import facts, readable_facts
from proving.facts import AccountFact, SlotFact
from proving.readable_facts import ReadableFact, ReceiptPart, WithdrawalPart
from queries import submission
from queries.api_endpoint import BATCH_REQUEST, ESTIMATING_KEY, JSON, ApiError, body_of, errors
from queries.batch_request import BatchRequest, BodyFault, InvalidRequest, Selector, pointer
from queries.columns import EntryField
from queries.models import QueryKind
from queries.strict_json import UNSUPPORTED
from queries.submission import SHOWN_PROOFS

router = Router(tags=["Facts"])

# Maximum bytes of an answer. A proof takes four times its bytes: in hexadecimal, alone and in the calldata.
_MOST_BYTES = 4 * 1024 * 1024


class ProofRoot(Schema):
    property: str = Field(
        description="STORAGE_ROOT of the account, or STATE_ROOT, RECEIPTS_ROOT or WITHDRAWALS_ROOT of the block."
    )
    word: str
    isFact: bool = Field(description="Whether the registry has the root. Otherwise, the view reverts.")
    batch: dict[str, Any] | None = Field(
        description="A batch query, without its `fee`, that proves the root if it isn't a fact yet."
    )


class ProofView(Schema):
    to: str | None = Field(description="The facts reader on the destination chain. null: it isn't deployed.")
    function: str
    data: str = Field(description="Calldata, with the proof.")


class ShownWithdrawal(Schema):
    place: str = Field(description="Within the block, decimal.")
    index: str = Field(description="Over all blocks, decimal.")
    validatorIndex: str
    address: str
    amount: str = Field(description="In Gwei, decimal.")


class ReadProof(Schema):
    sourceChainId: str
    selector: str = Field(description="How the request named the block.")
    blockNumber: str
    account: str | None = Field(description="null: it is about a transaction or a withdrawal.")
    property: str = Field(description="The name of a property, or SLOT, LOG or WITHDRAWAL.")
    slot: str | None = Field(description="Of SLOT: 0x and 64 hexadecimal digits.")
    slotName: SlotName | None = Field(description="Of a SLOT that the request has named.")
    transaction: ShownTransaction | None = Field(description="null: it is not about a transaction.")
    log: ShownLog | None = Field(description="For LOG: what the view returns.")
    withdrawal: ShownWithdrawal | None = Field(
        description="For WITHDRAWAL: what the view returns, and the withdrawal's place."
    )
    word: str = Field(
        description="32 bytes, as the view returns it. For LOG: the hash that a registry stores. For WITHDRAWAL: the "
        "amount, in Gwei."
    )
    value: str | None = Field(
        description="The word, or the part that `slotName` states, as a number, decimal. null: it isn't one."
    )
    proof: str = Field(description="One RLP list of the trie's nodes, the root first.")
    root: ProofRoot
    view: ProofView


class ReadProofs(Schema):
    proofs: list[ReadProof]


@router.post(
    "/read-proofs",
    operation_id="read_proofs",
    auth=ESTIMATING_KEY,
    response={200: ReadProofs, **errors(400, 401, 403, 411, 413, 415, 422, 429, 503)},
    openapi_extra=dict(BATCH_REQUEST),
)
def read_proofs(request: HttpRequest) -> HttpResponse:
    """Return accounts, slots, receipts, logs and withdrawals, each with a proof for a contract.

    `data` is as in a submission, and may name transactions and withdrawals, at most 100 of all. You may leave out
    `fee`. Nothing is stored.
    """
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    parsed = submission.read_counted(key, lambda: body_of(request), SHOWN_PROOFS)
    if faults := list(_unsupported(parsed)):
        raise InvalidRequest(faults)
    shown = readable_facts.of_request(parsed)
    destination = str(parsed.destinationChainId)
    proofs, size = list[str](), 0
    for fact in shown:
        proofs.append(json.dumps(_proof(fact, destination)))
        size += len(proofs[-1])
        if size > _MOST_BYTES:
            why = f"The answer would have more than {_MOST_BYTES} bytes. Ask for fewer proofs."
            raise ApiError(403, "too_large_for_limit", why)
    # The answer isn't validated, because validating a hundred of our own proofs takes longer than making them.
    return HttpResponse(f'{{"proofs": [{", ".join(proofs)}]}}', content_type=JSON)


def _unsupported(request: BatchRequest) -> Iterator[BodyFault]:
    for query in request.queries:
        block = "data", str(query.source_chain_id), Selector.of(query).text
        if EntryField.HASH in query.transaction_fields:
            why = "No view accepts a proof of a transaction: submit a batch query, and read the transaction's HASH."
            yield BodyFault(pointer(*block, "transactions", query.transaction_name, "props"), why, UNSUPPORTED)
        elif query.kind == QueryKind.HEADER:
            why = "No view accepts a proof of a header: submit a batch query, and read the header's fields."
            yield BodyFault(pointer(*block, "header"), why, UNSUPPORTED)


def _proof(shown: ReadableFact, destination: str) -> dict[str, Any]:
    fact, source, root = shown.fact, str(shown.source), shown.root_property
    number = _number(fact, shown.word)
    block = {"accounts": {fact.address: {"props": [root]}}} if isinstance(fact, SlotFact) else {"header": [root]}
    batch = {"destinationChainId": destination, "data": {source: {f"block:{shown.block}": block}}}
    return {
        "sourceChainId": source,
        "selector": shown.selector.text,
        "blockNumber": str(shown.block),
        **_about(fact),
        "word": hex_data(shown.word),
        "value": None if number is None else str(number),
        "proof": hex_data(shown.proof),
        "root": {
            "property": root,
            "word": hex_data(shown.root),
            "isFact": shown.is_root_known,
            "batch": None if shown.is_root_known else batch,
        },
        "view": {"to": shown.reader or None, "function": shown.view, "data": hex_data(shown.calldata)},
    }


def _number(fact: AccountFact | SlotFact | ReceiptPart | WithdrawalPart, word: bytes) -> int | None:
    if isinstance(fact, AccountFact | SlotFact):
        return facts.number(fact, word)
    return None if isinstance(fact, ReceiptPart) and fact.log_index is not None else int.from_bytes(word)


def _about(fact: AccountFact | SlotFact | ReceiptPart | WithdrawalPart) -> dict[str, Any]:
    nothing = dict.fromkeys(("account", "property", "slot", "slotName", "transaction", "log", "withdrawal"))
    if isinstance(fact, WithdrawalPart):
        return nothing | {"property": "WITHDRAWAL", "withdrawal": _withdrawal(fact)}
    if not isinstance(fact, ReceiptPart):
        slot, slot_name = (fact.slot, fact.name) if isinstance(fact, SlotFact) else (None, None)
        return nothing | {"account": fact.address, "property": facts.name(fact), "slot": slot, "slotName": slot_name}
    log: dict[str, Any] | None = None
    if isinstance(fact.content, ReceiptLog):
        log = {"index": str(fact.log_index), **log_json(fact.content)}
    transaction = {"index": str(fact.transaction), "hash": hex_data(fact.hash) if fact.hash else None}
    name = "LOG" if isinstance(fact.content, ReceiptLog) else fact.content.name
    return nothing | {"property": name, "transaction": transaction, "log": log}


def _withdrawal(part: WithdrawalPart) -> dict[str, str | None]:
    """Return the withdrawal as a `ShownWithdrawal`."""
    withdrawal = part.withdrawal
    return {
        "place": str(part.place),
        "index": str(withdrawal.index),
        "validatorIndex": str(withdrawal.validator_index),
        "address": checksummed(hex_data(withdrawal.address)),
        "amount": str(withdrawal.amount),
    }
