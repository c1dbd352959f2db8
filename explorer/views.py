"""Views: pages for anyone with the link, and lists of a user's own batches.

They write only throttle counts, labels, cancellations, and requests to repeat a webhook's delivery.
"""

from contextlib import suppress

from django.conf import settings
from django.contrib import messages
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    JsonResponse,
)
from django.shortcuts import get_object_or_404, redirect, render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.html import format_html
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.middleware import HtmxDetails

from accounts import read_rate
from accounts.models import User
from accounts.signed_in import signed_in, signed_in_fragment
from accounts.throttle import client_address
from api import batch_files, batches, missing, submitted_request
from api.transactions import check_self_funded
from config.chain_names import chain_name
from config.error_answers import Refused, error_answer, wants_json, with_retry_after
from explorer.batch import (
    batch_page,
    delivery_display,
    facts_csv,
    fragment,
    read_from_chain,
    transaction_display,
    unsigned_transactions,
)
from explorer.batch.batch_page import ShownBatch
from explorer.batch.code_snippets import submitting
from explorer.batch.log_display import MOST_OF_SIGNATURE
from explorer.batch.query_paging import QueryFilters, QuerySelection
from explorer.batch.read_from_chain import READING_SENTENCES, Reading
from explorer.batch.unsigned_transactions import TransactionsToSend
from explorer.formatting import csv_lines
from explorer.lists import webhook_list
from explorer.lists.typed_filters import PAGE, known
from queries import columns, labels, query_rows, webhooks
from queries.api_endpoint import ApiError
from queries.models import OPEN_STATUSES, Batch

# A larger batch's request is offered only as a file.
_MOST_SHOWN_QUERIES = 50
_MOST_SHOWN_CHARACTERS = 20_000


class HtmxRequest(HttpRequest):
    """A request that went through `HtmxMiddleware`."""

    htmx: HtmxDetails


# --- One batch --------------------------------------------------------------------------------------------------------


@never_cache
@require_safe
def batch(request: HtmxRequest, internal_id: str) -> HttpResponse:
    """Show one batch, with page number `page` of the queries that match `QueryFilters`."""
    number = known(request.GET, "page", PAGE.fullmatch)
    steps_first = request.GET.get("steps") == "first"
    return _batch_page(
        request, internal_id, QuerySelection(number, QueryFilters.of(request.GET), steps_first=steps_first)
    )


@never_cache
@require_safe
def query(request: HtmxRequest, internal_id: str, number: int) -> HttpResponse:
    """Show one query of a batch, with page number `slots` of its slots or logs, which `event` decodes."""
    slots, event = known(request.GET, "slots", PAGE.fullmatch), request.GET.get("event", "").strip()[:MOST_OF_SIGNATURE]
    return _batch_page(request, internal_id, QuerySelection(only=number, slots=slots, event=event))


def _batch_page(
    request: HtmxRequest,
    internal_id: str,
    wanted: QuerySelection,
    *,
    read: Reading | None = None,
    label_fault: str = "",
) -> HttpResponse:
    """Show a batch. For htmx, return only the part that changes, or 204 if htmx has the same `version`.

    The status isn't 304, because htmx 2 would swap the empty body into the page.
    """
    if request.htmx:
        part = fragment.read(internal_id, wanted, request.user if isinstance(request.user, User) else None)
        if part is None:
            return missing.unknown_batch(request, internal_id, as_json=wants_json(request))
        if request.GET.get("version") == part.version:
            response = HttpResponse(status=204)
        elif request.GET.get("was", part.was) != part.was:
            # Most of the page is another one: its facts are gone, or were for a time, and its steps and notes are back.
            response = HttpResponse(headers={"HX-Refresh": "true"})
        else:
            response = HttpResponse(format_html("<title>{}</title>{}", part.title, part.of(request)))
    else:
        page = batch_page.read(internal_id, wanted)
        if page is None:
            return missing.unknown_batch(request, internal_id, as_json=wants_json(request))
        is_own = page.batch.user_id == request.user.pk
        part = fragment.render(page, is_own=is_own, reading=read)
        of_query = [wanted.only] if wanted.only else []
        context = {
            "page": page,
            "path": reverse(f"explorer:{'query' if of_query else 'batch'}", args=[page.batch.pk, *of_query]),
            "batch": page.batch,
            "title": part.title,
            "announcement": part.announcement,
            "fragment": part.of(request),
            "is_own": is_own,
            "label_fault": label_fault,
            "typed_label": request.POST.get("label", ""),
            **_request(page),
            **_webhook(request, page),
            "base_url": settings.BASE_URL,
        }
        response = render(request, "explorer/batch/page.html", context)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _webhook(request: HttpRequest, page: ShownBatch) -> dict[str, object]:
    """Return the webhook's part of the page, which only the batch's owner gets."""
    user = request.user if isinstance(request.user, User) else None
    webhook = delivery_display.read(page.batch.pk, user, known(request.GET, "deliveries", PAGE.fullmatch))
    return {"webhook": webhook, "internal_id": page.batch.pk, "is_live": page.poll_seconds is not None}


