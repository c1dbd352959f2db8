"""The panel next to the form, with the estimated cost and duration of the batch."""

from typing import Any

from django.conf import settings
from django.utils import timezone

from accounts.models import ApiKey, User
from config.chain_names import chain_name
from config.error_answers import Refused
from explorer.formatting.amounts import gas_price
from explorer.formatting.wait_words import in_words
from explorer.new_batch.forms import NewBatchForm
from proving import money
from proving.admission import estimates
from proving.admission.estimates import BatchEstimate
from proving.packing.gas import CostPart
from queries import submission
from queries.batch_request import AUTO
from queries.submission import ESTIMATES
from queries.waits import Actor

_OF_TRANSACTIONS = (CostPart.TRANSACTIONS, CostPart.LOGS)
_FACTS = (CostPart.HEADER_FIELDS, CostPart.ACCOUNTS, CostPart.SLOTS, *_OF_TRANSACTIONS, CostPart.TIMES)


def context(user: User, form: NewBatchForm) -> dict[str, Any]:
    """Return the estimate for the template, or why there is none. Store in each row which block it means."""
    if form.is_blank:
        return {}
    try:
        return _estimated(user, form) if form.is_valid else {}
    except Refused as refused:
        return {"not_estimated": refused.sentence}


def to_confirm(user: User, form: NewBatchForm) -> dict[str, Any]:
    """Return the estimate of a valid batch to confirm or correct. Empty: it needs neither.

    The batch is above the operator's limits, proves words from which a token's answer only follows, or would be
    rejected, and no later try helps (`is_hopeless`).
    Nothing asks for the cost where the fee already limits it, or where no node tells it now.
    Raises `Refused` where the user has used up the estimates.
    """
    is_large, most = form.size > settings.CONFIRM_ABOVE_QUERIES, settings.CONFIRM_ABOVE_WEI
    fee = form.document.get("fee", "0")  # A self-funded batch costs the service nothing.
    is_real = form.destination is not None and not form.destination.test_network
    may_be_dear = is_real and (fee == AUTO or int(fee) > most)
    must_confirm = is_large or bool(form.rows_of_words)
    try:
        panel = _estimated(user, form)
    except Refused as refused:
        if not must_confirm and not may_be_dear:
            return {}
        if refused.code != "chain_unavailable":
            raise
        panel = {"not_estimated": refused.sentence}
    estimate: BatchEstimate | None = panel.get("estimate")
    if estimate and any(not rejection.retryable for rejection in estimate.rejections):
        return {**panel, "is_hopeless": True}
    return panel if must_confirm or (may_be_dear and estimate and estimate.cost.wei.bound > most) else {}


def _estimated(user: User, form: NewBatchForm) -> dict[str, Any]:
    request = form.request
    assert request is not None
    submission.count_queries(user, request.size, ESTIMATES)
    estimate = estimates.estimate(request, ApiKey(user=user))
    blocks = {
        (str(source.source), selector.text): (number, source.selected.head.number - number)
        for source in estimate.sources
        if source.selected
        for selector, number in source.blocks.items()
    }
    for row in form.rows:
        row.meant = blocks.get((str(row["source"].value()), row.selectors[0]))
    costs = [(part, cost) for source in estimate.sources for part, cost in source.parts.items()]
    return {
        "estimate": estimate,
        "is_self_funded": request.is_self_funded,
        "destination": chain_name(estimate.destination.id),
        "gas_price": gas_price(estimate.gas_price),
        "in_registry": sum(cost.in_registry for part, cost in costs if part in _FACTS),
        "parts": sum(cost.count for part, cost in costs if part in _FACTS),
        "of_transactions": {
            part.value: sum(cost.count for of, cost in costs if of == part) for part in _OF_TRANSACTIONS
        },
        "paths": sum(cost.count for part, cost in costs if part == CostPart.PATHS),
        "jumps": sum(source.jumps for source in estimate.sources),
        "jump_origins": [source.jump_origin for source in estimate.sources if source.jump_origin is not None],
        "reasons": [(rejection.code, in_words(rejection.reason)) for rejection in estimate.rejections],
        "waits": {in_words(wait): wait.actor == Actor.OPERATOR for source in estimate.sources for wait in source.waits},
        "allowance": None if request.is_self_funded else money.allowance_of(user, estimate.destination),
        "slot": next((source.slot for source in estimate.sources if source.slot), None),
        "names": {query.name: query.address for query in request.queries if query.name},
        "made_at": timezone.now(),
    }
