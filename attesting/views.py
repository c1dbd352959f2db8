"""An attester's HTTP API."""

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, JsonResponse
from django.http.request import UnreadablePostError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from attesting import node_agreement
from attesting.attest import attest, own_account
from chains.attestation import AttestationRequest, Domain
from chains.chains_file import Chain, ChainId
from chains.encoding import hex_data
from chains.file_values import Address
from config.configured_chains import get_chains
from config.error_answers import Refused, error_answer, refused_answer

logger = logging.getLogger(__name__)

_STATUS = {"unknown_chain": 404, "not_final": 409, "no_finality": 409, "conflict": 409, "unavailable": 503}


# --- POST /attest -----------------------------------------------------------------------------------------------------


def _whole_number(written: object) -> object:
    if not isinstance(written, str) or not re.fullmatch(r"0|[1-9][0-9]{0,77}", written):
        raise ValueError("must be a whole number in decimal digits, in quotes")
    return int(written)


class _AttestationBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    sourceChainId: Annotated[ChainId, BeforeValidator(_whole_number)]
    # A block number has up to 64 bits, but the database column only 63.
    blockNumber: Annotated[int, BeforeValidator(_whole_number), Field(lt=2**63)]
    destinationChainId: Annotated[ChainId, BeforeValidator(_whole_number)]
    verifyingContract: Address

    def question(self) -> AttestationRequest:
        return AttestationRequest(
            Domain(self.destinationChainId, self.verifyingContract), self.sourceChainId, self.blockNumber
        )


def attest_block(request: HttpRequest) -> JsonResponse:
    if request.method != "POST":
        return error_answer(405, "method_not_allowed", "This path accepts only POST.")
    try:
        body = _AttestationBody.model_validate_json(request.body)
    except RequestDataTooBig:
        return error_answer(413, "too_large", "The request's body is too large.")
    except UnreadablePostError:
        return error_answer(400, "bad_request", "The request's body ended early.")
    except ValidationError as error:
        return error_answer(400, "bad_request", f"The request is malformed: {'; '.join(_faults(error))}.")
    try:
        attestation = attest(body.question())
    except Refused as refused:
        return refused_answer(_STATUS[refused.code], refused)
    return JsonResponse(
        {
            "attester": attestation.attester,
            "blockHash": hex_data(attestation.block_hash),
            "signature": hex_data(attestation.signature),
        }
    )


def _faults(error: ValidationError) -> list[str]:
    faults = error.errors(include_input=False, include_url=False)
    return [
        ": ".join([*map(str, fault["loc"]), fault["msg"].removeprefix("Value error, ")])
        for fault in faults
        # An unknown field's name comes from the client, so it isn't repeated.
        if fault["type"] != "extra_forbidden"
    ] or ["it has fields other than sourceChainId, blockNumber, destinationChainId and verifyingContract"]


# --- GET /healthz -----------------------------------------------------------------------------------------------------


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if enough nodes of every chain report a final block, otherwise 503.

    `{"attester": address, "chains": {id: {"newestFinalBlock": number}
    {"error": sentence}}}`
    """
    chains = get_chains().chains
    with ThreadPoolExecutor(max_workers=len(chains)) as pool:
        health_by_chain = dict(zip((str(chain.id) for chain in chains), pool.map(_health, chains), strict=True))
    works = not any("error" in health for health in health_by_chain.values())
    state = {"attester": own_account().address, "chains": health_by_chain}
    return JsonResponse(state, status=200 if works else 503, headers={"Cache-Control": "no-store"})


def _health(chain: Chain) -> dict[str, str]:
    nodes = node_agreement.of(chain)
    try:
        return {"newestFinalBlock": str(nodes.newest_final(nodes.views()))}
    except node_agreement.TooFewNodes as error:
        return {"error": str(error)}


# --- Errors -----------------------------------------------------------------------------------------------------------


def not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    return error_answer(404, "not_found", "There is nothing at this path.")


def internal_error(request: HttpRequest) -> JsonResponse:
    return error_answer(500, "internal_error", "Something went wrong here; it has been logged. Nothing was signed.")