def _request(page: ShownBatch) -> dict[str, str]:
    """Return the submitted JSON and a command that submits it again. Return neither if they are too long to read."""
    if page.counts.queries > _MOST_SHOWN_QUERIES:
        return {}
    stored = Batch.objects.only("request", "label").filter(pk=page.batch.pk).first()
    if stored is None:  # deleted meanwhile
        return {}
    # A query may name thousands of slots.
    if len(stored.request) > _MOST_SHOWN_CHARACTERS:
        return {}
    text = submitted_request.as_text(submitted_request.public_request(stored))
    return {"submitted": text, "command": submitting(settings.BASE_URL, text)}


@signed_in_fragment("explorer:batch")
@require_safe
def deliveries(request: HttpRequest, user: User, internal_id: str) -> HttpResponse:
    """Return the webhook deliveries of the user's batch, for htmx."""
    webhook = delivery_display.read(internal_id, user, known(request.GET, "deliveries", PAGE.fullmatch))
    if webhook is None:
        raise Http404
    context = {"webhook": webhook, "internal_id": internal_id, "is_live": True}
    return render(request, "explorer/batch/_deliveries.html", context)


@signed_in
@require_http_methods(["GET", "POST"])
def send_again(request: HttpRequest, user: User, delivery_id: str, internal_id: str = "") -> HttpResponse:
    """Repeat a webhook delivery of the user. A GET redirects to the page of the batch, or of all deliveries.

    A refusal shows the page of all deliveries.
    """
    parts = f"?{request.GET.urlencode()}" if request.GET else ""
    page = reverse("explorer:batch", args=[internal_id]) if internal_id else reverse("explorer:webhooks") + parts
    back = HttpResponseRedirect(f"{page}#deliveries")
    if request.method != "POST":
        return back
    try:
        if not webhooks.send_again(user.pk, columns.message_id(delivery_id)):
            raise Http404
        messages.success(request, delivery_display.DELIVERY_SENTENCES["sent_again"])
    except Refused as refused:
        messages.error(request, refused.sentence)
        return with_retry_after(webhook_list.shown(request, user, status=429), refused.retry_after)
    return back


@signed_in
@require_http_methods(["GET", "POST"])
def cancel(request: HttpRequest, user: User, internal_id: str) -> HttpResponse:
    """Cancel a batch of the user on POST, if no more was sent than the user has seen. On GET, ask for confirmation."""
    own = get_object_or_404(Batch.objects.defer("request"), pk=internal_id, user=user)
    sent = transaction_display.sent_until_now(own)
    if request.method == "POST" and (not own.is_open or request.POST.get("newest") == sent.newest):
        with suppress(ApiError):
            batches.withdraw(own, by="page")
            return redirect("explorer:batch", own.pk)
    context = {"batch": own, "destination": chain_name(own.destination_chain_id), "sent": sent}
    return render(request, "explorer/batch/cancel.html", context, status=409 if request.method == "POST" else 200)


