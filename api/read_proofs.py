"""The endpoint that gives proofs for reading (docs/specification.md, "Read proofs")."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Router, Schema
from pydantic import Field

from accounts.models import ApiKey
from chains.encoding import hex_data
from proving import batch_estimate, facts, shown_proofs
from proving.facts import SlotFact
from proving.shown_proofs import ShownFact
from queries.api_endpoint import BATCH_REQUEST, SUBMITTING_KEY, ApiError, body_of, errors
from queries.batch_request import InvalidRequest
from queries.strict_json import UNSUPPORTED
from queries.submission import SHOWN_PROOFS

router = Router(tags=["Facts"])

# Maximum bytes of all proofs of an answer.
_MOST_BYTES = 4 * 1024 * 1024


class ProofRoot(Schema):
    property: str = Field(description="STORAGE_ROOT of the account, or STATE_ROOT of the block.")
    word: str
    isFact: bool = Field(description="Whether the registry holds it: else the view reverts.")
    batch: dict[str, Any] | None = Field(
        description="A batch query without its `fee` that makes it a fact, if it is none."
    )


class ProofView(Schema):
    to: str | None = Field(description="The facts reader on the destination chain. null: it isn't deployed.")
    function: str
    data: str = Field(description="Calldata, with the proof.")


class ReadProof(Schema):
    sourceChainId: str
    selector: str = Field(description="As the request named the block.")
    blockNumber: str
    account: str
    property: str = Field(description="The name of a property, or SLOT.")
    slot: str | None = Field(description="Of SLOT: 0x and 64 hexadecimal digits.")
    word: str = Field(description="32 bytes, as the view returns it.")
    value: str | None = Field(description="The word as a number, decimal. null: it isn't one.")
    proof: str = Field(description="One RLP list of the nodes of `eth_getProof`.")
    root: ProofRoot
    view: ProofView


class ReadProofs(Schema):
    proofs: list[ReadProof]


@router.post(
    "/read-proofs",
    operation_id="read_proofs",
    auth=SUBMITTING_KEY,
    response={200: ReadProofs, **errors(400, 401, 403, 411, 413, 415, 429, 503)},
    openapi_extra=dict(BATCH_REQUEST),
)
def read_proofs(request: HttpRequest) -> HttpResponse:
    """Return the values of accounts and slots, each with the proof that a contract reads it by.

    `data` is as in a submission, of at most 100 accounts and slots, and `fee` may be left out. Nothing is stored.
    """
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    try:
        parsed, _ = batch_estimate.parsed(key, lambda: body_of(request), SHOWN_PROOFS)
    except InvalidRequest as invalid:
        raise ApiError(400, invalid.code, invalid.sentence, faults=invalid.faults) from None
    if not all(part.address for part in parsed.parts()):
        raise ApiError(
            400, UNSUPPORTED, "No view takes a proof of a header: submit a batch query, and read its fields."
        )
    shown = shown_proofs.shown(parsed)
    if sum(len(fact.proof) for fact in shown) > _MOST_BYTES:
        raise ApiError(403, "too_large_for_limit", f"The proofs have more than {_MOST_BYTES} bytes. Ask for fewer.")
    destination = str(parsed.destinationChainId)
    # The answer isn't validated, because validating a hundred of our own proofs takes longer than making them.
    return JsonResponse({"proofs": [_proof(fact, destination) for fact in shown]})


def _proof(shown: ShownFact, destination: str) -> dict[str, Any]:
    fact, source = shown.fact, str(shown.source)
    is_slot = isinstance(fact, SlotFact)
    block = {"accounts": {fact.address: {"props": ["STORAGE_ROOT"]}}} if is_slot else {"header": ["STATE_ROOT"]}
    batch = {"destinationChainId": destination, "data": {source: {f"block:{shown.block}": block}}}
    return {
        "sourceChainId": source,
        "selector": shown.selector.text,
        "blockNumber": str(shown.block),
        "account": fact.address,
        "property": facts.name(fact),
        "slot": fact.slot if isinstance(fact, SlotFact) else None,
        "word": hex_data(shown.word),
        "value": str(int.from_bytes(shown.word)) if facts.is_number(fact) else None,
        "proof": hex_data(shown.proof),
        "root": {
            "property": "STORAGE_ROOT" if is_slot else "STATE_ROOT",
            "word": hex_data(shown.root),
            "isFact": shown.is_root_known,
            "batch": None if shown.is_root_known else batch,
        },
        "view": {"to": shown.reader or None, "function": f"{shown.view}ByProof", "data": hex_data(shown.calldata)},
    }
