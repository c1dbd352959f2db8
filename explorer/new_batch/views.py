"""The views of the form. Each button is a submit that says by `do` what it does, so all works without JavaScript."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts import sealing
from accounts.models import User
from accounts.signed_in import signed_in
from config.configured_chains import get_chains
from config.error_answers import Refused
from explorer.formatting import csv_lines
from explorer.new_batch import asking, corrections, drafts, form_page, pasted_rows, shown_faults, storage_slots
from explorer.new_batch.drafts import MAX_ROWS, Row
from explorer.new_batch.form_page import FormPage
from explorer.new_batch.forms import ARRAY, DraftForm
from explorer.new_batch.pasted_rows import LineFault
from explorer.new_batch.shown_faults import control
from queries import webhooks
from queries.api_errors import ApiError
from queries.batch_request import InvalidRequest
from queries.models import Batch, BatchStatus, Webhook
from queries.webhook_request import WebhookRequest

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}", re.ASCII)
_BUTTON = re.compile(r"(remove|slot)-([0-9]{1,3})", re.ASCII)
_P = ParamSpec("_P")


class _SeeOther(HttpResponseRedirect):
    """An answer to a form that is done: the browser opens the page that shows it."""

    status_code = 303


def _losing_nothing(view: Callable[Concatenate[HttpRequest, _P], HttpResponse]) -> Callable[..., HttpResponse]:
    """Keep what was typed where a user posts the form after being signed out, and say so."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponse:
        if request.method != "POST" or request.user.is_authenticated:
            return view(request, *args, **kwargs)
        sentence = "You are signed out. Sign in in another tab of your browser, then go on here."
        refused = ApiError(401, "not_signed_in", sentence)
        if not getattr(request, "htmx", False):
            return form_page.answer(request, replace(_typed(request)[0], refused=refused, is_signed_out=True))
        return form_page.answer_refusal(request, refused)

    return checked


@never_cache
@_losing_nothing
@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
def new_batch(request: HttpRequest, user: User) -> HttpResponse:
    """Show the form, and do what its buttons say. `from` is a batch of the user's that it is filled in from."""
    if request.method != "POST":
        return form_page.answer(request, _first(request, user, request.GET.get("from", "")))
    page, is_valid = _typed(request)
    if not is_valid:
        sentence = "The form arrived incomplete, or with characters that are not text."
        return form_page.answer(request, replace(page, faults=shown_faults.of_fields({(None, ""): [sentence]})))
    button = request.POST.get("do", "")
    if button == "submit":
        return _submit(request, user, page)
    if button == "json":
        return _file(request, page)
    if button == "csv":
        return csv_lines.file(pasted_rows.written(page.draft.rows), "batch.csv")
    return form_page.answer(request, _changed(request, user, page, button))


def _typed(request: HttpRequest) -> tuple[FormPage, bool]:
    """Return what was posted, and whether all of it could be read."""
    form = DraftForm(request.POST, get_chains())
    return FormPage(form.draft(), form.token if _TOKEN.fullmatch(form.token) else asking.new_token()), form.is_valid


def _changed(request: HttpRequest, user: User, page: FormPage, button: str) -> FormPage:
    """Return what a button makes of the form; without one, such as by Enter in a field, it is estimated."""
    if button == "add-row":
        return _with_row(page)
    if button == "paste":
        return _with_pasted(request, user, page)
    if (of_row := _BUTTON.fullmatch(button)) and (number := int(of_row[2])) < len(page.draft.rows):
        return _without_row(page, number) if of_row[1] == "remove" else _with_slot(page, number)
    return replace(page, estimated=asking.estimate(user, page.draft))


@never_cache
@_losing_nothing
@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
def estimate(request: HttpRequest, user: User) -> HttpResponse:
    """Tell htmx what the form as it stands would cost. A GET leads to the form."""
    if request.method != "POST":
        return HttpResponseRedirect(reverse("explorer:new_batch"))
    draft = DraftForm(request.POST, get_chains()).draft()
    estimated = asking.Estimated() if draft.is_blank else asking.estimate(user, draft)
    return form_page.answer_estimate(request, draft, estimated)


def _submit(request: HttpRequest, user: User, page: FormPage) -> HttpResponse:
    try:
        batch = asking.submit(user, page.draft, page.token)
    except InvalidRequest as invalid:
        return form_page.answer(request, replace(page, faults=asking.faults_of(page.draft, invalid)))
    except Refused as refused:
        return form_page.answer(request, replace(page, refused=refused))
    return _SeeOther(reverse("explorer:batch", args=[batch]))


def _file(request: HttpRequest, page: FormPage) -> HttpResponse:
    try:
        return form_page.file_of(page.draft)
    except InvalidRequest as invalid:
        return form_page.answer(request, replace(page, faults=asking.faults_of(page.draft, invalid)))


