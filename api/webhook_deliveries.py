"""The endpoints about webhooks' deliveries (docs/specification.md, "Webhooks")."""

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from accounts.models import ApiKey
from queries import columns, webhooks
from queries.api_endpoint import KEY, READING_KEY, ApiError, errors
from queries.models import DeliveryStatus, WebhookDelivery, WebhookEvent
from queries.query_parameters import CURSOR, LIMIT, Ulid

router = Router(tags=["Webhooks"])


class DeliveryAttempt(Schema):
    at: str = Field(description="When it began, ISO 8601 in UTC.")
    httpStatus: int | None = Field(description="The status of the answer; null if there was none.")
    outcome: str = Field(description="A sentence.")
    seconds: float = Field(description="How long it took.")


class Delivery(Schema):
    id: str = Field(description="The header webhook-id of each attempt.")
    internalId: str = Field(description="Identifier of the batch query.")
    event: WebhookEvent
    status: DeliveryStatus = Field(description="FAILED: given up.")
    createdAt: str = Field(description="When it happened, ISO 8601 in UTC.")
    nextTryAt: str | None = Field(description="While it is PENDING. Earlier events of the batch go first.")
    attempts: list[DeliveryAttempt] = Field(description="The last ones, the oldest first.")


class DeliveryList(Schema):
    deliveries: list[Delivery]
    next: str | None = Field(description="The cursor of the next page; null at the end.")


class SentAgain(Schema):
    id: str


def as_json(delivery: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": delivery.message_id,
        "internalId": delivery.webhook_id,
        "event": delivery.event,
        "status": delivery.status,
        "createdAt": delivery.created_at.isoformat(),
        "nextTryAt": delivery.next_try_at.isoformat() if delivery.next_try_at else None,
        "attempts": delivery.attempts,
    }


class DeliveryFilters(Schema):
    internalId: Ulid | None = None
    status: DeliveryStatus | None = None
    cursor: str | None = Field(None, pattern=r"^[0-9]{1,18}$", description=CURSOR)


@router.get(
    "/webhook-deliveries",
    operation_id="list_webhook_deliveries",
    auth=READING_KEY,
    response={200: DeliveryList, **errors(400, 401, 503)},
)
def list_webhook_deliveries(
    request: HttpRequest, filters: Query[DeliveryFilters], limit: int = LIMIT
) -> dict[str, Any]:
    """List the deliveries of your webhooks, pending and ended, newest first. Ended deliveries are kept for a while."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    before = int(filters.cursor) if filters.cursor else None
    batch, status = filters.internalId or "", filters.status or ""
    rows = webhooks.listed(key.user_id, batch=batch, status=status, before=before, limit=limit + 1)
    following = str(rows[limit - 1].pk) if len(rows) > limit else None
    return {"deliveries": [as_json(row) for row in rows[:limit]], "next": following}


@router.post(
    "/webhook-deliveries/{deliveryId}/send-again",
    operation_id="send_webhook_delivery_again",
    auth=KEY,
    response={202: SentAgain, **errors(401, 403, 404, 429, 503)},
)
def send_webhook_delivery_again(request: HttpRequest, deliveryId: str) -> Status[dict[str, str]]:
    """Send a delivery again now, whether it was delivered or not. Its id stays the same.

    If the delivery fails, the service retries for a day.
    """
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    message_id = columns.message_id(deliveryId)
    if not webhooks.send_again(key.user_id, message_id):
        raise ApiError(404, "not_found", "You have no such delivery.")
    return Status(202, {"id": message_id})
