"""A draft as it is asked about, and as it is submitted: by what answers the API."""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from django.conf import settings
from django.utils import timezone

from accounts.allowed_addresses import may_sign_in
from accounts.models import ApiKey, User
from config.configured_chains import get_chains
from config.error_answers import Refused
from explorer.new_batch import pasted_rows, shown_estimate, shown_faults
from explorer.new_batch.drafts import MOST_BUILT, Draft, Row
from explorer.new_batch.pasted_rows import LineFault, Pasted
from explorer.new_batch.shown_estimate import ShownEstimate
from explorer.new_batch.shown_faults import ShownFaults
from proving import batch_estimate
from queries import batch_request, submission, submission_rate
from queries.api_errors import ApiError
from queries.batch_request import InvalidRequest
from queries.submission_rate import ESTIMATES

# One column takes all of them.
_OF_BLOCK = "The block is a number, a time such as 2026-11-20 12:00:00 in UTC, latest or finalized."


@dataclass(frozen=True)
class Estimated:
    """The answer to an estimate: with it, or with the reason why there is none."""

    estimate: ShownEstimate | None = None
    names: Mapping[str, str] = field(default_factory=dict)  # what ENS says, by the name
    faults: ShownFaults = field(default_factory=ShownFaults)
    refused: Refused | None = None


def new_token() -> str:
    """Make a token for one form. All that is sent of it and says the same makes one batch."""
    return secrets.token_urlsafe(16)


def estimate(user: User, draft: Draft) -> Estimated:
    try:
        _check_may_ask(user)
        asking = ApiKey(user=user)  # Of a key only its user counts here.
        request, body = batch_estimate.parsed(asking, body_of(draft))
    except InvalidRequest as invalid:
        return Estimated(faults=faults_of(draft, invalid))
    except Refused as refused:
        return Estimated(refused=refused)
    names = shown_estimate.names(request)
    try:
        return Estimated(shown_estimate.shown(request, batch_estimate.estimate(request, body, asking), user), names)
    except Refused as refused:
        return Estimated(names=names, refused=refused)


def submit(user: User, draft: Draft, token: str) -> str:
    """Submit the batch, and return its identifier. Raises `InvalidRequest` and `Refused`."""
    _check_may_ask(user)
    # The admin, and the list of what a key was used for, find the batch under it.
    key = user.api_keys.live(timezone.now()).order_by("pk").first()
    if key is None:
        raise ApiError(403, "no_api_key", "You have no API key. Make one among your keys: batches belong to one.")
    try:
        body = body_of(draft)()
    except (InvalidRequest, Refused):
        submission_rate.count_request(user)
        raise
    # Sent twice, it is one batch. Changed and sent again, it is another.
    named_by = f"{token}-{hashlib.sha256(body).hexdigest()[:32]}"
    return submission.submit(key, named_by, lambda: body).batch_id


def read_pasted(user: User, draft: Draft, text: str) -> Pasted:
    """Return the text as rows, with what is wrong with them. Raises `Refused`."""
    submission_rate.count_request(user, ESTIMATES)
    names = {chain.name.casefold(): str(chain.id) for chain in get_chains().chains}
    most = MOST_BUILT * settings.MAX_QUERIES_PER_BATCH
    pasted = pasted_rows.read(text, draft.rows[-1], names, most)
    return pasted if pasted.faults else replace(pasted, faults=_faults_of_lines(draft, pasted))


def _faults_of_lines(draft: Draft, pasted: Pasted) -> tuple[LineFault, ...]:
    try:
        of_lines = replace(draft, rows=pasted.rows)
        request = of_lines.request(settings.MAX_QUERIES_PER_BATCH)
    except InvalidRequest as invalid:
        return (LineFault(0, invalid.sentence),)
    try:
        batch_request.parse(request.body, get_chains(), max_queries=settings.MAX_QUERIES_PER_BATCH)
    except InvalidRequest as invalid:
        found = {
            LineFault(
                pasted.line(place.row, place.line if place.field == "accounts" else 0),
                _OF_BLOCK if place.field in {"block", "time"} else shown_faults.in_words(of_lines, place, fault),
            )
            for fault in invalid.faults
            for place in request.places(fault)
            if place.row is not None or not place.field
        }
        return tuple(sorted(found, key=lambda fault: fault.line))
    return ()


def faults_of(draft: Draft, invalid: InvalidRequest) -> ShownFaults:
    try:
        return shown_faults.shown(draft, draft.request(settings.MAX_QUERIES_PER_BATCH), invalid.faults)
    except InvalidRequest:  # It is too much to be looked at.
        return shown_faults.of_fields({(None, ""): [invalid.sentence]})


def body_of(draft: Draft) -> Callable[[], bytes]:
    """Return a function that makes the body. It raises `InvalidRequest` and `ApiError`: too_large."""

    def body() -> bytes:
        made = draft.request(settings.MAX_QUERIES_PER_BATCH).body
        if len(made) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise ApiError(
                413, "too_large", f"The request is larger than {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes."
            )
        return made

    return body


def blank(user: User) -> Draft:
    """Return what the form begins with: the first connection, the latest block, a balance."""
    chains = get_chains()
    connection = next(iter(chains.connections), None)
    if connection is None:
        return Draft()
    pays = bool(chains.chain(connection.destination_id).all_signers)
    return Draft(
        destination=str(connection.destination_id),
        sender="service" if pays else "self",
        rows=(Row(source=str(connection.source_id)),),
    )


def _check_may_ask(user: User) -> None:
    """Check the user as a key is checked with each request: the operator may have taken the address off the list."""
    if not may_sign_in(user.address):
        raise ApiError(403, "address_not_allowed", "Your address may not use this service any more.")