@signed_in
@require_http_methods(["GET", "POST"])
def label(request: HttpRequest, user: User, internal_id: str) -> HttpResponse:
    """Give a batch of the user another label on POST, or none. A GET redirects to the batch's page."""
    own = get_object_or_404(Batch.objects.only("pk"), pk=internal_id, user=user)
    if request.method == "POST":
        typed = request.POST.get("label", "").strip()
        if typed and not labels.valid(typed):
            response = _batch_page(
                request,  # type: ignore[arg-type]  # middleware makes each request such a one
                internal_id,
                QuerySelection(),
                label_fault=labels.FAULT,
            )
            response.status_code = 400
            return response
        labels.change(own, labels.valid(typed))
    return redirect("explorer:batch", own.pk)


@never_cache
@require_safe
@read_rate.counted
def facts_csv_file(request: HttpRequest, internal_id: str) -> HttpResponse:
    """Return all facts of a batch, for spreadsheets."""
    batch = query_rows.find_batch(internal_id)
    if batch is None:
        return missing.unknown_batch(request, internal_id, as_json=missing.prefers_json(request))
    if refusal := batch_files.refusal_of_size(request, batch.queries.all(), batch.size):
        return refusal
    return csv_lines.file(facts_csv.lines(batch), f"facts-{batch.pk}.csv")


@never_cache
@require_http_methods(["GET", "POST"])
def read_now(request: HtmxRequest, internal_id: str, number: int) -> HttpResponse:
    """Read a query's facts from the registry now, with the shown page of slots.

    Without JavaScript the browser navigates to this address, so a GET redirects to the query's page.
    """
    if request.method != "POST":
        slots = request.GET.get("slots", "")
        parameters = f"?slots={slots}" if slots.isascii() and slots.isdigit() else ""
        return HttpResponseRedirect(reverse("explorer:query", args=[internal_id, number]) + parameters)
    try:
        row = missing.completed_query(internal_id, number)
    except ApiError as error:
        return missing.not_here(request, internal_id, error, as_json=wants_json(request))
    slots = request.GET.get("slots", "")
    retry_after = read_rate.count(client_address(request))
    if not retry_after:
        read, status = read_from_chain.read_now(row, slots), 200
    else:
        read, status = Reading(number, READING_SENTENCES["too_many_requests"]), 429
    if request.htmx:
        # The status is 200, because htmx ignores the content of error responses.
        return render(request, "explorer/batch/_reading.html", {"reading": read})
    response = _batch_page(request, internal_id, QuerySelection(only=number, slots=slots), read=read)
    response.status_code = status
    return with_retry_after(response, retry_after)


@never_cache
@require_http_methods(["GET", "POST"])
def transactions(request: HttpRequest, internal_id: str) -> HttpResponse:
    """Show the transactions that a self-funded batch still needs now. A GET redirects to the batch's page."""
    batch = query_rows.find_batch(internal_id)
    if batch is None:
        return missing.unknown_batch(request, internal_id, as_json=wants_json(request))
    if wants_json(request) and request.method == "POST":
        return _transactions_as_json(request, batch)
    if request.method != "POST" or not batch.is_self_funded or batch.status not in OPEN_STATUSES:
        return HttpResponseRedirect(reverse("explorer:batch", args=[internal_id]))
    retry_after = read_rate.count(client_address(request))
    to_send = (
        TransactionsToSend(READING_SENTENCES["too_many_requests"]) if retry_after else unsigned_transactions.read(batch)
    )
    context = {"internal_id": internal_id, "to_send": to_send}
    response = render(request, "explorer/batch/unsigned_transactions.html", context, status=429 if retry_after else 200)
    return with_retry_after(response, retry_after)


def _transactions_as_json(request: HttpRequest, batch: Batch) -> HttpResponse:
    """Return the unsigned transactions for static/js/send.js, which sends them through a wallet."""
    try:
        check_self_funded(batch)
    except ApiError as error:
        return error.response()
    if retry_after := read_rate.count(client_address(request)):
        return error_answer(429, "too_many_requests", READING_SENTENCES["too_many_requests"], retry_after=retry_after)
    to_send = unsigned_transactions.read(batch)
    if to_send.problem:
        return error_answer(503, "chain_unavailable", to_send.problem)
    return JsonResponse(to_send.as_json())


@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """Redirect to the icon that pages name. Feed readers, for example, ask for this path unseen."""
    return HttpResponseRedirect(static("favicon.svg"))