# --- What a form begins with ------------------------------------------------------------------------------------------


def _first(request: HttpRequest, user: User, internal_id: str) -> FormPage:
    page = FormPage(asking.blank(user), asking.new_token())
    if not internal_id:
        return page
    batch = Batch.objects.filter(pk=internal_id, user=user).first() if internal_id.isalnum() else None
    if batch is None:
        return replace(page, said=f"You have no batch {internal_id}.")
    document = json.loads(batch.request)
    draft = drafts.of_document(document)
    if len(draft.rows) > MAX_ROWS:
        return replace(page, said=f"Batch {batch.pk} asks for more than the form holds. Send it again by the API.")
    url, lacking = _webhook(batch)
    draft = replace(draft, webhook=url)
    page = replace(page, draft=draft, said=lacking)
    if batch.status != BatchStatus.REJECTED:
        return replace(page, said=f"It is filled in as batch {batch.pk} was. {lacking}")
    reason = corrections.reason(batch)
    wrong = shown_faults.of_fields({field: [reason] for field in corrections.fields(draft, batch)})
    return replace(page, draft=draft, corrects=batch, faults=wrong)


def _webhook(batch: Batch) -> tuple[str, str]:
    """Return the URL of the batch's webhook, and a sentence about what of it the form can't hold."""
    webhook = Webhook.objects.filter(pk=batch.pk).first()
    if webhook is None:
        return "", ""
    try:
        url, headers = webhooks.destination(webhook)
    except sealing.CantOpen:
        return "", "Its webhook is left out: it can't be read any more."
    if headers or set(webhook.events) != set(WebhookRequest.model_fields["events"].default):
        return url, "The headers and the events of its webhook are left out: they take the API."
    return url, ""


# --- What buttons do --------------------------------------------------------------------------------------------------


def _with_row(page: FormPage) -> FormPage:
    rows = page.draft.rows
    if len(rows) >= MAX_ROWS:
        return replace(page, said=f"The form holds {MAX_ROWS} rows. A row holds any number of accounts.")
    # Most ask for more at the same block.
    new = Row(source=rows[-1].source, at=rows[-1].at, block=rows[-1].block, time=rows[-1].time)
    return replace(page, draft=replace(page.draft, rows=(*rows, new)), focus=control(len(rows), "accounts"))


def _without_row(page: FormPage, number: int) -> FormPage:
    rows = page.draft.rows
    left = rows[:number] + rows[number + 1 :] or (Row(source=rows[number].source),)
    return replace(page, draft=replace(page.draft, rows=left), focus="add-row", said=f"Row {number + 1} is removed.")


def _with_slot(page: FormPage, number: int) -> FormPage:
    """Add the slot that the row's helper finds."""
    row = page.draft.rows[number]
    try:
        if row.slot_of == ARRAY:
            slot = storage_slots.of_array(row.slot_key, row.slot_base)
        else:
            slot = storage_slots.of_mapping(row.slot_of, row.slot_key, row.slot_base)
    except storage_slots.NotAKey as error:
        name = "slot_base" if error.of_base else "slot_key"
        return replace(
            page, faults=shown_faults.of_fields({(number, name): [error.sentence]}), focus=control(number, name)
        )
    slots = "\n".join(dict.fromkeys([*row.slots.split(), slot]))
    draft = page.draft.with_row(number, replace(row, slots=slots, slot_key=""))
    return replace(page, draft=draft, focus=control(number, "slot_key"), said=f"Slot {slot} is added.")


def _with_pasted(request: HttpRequest, user: User, page: FormPage) -> FormPage:
    draft = page.draft
    try:
        text = _uploaded(request) or draft.pasted
    except UnicodeDecodeError:
        return replace(page, line_faults=[LineFault(0, "The file is no text in UTF-8.")])
    page = replace(page, draft=replace(draft, pasted=text), focus="id_pasted")
    try:
        pasted = asking.read_pasted(user, draft, text)
    except Refused as refused:
        return replace(page, refused=refused)
    if pasted.faults:
        return replace(page, line_faults=pasted.faults)
    kept = () if draft.is_blank else draft.rows
    if len(kept) + len(pasted.rows) > MAX_ROWS:
        return replace(page, line_faults=[LineFault(0, f"The form holds {MAX_ROWS} rows, and would have more.")])
    said = f"{pasted.count:,} {'line is' if pasted.count == 1 else 'lines are'} in the form."
    return replace(page, draft=replace(draft, rows=kept + pasted.rows, pasted=""), focus="submit", said=said)


def _uploaded(request: HttpRequest) -> str:
    """Return the file's text; empty where none was chosen. Raises `UnicodeDecodeError`."""
    file = request.FILES.get("file")
    return file.read().decode("utf-8-sig") if file else ""
