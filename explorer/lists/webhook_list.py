"""The page of a user's webhooks: receivers, deliveries over all batches, and test events."""

from typing import Any

from django.contrib import messages
from django.db.models import F, Max
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from accounts.models import User
from accounts.signed_in import signed_in
from config.error_answers import Refused, with_retry_after
from config.logs import redact_keys
from explorer.batch import delivery_display
from explorer.lists.typed_filters import PAGE, known
from queries import webhooks
from queries.models import Webhook, WebhookDelivery
from queries.webhook_targets import MAX_URL_CHARS

# Receivers are those of the user's newest webhooks, so that older ones don't slow the page.
_MOST_WEBHOOKS, _MOST_RECEIVERS = 2_000, 50
_STATUS_OF_REFUSAL = {"unknown_receiver": 404, "secret_lost": 409, "too_many_requests": 429}


@require_safe
@signed_in
def page(request: HttpRequest, user: User) -> HttpResponse:
    """List the user's receivers, and deliveries with a primary key below `before`."""
    return shown(request, user)


def shown(request: HttpRequest, user: User, *, status: int = 200, **context: Any) -> HttpResponse:
    """Return the page, with `context` of a refusal."""
    receivers = _receivers(user)
    may_have_more = len(receivers) > _MOST_RECEIVERS or Webhook.objects.filter(user=user)[_MOST_WEBHOOKS:].exists()
    context |= delivery_display.paged(user, known(request.GET, "before", PAGE.fullmatch)) | {
        "receivers": receivers[:_MOST_RECEIVERS],
        "most_webhooks": _MOST_WEBHOOKS if may_have_more else None,
        "max_url_chars": MAX_URL_CHARS,
    }
    return render(request, "explorer/webhooks/page.html", context, status=status)


def _receivers(user: User) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the user's receivers with the last delivery, newest first. None: nothing was to be told yet."""
    newest = Webhook.objects.filter(user=user).order_by("-pk").values("pk")[:_MOST_WEBHOOKS]
    by_receiver = Webhook.objects.filter(pk__in=newest).values_list("receiver").annotate(last=Max("deliveries__pk"))
    rows = list(by_receiver.order_by(F("last").desc(nulls_last=True), "receiver")[: _MOST_RECEIVERS + 1])
    deliveries = delivery_display.displayed(WebhookDelivery.objects.filter(pk__in=[last for _, last in rows if last]))
    by_pk = {delivery["row"].pk: delivery for delivery in deliveries}
    return [(receiver, by_pk.get(last)) for receiver, last in rows]


@require_http_methods(["GET", "POST"])
@signed_in
def send_test(request: HttpRequest, user: User) -> HttpResponse:
    """Send a test event to the `url`, or as the user's newest webhook at the `receiver` is sent.

    The page that refuses a URL has this address. So a GET, such as a reload, redirects to the list.
    """
    if request.method != "POST":
        return redirect("explorer:webhooks")
    url, receiver = request.POST.get("url", "").strip(), request.POST.get("receiver", "")
    try:
        if receiver:
            webhooks.send_test_to_receiver(user.pk, receiver)
        else:
            webhooks.send_test(user.pk, url)
    except Refused as refused:
        status = _STATUS_OF_REFUSAL.get(refused.code, 400)
        response = shown(request, user, status=status, error=refused.sentence, url=redact_keys(url))
        return with_retry_after(response, refused.retry_after)
    messages.success(request, delivery_display.DELIVERY_SENTENCES["test"])
    return redirect("explorer:webhooks")
