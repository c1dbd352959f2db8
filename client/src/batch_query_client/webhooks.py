"""Verification of webhook deliveries (Standard Webhooks, by its library)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import standardwebhooks
from pydantic import ValidationError

from batch_query_client.answers import AnswerModel, Text
from batch_query_client.errors import InvalidWebhook

_MAX_BYTES = 1024 * 1024


class WebhookData(AnswerModel):
    """An event of a batch, or a test event."""

    internal_id: Text
    """The batch. A test event has an identifier that no batch has."""
    label: Text = ""
    """The batch's, if it has one."""
    query_status: Text = ""
    error: Text = ""
    code: Text = ""
    """The code of the batch's rejection."""
    retryable: bool | None = None
    step: Text = ""
    """The step that all queries have completed, or the step at which a rolled back batch begins again."""
    reason: Text = ""
    """The reason why the batch was rolled back."""


class WebhookEvent(AnswerModel):
    """A delivery whose signature is verified."""

    type: Text
    """batch_query.done, batch_query.rejected, batch_query.went_back, batch_query.step_completed or webhook.test."""
    timestamp: datetime
    """The time of the event. Deliveries of one batch come in this order."""
    data: WebhookData
    id: str = ""
    """The same for each delivery of the event, so that a receiver can ignore repetitions."""


def verify_webhook(body: str | bytes, headers: Mapping[str, str], *secrets: str) -> WebhookEvent:
    """Return the event, if one of the secrets (whsec_...) signed it within the last five minutes.

    `body` must be the request's, byte for byte. `headers` are the request's, with names in any case. While a secret is
    being rotated, give both secrets. Raises `InvalidWebhook`.
    """
    text = _text(body)
    headers_in_lower_case = {name.lower(): value for name, value in headers.items()}
    if not secrets:
        raise ValueError("Give the secret from the Keys page.")
    if not any(_is_signed(text, headers_in_lower_case, secret) for secret in secrets):
        raise InvalidWebhook("The delivery is not signed with this secret, or is older than five minutes.")
    try:
        event = WebhookEvent.model_validate_json(text)
    except (ValidationError, RecursionError):
        raise InvalidWebhook("The delivery is signed, but has another form than expected.") from None
    return event.model_copy(update={"id": headers_in_lower_case.get("webhook-id", "")})


def _text(body: str | bytes) -> str:
    if len(body) > _MAX_BYTES:
        raise InvalidWebhook(f"The delivery is larger than {_MAX_BYTES} bytes.")
    try:
        return body if isinstance(body, str) else body.decode()
    except UnicodeDecodeError:
        raise InvalidWebhook("The delivery is not UTF-8.") from None


def _is_signed(text: str, headers: Mapping[str, str], secret: str) -> bool:
    try:
        webhook: Any = standardwebhooks.Webhook(secret)
    except Exception:  # noqa: BLE001 (base64 and the library raise different exceptions)
        raise ValueError("The secret is not one of Standard Webhooks: whsec_ and base64.") from None
    try:
        webhook.verify(text, dict(headers))
    except Exception:  # noqa: BLE001 (malformed headers raise many kinds of exceptions)
        return False
    return True
